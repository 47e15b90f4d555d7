"""An observer of the metadata quorum: what it asks whom, and what it does with the answers."""

from __future__ import annotations

from collections import Counter

import pytest

from cordwood.client.node_connection import NodeAddress
from cordwood.metadata.quorum.observer import (
    NO_LEADER,
    AppendRecords,
    AppendSnapshot,
    BeginSnapshot,
    DropSnapshot,
    FetchAnswer,
    FetchAsk,
    FinishSnapshot,
    KeepLeader,
    LeaderAndEpoch,
    LogEnd,
    MoveHighWatermark,
    OffsetAndEpoch,
    QuorumObserver,
    SnapshotAnswer,
    SnapshotAsk,
    TruncateTo,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError
from support.quorum_under_test import FITTED, WAITED, run_random_quorum

SEEDS, SEEDS_NIGHTLY = 60, 1500
ONE, TWO = NodeAddress("one", 9093), NodeAddress("two", 9093)
EMPTY = LogEnd(offset=0, epoch=0, high_watermark=-1)
END = LogEnd(offset=10, epoch=3, high_watermark=8)
NOBODY = LeaderAndEpoch(NO_LEADER, 0)
LEADER = LeaderAndEpoch(1, 3)
NEXT = LeaderAndEpoch(2, 4)
SNAPSHOT = OffsetAndEpoch(100, 3)


class First:
    """Draws the first of all."""

    def below(self, bound: int) -> int:
        return 0

    def unique_id(self) -> str:
        raise AssertionError("no id is needed")


def observer_of(leader: LeaderAndEpoch = NOBODY) -> QuorumObserver:
    return QuorumObserver(servers=[ONE, TWO], leader=leader, rng=First())


@pytest.fixture
def observer() -> QuorumObserver:
    """One that follows node 1, at the first address, in epoch 3."""
    found = observer_of()
    found.next_ask(EMPTY, 0)
    effects = found.on_fetched(fetched(ErrorCode.FENCED_LEADER_EPOCH), 0)
    assert effects == [KeepLeader(LEADER)]
    return found


def fetched(
    error: ErrorCode = ErrorCode.NONE,
    leader: LeaderAndEpoch = LEADER,
    address: NodeAddress | None = ONE,
    *,
    high_watermark: int = -1,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
    records: bytes = b"",
) -> FetchAnswer:
    return FetchAnswer(
        error=error,
        leader=leader,
        leader_address=address,
        high_watermark=high_watermark,
        diverging=diverging,
        snapshot_id=snapshot_id,
        records=records,
    )


def part(data: bytes, *, position: int = 0, size_bytes: int = 5) -> SnapshotAnswer:
    return SnapshotAnswer(
        error=ErrorCode.NONE,
        leader=LEADER,
        snapshot_id=SNAPSHOT,
        position=position,
        size_bytes=size_bytes,
        data=data,
    )


def test_without_a_server_there_is_no_observer() -> None:
    with pytest.raises(ValueError, match="needs a server"):
        QuorumObserver(servers=[], leader=LEADER, rng=First())


def test_first_answer_names_the_leader_which_is_asked_next(observer: QuorumObserver) -> None:
    assert observer.leader == LEADER
    assert observer.next_ask(EMPTY, 0) == FetchAsk(to=ONE, epoch=3, end=EMPTY)


def test_records_are_kept_and_then_the_high_watermark_moves(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    effects = observer.on_fetched(fetched(records=b"batches", high_watermark=12), 0)
    assert effects == [AppendRecords(b"batches"), MoveHighWatermark(12)]


def test_leader_of_no_known_high_watermark_moves_none(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    assert observer.on_fetched(fetched(records=b"batches"), 0) == [AppendRecords(b"batches")]


def test_leader_that_is_found_with_its_records_is_followed_at_once() -> None:
    observer = observer_of(LeaderAndEpoch(NO_LEADER, 3))
    assert observer.next_ask(END, 0) == FetchAsk(to=ONE, epoch=3, end=END)
    effects = observer.on_fetched(fetched(records=b"batches"), 0)
    assert effects == [KeepLeader(LEADER), AppendRecords(b"batches")]


def test_server_that_failed_is_left_alone_for_the_backoff(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    observer.on_failure(0)
    assert observer.next_ask(END, 5) == FetchAsk(to=TWO, epoch=3, end=END)
    observer.on_failure(10)
    assert observer.next_ask(END, 15) == 5
    assert observer.next_ask(END, 20) == FetchAsk(to=ONE, epoch=3, end=END)


def test_any_voter_tells_of_the_next_leader(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    observer.on_failure(0)
    observer.next_ask(END, 0)
    effects = observer.on_fetched(fetched(ErrorCode.FENCED_LEADER_EPOCH, NEXT, TWO), 0)
    assert effects == [KeepLeader(NEXT)]
    assert observer.next_ask(END, 0) == FetchAsk(to=TWO, epoch=4, end=END)


def test_records_of_an_epoch_that_was_not_asked_for_are_not_taken(
    observer: QuorumObserver,
) -> None:
    observer.next_ask(END, 0)
    answer = fetched(leader=NEXT, address=TWO, records=b"batches")
    assert observer.on_fetched(answer, 0) == [KeepLeader(NEXT)]


def test_epoch_whose_leader_is_not_known_yet_is_kept(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    nobody = LeaderAndEpoch(NO_LEADER, 4)
    effects = observer.on_fetched(fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, nobody, None), 0)
    assert effects == [KeepLeader(nobody)]
    observer.next_ask(END, 0)
    assert observer.on_fetched(fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, nobody, None), 0) == []
    observer.next_ask(END, 0)
    assert observer.on_fetched(fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER, NEXT, TWO), 0) == [
        KeepLeader(NEXT)
    ]


@pytest.mark.parametrize(
    ("error", "leader"),
    [
        (ErrorCode.NONE, LeaderAndEpoch(2, 2)),
        (ErrorCode.FENCED_LEADER_EPOCH, LeaderAndEpoch(2, 2)),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, LeaderAndEpoch(2, 2)),
        (ErrorCode.BROKER_NOT_AVAILABLE, LEADER),
        (ErrorCode.UNKNOWN_SERVER_ERROR, LeaderAndEpoch(NO_LEADER, -1)),
    ],
)
def test_answer_of_no_use_changes_nothing(
    observer: QuorumObserver, error: ErrorCode, leader: LeaderAndEpoch
) -> None:
    observer.next_ask(END, 0)
    assert observer.on_fetched(fetched(error, leader, TWO, records=b"batches"), 0) == []
    assert observer.leader == LEADER
    assert observer.next_ask(END, 0) == FetchAsk(to=TWO, epoch=3, end=END)


def test_epoch_of_two_leaders_is_refused(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    with pytest.raises(CorruptError, match="one:9093 names 2 as the leader of epoch 3"):
        observer.on_fetched(fetched(leader=LeaderAndEpoch(2, 3)), 0)


def test_log_that_diverges_is_truncated_but_not_below_what_is_committed(
    observer: QuorumObserver,
) -> None:
    observer.next_ask(END, 0)
    at = OffsetAndEpoch(8, 2)
    assert observer.on_fetched(fetched(diverging=at), 0) == [TruncateTo(at)]
    observer.next_ask(END, 0)
    with pytest.raises(CorruptError, match="those below 8 are committed"):
        observer.on_fetched(fetched(diverging=OffsetAndEpoch(7, 2)), 0)


def test_snapshot_is_fetched_in_parts(observer: QuorumObserver) -> None:
    observer.next_ask(EMPTY, 0)
    assert observer.on_fetched(fetched(snapshot_id=SNAPSHOT), 0) == [BeginSnapshot(SNAPSHOT)]
    assert observer.next_ask(EMPTY, 0) == SnapshotAsk(
        to=ONE, epoch=3, snapshot_id=SNAPSHOT, position=0
    )
    assert observer.on_snapshot_part(part(b"abc"), 0) == [AppendSnapshot(b"abc")]
    assert observer.next_ask(EMPTY, 0) == SnapshotAsk(
        to=ONE, epoch=3, snapshot_id=SNAPSHOT, position=3
    )
    assert observer.on_snapshot_part(part(b"de", position=3), 0) == [
        AppendSnapshot(b"de"),
        FinishSnapshot(SNAPSHOT),
        MoveHighWatermark(100),
    ]
    assert isinstance(observer.next_ask(EMPTY, 0), FetchAsk)


def test_part_that_was_not_asked_for_is_refused(observer: QuorumObserver) -> None:
    observer.next_ask(EMPTY, 0)
    observer.on_fetched(fetched(snapshot_id=SNAPSHOT), 0)
    observer.next_ask(EMPTY, 0)
    with pytest.raises(CorruptError, match="sent byte 3 of snapshot"):
        observer.on_snapshot_part(part(b"de", position=3), 0)


@pytest.mark.parametrize("ends", ["not found", "refused", "another leader"])
def test_snapshot_that_cannot_be_had_is_dropped(observer: QuorumObserver, ends: str) -> None:
    observer.next_ask(EMPTY, 0)
    observer.on_fetched(fetched(snapshot_id=SNAPSHOT), 0)
    observer.next_ask(EMPTY, 0)
    if ends == "refused":
        assert observer.on_snapshot_refused(0) == [DropSnapshot()]
    elif ends == "not found":
        lost = SnapshotAnswer(error=ErrorCode.SNAPSHOT_NOT_FOUND, leader=LEADER)
        assert observer.on_snapshot_part(lost, 0) == [DropSnapshot()]
    else:
        other = SnapshotAnswer(error=ErrorCode.FENCED_LEADER_EPOCH, leader=NEXT, leader_address=TWO)
        assert observer.on_snapshot_part(other, 0) == [DropSnapshot(), KeepLeader(NEXT)]
    assert isinstance(observer.next_ask(EMPTY, 0), FetchAsk)


def test_one_request_is_in_flight_at_a_time(observer: QuorumObserver) -> None:
    observer.next_ask(END, 0)
    with pytest.raises(ValueError, match="is in flight"):
        observer.next_ask(END, 0)


# ---- with a log, beside a model of the quorum


def check_random_quorums(seeds: range) -> Counter[str]:
    done: Counter[str] = Counter()
    for seed in seeds:
        done.update(run_random_quorum(seed, 150).done)
    return done


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(range(SEEDS), id="some"),
        pytest.param(range(SEEDS, SEEDS_NIGHTLY), id="all", marks=pytest.mark.nightly),
    ],
)
def test_what_a_random_quorum_commits_is_published_and_nothing_else(seeds: range) -> None:
    done = check_random_quorums(seeds)
    effects = (AppendRecords, TruncateTo, FinishSnapshot, DropSnapshot, KeepLeader)
    assert all(done[each.__name__] for each in effects), done
    assert done[FITTED]
    assert done[WAITED]
