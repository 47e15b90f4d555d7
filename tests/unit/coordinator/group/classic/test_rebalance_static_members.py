"""Static members keep their place while they are away (KIP-345)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import JoinAnswer, LeavingMember, Protocol
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import StorageError
from support.groups_under_test import GroupBroker, GroupRun, codes

DELAY_MS = 3_000
BOTH = (Protocol("range", b""), Protocol("sticky", b""))


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path)


@pytest.fixture
def run(broker: GroupBroker) -> GroupRun:
    return GroupRun(broker)


def stable(run: GroupRun, *instances: str) -> dict[str, JoinAnswer]:
    """A stable group of static members, by instance id."""
    joins = {each: run.join(group_instance_id=each, protocols=BOTH) for each in instances}
    run.timers.advance(2 * DELAY_MS)
    answers = {instance: answer for instance, (answer,) in joins.items()}
    leader = next(iter(answers.values())).leader
    all_ids = {answer.member_id: answer.member_id.encode() for answer in answers.values()}
    run.sync(leader, 1, all_ids)
    for member_id in all_ids:
        run.sync(member_id, 1)
    assert run.state() is GroupState.STABLE
    return answers


def follower_of(answers: dict[str, JoinAnswer]) -> str:
    return next(name for name, each in answers.items() if each.member_id != each.leader)


def leader_of(answers: dict[str, JoinAnswer]) -> str:
    return next(name for name, each in answers.items() if each.member_id == each.leader)


def test_static_member_joins_without_coming_back_with_an_id(run: GroupRun) -> None:
    assert run.join(group_instance_id="a") == []
    run.timers.advance(DELAY_MS)
    assert run.state() is GroupState.COMPLETING_REBALANCE


def test_id_of_a_static_member_begins_with_its_instance_id(run: GroupRun) -> None:
    answers = stable(run, "a")
    assert answers["a"].member_id.startswith("a-")


def test_restarted_follower_gets_a_new_id_and_disturbs_nobody(run: GroupRun) -> None:
    answers = stable(run, "a", "b")
    name = follower_of(answers)
    (answer,) = run.join(group_instance_id=name, protocols=BOTH)
    assert answer.error_code == ErrorCode.NONE
    assert answer.generation_id == 1
    assert answer.member_id != answers[name].member_id
    assert answer.leader == answers[name].leader
    assert not answer.skip_assignment
    (sync,) = run.sync(answer.member_id, 1, group_instance_id=name)
    assert sync.assignment == answers[name].member_id.encode()
    assert run.state() is GroupState.STABLE


def test_restarted_leader_is_told_to_skip_the_assignment(run: GroupRun) -> None:
    answers = stable(run, "a", "b")
    name = leader_of(answers)
    (answer,) = run.join(group_instance_id=name, protocols=BOTH)
    assert answer.skip_assignment
    assert answer.leader == answer.member_id
    assert len(answer.members) == 2


def test_restarted_leader_of_an_old_client_is_told_of_the_leader_it_was(run: GroupRun) -> None:
    answers = stable(run, "a", "b")
    name = leader_of(answers)
    (answer,) = run.join(group_instance_id=name, protocols=BOTH, may_skip_assignment=False)
    assert not answer.skip_assignment
    assert answer.leader == answers[name].member_id
    assert answer.members == ()


def test_id_that_was_replaced_is_fenced(run: GroupRun) -> None:
    answers = stable(run, "a", "b")
    name = follower_of(answers)
    old = answers[name].member_id
    (answer,) = run.join(group_instance_id=name, protocols=BOTH)
    assert run.heartbeat(old, 1, group_instance_id=name) == ErrorCode.FENCED_INSTANCE_ID
    assert run.heartbeat(answer.member_id, 1, group_instance_id=name) == ErrorCode.NONE
    assert codes(run.sync(old, 1, group_instance_id=name)) == [ErrorCode.FENCED_INSTANCE_ID]
    assert codes(run.join(old, group_instance_id=name)) == [ErrorCode.FENCED_INSTANCE_ID]
    assert run.commit(1, member_id=old, group_instance_id=name, generation_id=1) == (
        ErrorCode.FENCED_INSTANCE_ID
    )
    (left,) = run.leave(LeavingMember(old, name))
    assert left.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_join_that_waits_under_the_old_id_is_fenced(run: GroupRun) -> None:
    answers = stable(run, "a", "b", "c")
    leader, name = leader_of(answers), follower_of(answers)
    run.join(answers[leader].member_id, group_instance_id=leader, protocols=BOTH)
    waiting = run.join(answers[name].member_id, group_instance_id=name, protocols=BOTH)
    assert waiting == []
    again = run.join(group_instance_id=name, protocols=BOTH)
    assert codes(waiting) == [ErrorCode.FENCED_INSTANCE_ID]
    assert waiting[0].member_id == answers[name].member_id
    assert again == [], "the new id waits in its place"


def test_sync_that_waits_under_the_old_id_is_fenced(run: GroupRun) -> None:
    joins = {each: run.join(group_instance_id=each, protocols=BOTH) for each in "ab"}
    run.timers.advance(2 * DELAY_MS)
    answers = {name: answer for name, (answer,) in joins.items()}
    name = follower_of(answers)
    waiting = run.sync(answers[name].member_id, 1, group_instance_id=name)
    run.join(group_instance_id=name, protocols=BOTH)
    assert codes(waiting) == [ErrorCode.FENCED_INSTANCE_ID]
    assert run.state() is GroupState.PREPARING_REBALANCE


def test_static_member_that_is_away_keeps_its_place_in_a_rebalance(run: GroupRun) -> None:
    answers = stable(run, "a", "b")
    leader, away = leader_of(answers), follower_of(answers)
    back = run.join(answers[leader].member_id, group_instance_id=leader, protocols=BOTH)
    for _ in range(12):
        run.heartbeat(answers[away].member_id, 1, group_instance_id=away)
        run.timers.advance(5_000)
    assert len(back[0].members) == 2


def test_rebalance_waits_again_when_only_static_members_are_left(run: GroupRun) -> None:
    answers = stable(run, "a", "b")
    newcomer = run.member_id(protocols=BOTH)
    run.join(newcomer, protocols=BOTH)
    run.leave(LeavingMember(newcomer))
    for _ in range(13):
        for name, answer in answers.items():
            run.heartbeat(answer.member_id, 1, group_instance_id=name)
        run.timers.advance(5_000)
    assert run.state() is GroupState.PREPARING_REBALANCE
    joins = [
        run.join(answer.member_id, group_instance_id=name, protocols=BOTH)
        for name, answer in answers.items()
    ]
    assert [codes(each) for each in joins] == [[0], [0]]


def test_static_member_whose_session_ends_is_removed(run: GroupRun) -> None:
    answers = stable(run, "a", "b")
    leader = leader_of(answers)
    run.timers.advance(9_999)
    run.heartbeat(answers[leader].member_id, 1, group_instance_id=leader)
    run.timers.advance(1)
    assert run.heartbeat(answers[leader].member_id, 1, group_instance_id=leader) == (
        ErrorCode.REBALANCE_IN_PROGRESS
    )
    group = run.groups.describe("g", ClassicGroup)
    assert group.static_member_id(follower_of(answers)) is None


def test_administrator_removes_a_static_member_by_its_instance_id_alone(run: GroupRun) -> None:
    answers = stable(run, "a", "b")
    gone, missing = run.leave(LeavingMember("", follower_of(answers)), LeavingMember("", "nobody"))
    assert gone.error_code == ErrorCode.NONE
    assert missing.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert run.state() is GroupState.PREPARING_REBALANCE


def test_restarted_member_that_changes_the_protocol_begins_a_rebalance(run: GroupRun) -> None:
    answers = stable(run, "a")
    other = "sticky" if answers["a"].protocol_name == "range" else "range"
    rejoined = run.join(group_instance_id="a", protocols=(Protocol(other, b""),))
    assert rejoined[0].generation_id == 2
    assert rejoined[0].protocol_name == other


def test_restart_that_cannot_be_written_leaves_the_old_id_valid(
    run: GroupRun, broker: GroupBroker
) -> None:
    answers = stable(run, "a", "b")
    name = follower_of(answers)
    broker.fails_with = StorageError("disk")
    (answer,) = run.join(group_instance_id=name, protocols=BOTH)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
    assert answer.member_id == ""
    old = answers[name].member_id
    assert run.heartbeat(old, 1, group_instance_id=name) == ErrorCode.NONE


def test_static_members_are_known_after_a_restart_of_the_broker(run: GroupRun) -> None:
    answers = stable(run, "a", "b")
    name = follower_of(answers)
    again = run.restarted()
    assert again.state() is GroupState.STABLE
    old = answers[name].member_id
    assert again.heartbeat(old, 1, group_instance_id=name) == ErrorCode.NONE
    (sync,) = again.sync(old, 1, group_instance_id=name)
    assert sync.assignment == old.encode()
