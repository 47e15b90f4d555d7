"""The rules by which a leader moves the high watermark and changes the ISR, one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cordwood.broker.replication.follower_state import SessionFetches
from cordwood.broker.replication.leadership import (
    NO_BROKER_EPOCH,
    Effect,
    IsrProposal,
    LedPartition,
    MoveHighWatermark,
    PartitionLeadership,
    ProposeIsr,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import NotLeaderOrFollowerError

ALL = LedPartition(leader_epoch=5, partition_epoch=10, replicas=(1, 2, 3), isr=(1, 2, 3))
ALONE = replace(ALL, isr=(1,))
LAG_MS = 30_000


class Brokers:
    """Brokers 1 to 3 with the epochs 100, 200 and 300, all alive."""

    def __init__(self) -> None:
        self.epochs: dict[int, int | None] = {1: 100, 2: 200, 3: 300}
        self.shutting_down: set[int] = set()

    def epoch_of(self, broker_id: int) -> int | None:
        return self.epochs.get(broker_id)

    def is_shutting_down(self, broker_id: int) -> bool:
        return broker_id in self.shutting_down


class Led:
    """Broker 1 leads; the fetches of the others are at the time `now_ms`."""

    def __init__(self, partition: LedPartition = ALL, *, end: int = 0, min_isr: int = 1) -> None:
        self.brokers = Brokers()
        self.now_ms = 0.0
        self.leader = PartitionLeadership(
            1,
            partition,
            brokers=self.brokers,
            own_epoch=lambda: 100,
            end_offset=end,
            high_watermark=0,
            now_ms=0,
            min_insync_replicas=min_isr,
            lag_max_ms=LAG_MS,
        )

    def append(self, end: int) -> list[Effect]:
        return self.leader.on_append(end, self.now_ms)

    def fetch(self, broker_id: int, offset: int, *, epoch: int | None = None) -> list[Effect]:
        return self.leader.on_fetch(
            broker_id,
            offset,
            start=0,
            now_ms=self.now_ms,
            broker_epoch=broker_id * 100 if epoch is None else epoch,
        )

    def tick(self) -> list[Effect]:
        return self.leader.on_tick(self.now_ms)


def isr(*members: int, partition_epoch: int = 10) -> ProposeIsr:
    epochs = tuple((each, each * 100) for each in members)
    return ProposeIsr(IsrProposal(leader_epoch=5, partition_epoch=partition_epoch, isr=epochs))


def pending(effects: list[Effect]) -> IsrProposal:
    (found,) = [each.proposal for each in effects if isinstance(each, ProposeIsr)]
    return found


def test_leo_and_high_watermark_step_by_step() -> None:
    """A leader with three records, followers that fetch two and one, then all."""
    led = Led()
    assert led.append(3) == []
    assert led.leader.high_watermark == 0
    assert led.fetch(2, 0) == []
    assert led.fetch(3, 0) == []
    assert led.fetch(2, 2) == []
    assert led.fetch(3, 1) == [MoveHighWatermark(1)]
    assert led.fetch(3, 2) == [MoveHighWatermark(2)]
    assert led.fetch(2, 3) == []
    assert led.fetch(3, 3) == [MoveHighWatermark(3)]
    assert led.leader.committed(3) is ErrorCode.NONE
    assert led.leader.committed(4) is None


def test_leader_without_others_commits_at_once() -> None:
    led = Led(replace(ALONE, replicas=(1,)), end=4)
    assert led.leader.refresh(0) == [MoveHighWatermark(4)]
    assert led.append(5) == [MoveHighWatermark(5)]


def test_follower_that_lags_leaves_the_isr_and_holds_nothing_back_then() -> None:
    led = Led()
    led.append(2)
    led.fetch(2, 2)
    led.fetch(3, 0)
    led.now_ms = LAG_MS
    assert led.tick() == []
    led.now_ms = LAG_MS + 1
    led.fetch(2, 2)
    proposal = pending(led.tick())
    assert ProposeIsr(proposal) == isr(1, 2)
    assert led.leader.maximal_isr == {1, 2, 3}
    assert led.tick() == []
    assert led.fetch(2, 2) == []
    taken = replace(ALL, isr=(1, 2), partition_epoch=11)
    another = replace(proposal)
    assert led.leader.on_isr_altered(another, taken, led.now_ms) == []
    assert led.leader.on_isr_altered(proposal, taken, led.now_ms) == [MoveHighWatermark(2)]


def test_silent_follower_with_the_whole_log_stays() -> None:
    led = Led()
    led.append(2)
    led.fetch(2, 2)
    led.fetch(3, 2)
    led.now_ms = 10 * LAG_MS
    assert led.tick() == []
    led.append(3)
    assert pending(led.tick()).members == {1}


def test_follower_that_keeps_up_with_what_there_was_is_in_sync() -> None:
    led = Led()
    led.append(10)
    led.now_ms = 10
    led.fetch(2, 5)
    led.now_ms = LAG_MS
    led.append(20)
    led.fetch(2, 10)  # all that there was at its fetch before
    led.fetch(3, 20)
    led.now_ms = LAG_MS + 1
    assert led.tick() == []


def test_follower_enters_the_isr_at_the_high_watermark_of_this_epoch() -> None:
    led = Led(ALONE, end=8)
    assert led.leader.refresh(0) == [MoveHighWatermark(8)]
    assert led.fetch(2, 7) == []
    assert led.fetch(2, 8) == [isr(1, 2)]
    assert led.append(9) == []  # it counts from the proposal on
    assert led.fetch(3, 9) == []  # one proposal at a time
    assert led.fetch(2, 9) == [MoveHighWatermark(9)]


@pytest.mark.parametrize("why", ["fenced", "shutting down", "registered again"])
def test_follower_that_is_not_eligible_stays_outside(why: str) -> None:
    led = Led(ALONE)
    if why == "fenced":
        led.brokers.epochs[2] = None
    elif why == "shutting down":
        led.brokers.shutting_down.add(2)
    else:
        led.brokers.epochs[2] = 150  # the image is behind the follower
    assert led.fetch(2, 0) == []
    assert led.fetch(3, 0) == [isr(1, 3)]


def test_fetch_of_an_earlier_life_is_refused() -> None:
    led = Led()
    with pytest.raises(NotLeaderOrFollowerError, match="broker epoch=199 vs expected=200"):
        led.fetch(2, 0, epoch=199)
    assert led.fetch(2, 0, epoch=NO_BROKER_EPOCH) == []
    with pytest.raises(NotLeaderOrFollowerError, match="Broker 4 is no replica"):
        led.fetch(4, 0)


def test_nothing_is_committed_below_the_min_isr() -> None:
    led = Led(ALONE, min_isr=2)
    assert led.append(3) == []
    assert (led.leader.is_under_min_isr, led.leader.effective_min_isr) == (True, 2)
    proposal = pending(led.fetch(2, 3))
    assert led.fetch(2, 3) == []
    taken = replace(ALONE, isr=(1, 2), partition_epoch=11)
    assert led.leader.on_isr_altered(proposal, taken, 0) == [MoveHighWatermark(3)]
    assert Led(replace(ALONE, replicas=(1,)), min_isr=2).leader.effective_min_isr == 1


def test_append_that_is_committed_by_too_few_says_so() -> None:
    led = Led(min_isr=3)
    led.append(1)
    led.fetch(2, 1)
    assert led.fetch(3, 1) == [MoveHighWatermark(1)]
    led.leader.on_metadata(replace(ALL, isr=(1, 2), partition_epoch=11), 0)
    assert led.leader.committed(1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


@pytest.mark.parametrize(
    ("error", "maximal", "is_sent_again"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, {1}, False),
        (ErrorCode.INVALID_UPDATE_VERSION, {1, 2}, False),
        (ErrorCode.FENCED_LEADER_EPOCH, {1, 2}, False),
        (ErrorCode.NOT_CONTROLLER, {1, 2}, True),
    ],
)
def test_proposal_that_is_refused(error: ErrorCode, maximal: set[int], is_sent_again: bool) -> None:
    led = Led(ALONE)
    proposal = pending(led.fetch(2, 0))
    expected = [ProposeIsr(proposal)] if is_sent_again else []
    assert led.leader.on_isr_refused(proposal, error) == expected
    assert led.leader.maximal_isr == maximal
    # Metadata of a later epoch ends every wait.
    led.leader.on_metadata(replace(ALL, partition_epoch=12), 0)
    assert led.leader.maximal_isr == {1, 2, 3}
    assert led.leader.on_isr_refused(proposal, ErrorCode.NOT_CONTROLLER) == []


def test_answer_that_comes_behind_the_metadata_is_left_out() -> None:
    led = Led(ALONE)
    proposal = pending(led.fetch(2, 0))
    led.leader.on_metadata(replace(ALL, partition_epoch=12), 0)
    taken = replace(ALONE, isr=(1, 2), partition_epoch=11)
    assert led.leader.on_isr_altered(proposal, taken, 0) == []
    assert led.leader.partition.isr == (1, 2, 3)


def test_metadata_of_an_answer_does_not_drop_the_next_proposal() -> None:
    led = Led(ALONE)
    taken = replace(ALONE, isr=(1, 2), partition_epoch=11)
    led.leader.on_isr_altered(pending(led.fetch(2, 0)), taken, 0)
    assert led.fetch(3, 0) == [isr(1, 2, 3, partition_epoch=11)]
    led.leader.on_metadata(replace(taken, replicas=(1, 2, 3, 4)), 0)
    assert led.leader.maximal_isr == {1, 2, 3}
    assert set(led.leader.followers) == {2, 3, 4}
    led.append(1)
    assert led.fetch(2, 1) == []


def test_same_leader_in_a_new_epoch_keeps_where_its_followers_are() -> None:
    led = Led()
    led.append(5)
    led.fetch(2, 5)
    led.fetch(3, 4)
    assert led.leader.high_watermark == 4
    led.now_ms = 50
    led.leader.on_metadata(replace(ALL, leader_epoch=6, partition_epoch=11), 50)
    assert [each.log_end_offset for each in led.leader.followers.values()] == [5, 4]
    assert led.fetch(3, 5) == [MoveHighWatermark(5)]


def test_low_watermark_is_that_of_live_replicas() -> None:
    led = Led()
    for broker_id, start in ((2, 3), (3, 1)):
        led.leader.on_fetch(broker_id, 9, start=start, now_ms=0, broker_epoch=broker_id * 100)
    assert led.leader.low_watermark(5) == 1
    led.brokers.epochs[3] = None
    assert led.leader.low_watermark(5) == 3


def test_follower_whose_session_leaves_the_partition_out_fetches_it_with_each_fetch() -> None:
    led = Led(end=1)
    led.fetch(2, 1)
    led.fetch(3, 1)
    two, three = SessionFetches(0), SessionFetches(0)
    assert led.leader.omit(2, two)
    assert led.leader.omit(3, three)
    led.now_ms = two.last_ms = 10 * LAG_MS
    assert led.tick() == [], "both have all"
    led.append(2)
    led.now_ms += 1
    shrunk = pending(led.tick())
    assert shrunk.members == {1, 2}, "3 has not fetched for long"
    led.leader.on_isr_altered(shrunk, replace(ALL, isr=(1, 2), partition_epoch=11), led.now_ms)
    two.last_ms += LAG_MS
    led.now_ms += LAG_MS
    assert pending(led.tick()).members == {1}, "the append ended that"


def test_follower_that_is_left_out_is_the_nearest_reader_while_its_session_fetches() -> None:
    led = Led(end=1)
    for follower in (2, 3):
        led.fetch(follower, 1)
    sessions = {follower: SessionFetches(0) for follower in (2, 3)}
    for follower, session in sessions.items():
        assert led.leader.omit(follower, session)
    sessions[2].last_ms = 500
    assert led.leader.nearest_reader((2, 3), 1, 600) == 2
    led.leader.end_omission(2)
    sessions[3].last_ms = 600
    assert led.leader.nearest_reader((2, 3), 1, 600) == 3


@pytest.mark.parametrize("why", ["behind", "uncommitted", "not in sync", "proposed", "stranger"])
def test_follower_of_which_something_is_awaited_is_not_left_out(why: str) -> None:
    in_sync = {"not in sync": (1,), "proposed": (1, 2)}.get(why, ALL.isr)
    led = Led(replace(ALL, isr=in_sync), end=1)
    if why == "not in sync":
        led.brokers.shutting_down.add(2)
    led.fetch(2, 0 if why == "behind" else 1)
    if why not in {"uncommitted", "not in sync"}:
        led.fetch(3, 1)
    follower = 4 if why == "stranger" else 2
    assert not led.leader.omit(follower, SessionFetches(0))
    if why == "not in sync":
        led.brokers.shutting_down.clear()
        assert pending(led.fetch(2, 1)).members == {1, 2}, "its next fetch is looked at"


def test_a_session_that_has_been_replaced_does_not_end_what_the_later_one_leaves_out() -> None:
    led = Led(end=1)
    for follower in (2, 3):
        led.fetch(follower, 1)
    earlier, later = SessionFetches(0), SessionFetches(0)
    assert led.leader.omit(2, earlier)
    earlier.last_ms = 100
    assert led.leader.omit(2, later)
    later.last_ms = 200
    led.leader.end_omission(2, earlier)
    assert led.leader.followers[2].caught_up_ms == 200
    led.leader.end_omission(2, later)
    later.last_ms = 300
    assert led.leader.followers[2].caught_up_ms == 200
