"""Groups whose records other replicas have to get: answers wait, readers see what is committed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.group.classic.group import GroupState
from cordwood.coordinator.group.classic.member import LeaveReply, LeavingMember
from cordwood.coordinator.group.offset_requests import (
    CommitPartition,
    CommitRequest,
    CommitTopic,
    FetchedTopic,
    FetchTopic,
)
from cordwood.coordinator.group.offsets import NO_OFFSET
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.model.audit import AUDIT_LOGGER
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import StorageError
from cordwood.model.pauses import running
from support.groups_under_test import REQUESTER, GroupBroker, GroupRun, assigned, codes

T0 = FetchTopic("t", (0,))
DELAY_MS = 3_000
COMMIT_TIMEOUT_MS = 5_000


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path)


@pytest.fixture
def run(broker: GroupBroker) -> GroupRun:
    return GroupRun(broker)


def commit(run: GroupRun, offset: int, **fields: Any) -> list[int]:
    """Asks to commit an offset; the list is empty while the answer is waited for."""
    answers: list[int] = []
    topic = CommitTopic("t", (CommitPartition(0, offset),))
    run.groups.commit(CommitRequest(group_id="g", topics=(topic,), **fields), answers.append)
    return answers


def offsets_of(answers: list[list[FetchedTopic] | int]) -> list[int]:
    """The offsets of partition 0 in answers that are there."""
    found = []
    for answer in answers:
        assert isinstance(answer, list), answer
        found.append(answer[0].partitions[0].offset)
    return found


def test_offset_is_seen_and_answered_when_it_is_committed(
    run: GroupRun, broker: GroupBroker
) -> None:
    run.commit(1)
    broker.is_replicated = True
    answers = commit(run, 2)
    assert answers == []
    assert run.offset() == 1
    run.commit_log()
    assert answers == [ErrorCode.NONE]
    assert run.offset() == 2


def test_a_stable_offset_is_answered_when_all_that_was_written_before_is_committed(
    run: GroupRun, broker: GroupBroker
) -> None:
    run.commit(1)
    broker.is_replicated = True
    commit(run, 2)
    stable = run.fetch_stable([T0])
    assert (run.offset(), stable) == (1, [])
    run.commit_log()
    assert offsets_of(stable) == [2]
    waiting = run.fetch_stable([T0], group="other")
    assert offsets_of(waiting) == [NO_OFFSET], "nothing was written since"
    commit(run, 3)
    late = run.fetch_stable([T0])
    run.timers.advance(COMMIT_TIMEOUT_MS)
    assert late == [ErrorCode.NOT_COORDINATOR], "older consumers retry this one"


def end_transaction(run: GroupRun, broker: GroupBroker, *, is_commit: bool) -> None:
    """Writes the marker of producer 7."""
    marker = build_end_txn_marker(
        offset=0,
        timestamp=broker.clock.now_ms(),
        producer_id=7,
        producer_epoch=1,
        control_type=ControlType.COMMIT if is_commit else ControlType.ABORT,
        coordinator_epoch=0,
    )
    run.groups.runtime.complete_transaction(0, marker, 7, commit=is_commit, transaction_version=2)


@pytest.mark.parametrize("is_commit", [True, False])
def test_after_a_transaction_is_decided_the_offset_before_is_not_answered_as_stable(
    run: GroupRun, broker: GroupBroker, is_commit: bool
) -> None:
    run.commit(1)
    assert run.commit(2, producer=TransactionalProducer(7, 0, None)) == ErrorCode.NONE
    (unstable,) = run.fetch_stable([T0])
    assert isinstance(unstable, list)
    assert unstable[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    broker.is_replicated = True
    end_transaction(run, broker, is_commit=is_commit)
    stable = run.fetch_stable([T0])
    assert stable == [], "the marker may still be lost"
    run.commit_log()
    assert offsets_of(stable) == [2 if is_commit else 1]


class Pauses:
    """Work in slices: counts its pauses, and does something else in the first one."""

    def __init__(self, first: Callable[[], object] = lambda: None) -> None:
        self.count = 0
        self._first = first

    def pause(self) -> None:
        self.count += 1
        if self.count == 1:
            self._first()

    def leave(self) -> None:
        pass

    def come_back(self) -> None:
        pass


MANY = range(64)


def commit_many(run: GroupRun, offset: int, **fields: Any) -> None:
    answers: list[int] = []
    topic = CommitTopic("t", tuple(CommitPartition(number, offset) for number in MANY))
    run.groups.commit(CommitRequest(group_id="g", topics=(topic,), **fields), answers.append)
    assert answers == [ErrorCode.NONE]


def test_others_may_work_while_stable_offsets_are_read(run: GroupRun) -> None:
    commit_many(run, 1)
    work = Pauses()
    with running(work):
        (found,) = run.fetch_stable([FetchTopic("t", tuple(MANY))])
    assert isinstance(found, list)
    assert {each.offset for each in found[0].partitions} == {1}
    assert work.count >= 3


def test_no_offset_before_a_transaction_is_stable_though_it_is_decided_during_the_reading(
    run: GroupRun, broker: GroupBroker
) -> None:
    commit_many(run, 1)
    commit_many(run, 2, producer=TransactionalProducer(7, 0, None))
    broker.is_replicated = True
    with running(Pauses(lambda: end_transaction(run, broker, is_commit=True))):
        (found,) = run.fetch_stable([FetchTopic("t", tuple(MANY))])
    assert isinstance(found, list)
    answers = {(each.offset, each.error_code) for each in found[0].partitions}
    assert answers == {(NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)}


def test_commit_that_is_not_replicated_in_time_is_refused(
    run: GroupRun, broker: GroupBroker
) -> None:
    broker.is_replicated = True
    answers = commit(run, 2)
    run.timers.advance(COMMIT_TIMEOUT_MS)
    assert answers == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_assignments_reach_no_member_before_they_are_committed(
    run: GroupRun, broker: GroupBroker
) -> None:
    ids = [run.member_id() for _ in range(2)]
    joins = [run.join(member_id) for member_id in ids]
    run.timers.advance(2 * DELAY_MS)
    leader = joins[0][0].leader
    follower = next(each for each in ids if each != leader)
    broker.is_replicated = True
    waiting = run.sync(follower, 1)
    brought = run.sync(leader, 1, {each: assigned(each) for each in ids})
    again = run.sync(follower, 1)
    assert waiting == brought == again == []
    assert run.state() is GroupState.COMPLETING_REBALANCE, "as readers see it"
    run.commit_log()
    assert codes(waiting) == codes(brought) == codes(again) == [ErrorCode.NONE]
    assert waiting[0].assignment == again[0].assignment == assigned(follower)
    assert run.state() is GroupState.STABLE


def test_failed_append_leaves_what_is_not_committed_yet(run: GroupRun, broker: GroupBroker) -> None:
    broker.is_replicated = True
    first = commit(run, 1)
    broker.fails_with = StorageError("disk")
    assert commit(run, 2) == [ErrorCode.NOT_COORDINATOR]
    broker.fails_with = None
    assert first == []
    run.commit_log()
    assert first == [ErrorCode.NONE]
    assert run.offset() == 1


def test_resigned_coordinator_refuses_what_is_not_committed(
    run: GroupRun, broker: GroupBroker
) -> None:
    broker.is_replicated = True
    answers = commit(run, 1)
    left: list[LeaveReply] = []
    run.groups.leave("g", [LeavingMember("nobody")], left.append)
    assert answers == []
    assert left == []
    run.groups.runtime.partitions.resign(0)
    assert answers == [ErrorCode.NOT_COORDINATOR]
    assert left == [LeaveReply(ErrorCode.NOT_COORDINATOR)]
    assert run.timers.pending == 0


def test_deleted_group_is_listed_until_its_tombstones_are_committed(
    run: GroupRun, broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", AUDIT_LOGGER)
    run.commit(1)
    broker.is_replicated = True
    answers: list[int] = []
    run.groups.delete_group("g", answers.append, by=REQUESTER)
    assert answers == []
    assert AUDIT_LOGGER not in [record.name for record in caplog.records]
    assert [group.group_id for group in run.groups.list_groups()] == ["g"]
    assert run.offset() == 1
    run.commit_log()
    assert answers == [ErrorCode.NONE]
    assert run.groups.list_groups() == []
    assert run.offset() == -1
    (noted,) = [record for record in caplog.records if record.name == AUDIT_LOGGER]
    assert "[GroupId g] Deleted the group, with the committed offsets of t-0 at 1" in noted.message
