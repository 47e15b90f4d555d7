"""A classic group from one generation to the next, as in Kafka's GroupMetadataManagerTest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import Client, LeavingMember, Protocol
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import StorageError, UnknownTopicOrPartitionError
from support.groups_under_test import RANGE, GroupBroker, GroupRun, assigned, codes
from support.interruption import Interruption

DELAY_MS = 3_000
REBALANCE_MS = 60_000
SESSION_MS = 10_000


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path)


@pytest.fixture
def run(broker: GroupBroker) -> GroupRun:
    return GroupRun(broker)


def test_new_member_is_given_an_id_and_asked_to_come_back(run: GroupRun) -> None:
    (answer,) = run.join()
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert answer.member_id == "client-00000000-0000-0000-0000-000000000001"
    assert run.state() is GroupState.EMPTY


def test_new_member_of_an_old_client_joins_at_once(run: GroupRun) -> None:
    answers = run.join(needs_member_id=False)
    assert answers == []
    run.timers.advance(DELAY_MS)
    assert codes(answers) == [ErrorCode.NONE]
    assert answers[0].leader == answers[0].member_id


def test_first_generation_begins_after_the_initial_delay_and_no_earlier(run: GroupRun) -> None:
    answers = run.join(run.member_id())
    run.timers.advance(DELAY_MS - 1)
    assert answers == []
    assert run.state() is GroupState.PREPARING_REBALANCE
    run.timers.advance(1)
    assert answers[0].generation_id == 1
    assert answers[0].protocol_type == "consumer"
    assert answers[0].protocol_name == "range"
    assert run.state() is GroupState.COMPLETING_REBALANCE


def test_initial_delay_begins_again_when_another_member_joins(run: GroupRun) -> None:
    first = run.join(run.member_id())
    run.timers.advance(DELAY_MS - 1)
    second = run.join(run.member_id())
    run.timers.advance(1)
    assert first == second == []
    run.timers.advance(DELAY_MS)
    assert first[0].generation_id == second[0].generation_id == 1


def test_initial_delay_never_exceeds_the_rebalance_timeout(run: GroupRun) -> None:
    timeouts: dict[str, Any] = {"rebalance_timeout_ms": 2 * DELAY_MS}
    first = run.join(run.member_id(), **timeouts)
    for _ in range(2):
        run.timers.advance(DELAY_MS - 1)
        run.join(run.member_id(), **timeouts)
        run.timers.advance(1)
    assert codes(first) == [ErrorCode.NONE]


def test_leader_alone_is_told_of_all_members_and_what_they_say(run: GroupRun) -> None:
    ids = [run.member_id() for _ in range(2)]
    answers = [
        run.join(member_id, protocols=(Protocol("range", member_id.encode()),)) for member_id in ids
    ]
    run.timers.advance(2 * DELAY_MS)
    leader = answers[0][0].leader
    for member_id, (answer,) in zip(ids, answers, strict=True):
        told = {member.member_id: member.metadata for member in answer.members}
        expected = {each: each.encode() for each in ids} if member_id == leader else {}
        assert told == expected


def test_assignments_reach_members_once_the_leader_has_brought_them(run: GroupRun) -> None:
    ids = [run.member_id() for _ in range(2)]
    joins = [run.join(member_id) for member_id in ids]
    run.timers.advance(2 * DELAY_MS)
    leader = joins[0][0].leader
    follower = next(each for each in ids if each != leader)
    waiting = run.sync(follower, 1)
    assert waiting == []
    (own,) = run.sync(leader, 1, {leader: b"l", follower: b"f"})
    assert (own.assignment, waiting[0].assignment) == (b"l", b"f")
    assert own.protocol_type == "consumer"
    assert own.protocol_name == "range"
    assert run.state() is GroupState.STABLE


def test_member_that_the_leader_forgets_is_assigned_nothing(run: GroupRun) -> None:
    ids = [run.member_id() for _ in range(2)]
    joins = [run.join(member_id) for member_id in ids]
    run.timers.advance(2 * DELAY_MS)
    leader = joins[0][0].leader
    follower = next(each for each in ids if each != leader)
    waiting = run.sync(follower, 1)
    run.sync(leader, 1, {leader: b"l"})
    assert codes(waiting) == [ErrorCode.NONE]
    assert waiting[0].assignment == b""


def test_assignment_can_be_asked_for_again(run: GroupRun) -> None:
    (leader, follower) = run.stable(2)
    (again,) = run.sync(follower, 1)
    assert again.assignment == assigned(follower)
    assert run.sync(leader, 1)[0].assignment == assigned(leader)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"generation_id": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"group": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"group_instance_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_sync_that_does_not_fit_the_group_is_refused(
    run: GroupRun, fields: dict[str, Any], code: int
) -> None:
    (leader,) = run.stable()
    question = {"member_id": leader, "generation_id": 1, **fields}
    assert codes(run.sync(**question)) == [code]


def test_protocol_that_most_members_prefer_is_chosen_of_those_all_speak(run: GroupRun) -> None:
    range_first = (Protocol("range", b""), Protocol("sticky", b""), Protocol("own", b""))
    sticky_first = (Protocol("sticky", b""), Protocol("range", b""))
    answers = [
        run.join(run.member_id(protocols=protocols), protocols=protocols)
        for protocols in (range_first, sticky_first, sticky_first)
    ]
    run.timers.advance(2 * DELAY_MS)
    assert {answer.protocol_name for (answer,) in answers} == {"sticky"}


@pytest.mark.parametrize(
    "fields",
    [{"protocol_type": "connect"}, {"protocols": (Protocol("sticky", b""),)}, {"protocols": ()}],
)
def test_member_that_speaks_another_protocol_is_refused(
    run: GroupRun, fields: dict[str, Any]
) -> None:
    run.stable()
    assert codes(run.join(**fields)) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]


def test_first_member_without_a_protocol_is_refused(run: GroupRun) -> None:
    assert codes(run.join(protocols=())) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]
    assert codes(run.join(protocol_type="")) == [ErrorCode.INCONSISTENT_GROUP_PROTOCOL]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"group": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_join_that_cannot_be_is_refused(run: GroupRun, fields: dict[str, Any], code: int) -> None:
    assert codes(run.join(**fields)) == [code]


def test_third_member_has_all_rejoin(run: GroupRun) -> None:
    ids = run.stable(2)
    newcomer = run.join(run.member_id())
    assert run.state() is GroupState.PREPARING_REBALANCE
    assert [run.heartbeat(each, 1) for each in ids] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    rejoined = [run.join(each) for each in ids]
    assert newcomer[0].generation_id == 2
    assert [answer.generation_id for (answer,) in rejoined] == [2, 2]
    assert newcomer[0].leader == ids[0], "the leader stays"


def test_member_that_does_not_rejoin_in_time_is_left_behind(run: GroupRun) -> None:
    ids = run.stable(2)
    newcomer = run.join(run.member_id())
    back = run.join(ids[0])
    for _ in range(REBALANCE_MS // 5_000):
        run.heartbeat(ids[1], 1)
        run.timers.advance(5_000)
    assert codes(newcomer) == codes(back) == [ErrorCode.NONE]
    assert codes(run.join(ids[1])) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_other_member_leads_when_the_leader_does_not_rejoin(run: GroupRun) -> None:
    (leader, follower) = run.stable(2)
    back = run.join(follower, protocols=(Protocol("range", b"changed"),))
    for _ in range(REBALANCE_MS // 5_000):
        run.heartbeat(leader, 1)
        run.timers.advance(5_000)
    assert back[0].leader == follower


def test_member_that_sends_no_heartbeat_is_removed_and_the_others_rejoin(run: GroupRun) -> None:
    (leader, follower) = run.stable(2)
    run.timers.advance(SESSION_MS - 1)
    assert run.heartbeat(leader, 1) == ErrorCode.NONE
    run.timers.advance(1)
    assert run.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert run.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_last_member_that_is_lost_leaves_the_group_empty(run: GroupRun) -> None:
    run.stable()
    run.timers.advance(SESSION_MS)
    assert run.state() is GroupState.EMPTY
    group = run.groups.describe("g", ClassicGroup)
    assert (group.generation_id, group.protocol_name, group.leader_id) == (2, None, None)
    assert group.protocol_type == "consumer"


def test_member_that_waits_for_others_to_join_needs_no_heartbeat(run: GroupRun) -> None:
    ids = run.stable(2)
    waiting = run.join(ids[0])
    for _ in range(4):
        run.heartbeat(ids[1], 1)
        run.timers.advance(5_000)
    assert waiting == []
    run.join(ids[1])
    assert codes(waiting) == [ErrorCode.NONE]


def test_member_that_waits_for_its_assignment_needs_no_heartbeat(run: GroupRun) -> None:
    ids = [run.member_id() for _ in range(2)]
    joins = [run.join(each) for each in ids]
    run.timers.advance(2 * DELAY_MS)
    leader = joins[0][0].leader
    follower = next(each for each in ids if each != leader)
    waiting = run.sync(follower, 1)
    for _ in range(3):
        run.timers.advance(SESSION_MS - 1)
        run.heartbeat(leader, 1)
    assert waiting == []
    run.sync(leader, 1, {follower: b"f"})
    assert waiting[0].assignment == b"f"
    assert run.heartbeat(follower, 1) == ErrorCode.NONE


def test_member_that_was_given_an_id_and_does_not_come_back_is_forgotten(run: GroupRun) -> None:
    member_id = run.member_id()
    run.timers.advance(SESSION_MS)
    assert codes(run.join(member_id)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_rebalance_waits_for_one_that_was_given_an_id(run: GroupRun) -> None:
    (leader,) = run.stable()
    given = run.member_id()
    run.leave(LeavingMember("nobody"))
    back = run.join(leader)
    assert back == []
    assert codes(run.join(given)) == codes(back) == [ErrorCode.NONE]


def test_rebalance_goes_on_without_one_that_was_given_an_id_and_leaves(run: GroupRun) -> None:
    (leader,) = run.stable()
    given = run.member_id()
    back = run.join(leader)
    assert back == []
    (answer,) = run.leave(LeavingMember(given))
    assert answer.error_code == ErrorCode.NONE
    assert codes(back) == [ErrorCode.NONE]


def test_members_that_never_ask_for_their_assignment_are_removed(run: GroupRun) -> None:
    ids = [run.member_id() for _ in range(2)]
    joins = [run.join(each) for each in ids]
    run.timers.advance(2 * DELAY_MS)
    leader = joins[0][0].leader
    follower = next(each for each in ids if each != leader)
    waiting = run.sync(follower, 1)
    for _ in range(REBALANCE_MS // 5_000):
        run.heartbeat(leader, 1)
        run.timers.advance(5_000)
    assert codes(waiting) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert run.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert run.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_follower_that_rejoins_unchanged_is_told_of_the_present_generation(run: GroupRun) -> None:
    (_, follower) = run.stable(2)
    (answer,) = run.join(follower)
    assert answer.generation_id == 1
    assert answer.members == ()
    assert run.state() is GroupState.STABLE


def test_leader_that_rejoins_begins_a_rebalance(run: GroupRun) -> None:
    (leader, _) = run.stable(2)
    assert run.join(leader) == []
    assert run.state() is GroupState.PREPARING_REBALANCE


def test_join_that_is_repeated_before_the_assignments_is_answered_again(run: GroupRun) -> None:
    member_id = run.member_id()
    run.join(member_id)
    run.timers.advance(DELAY_MS)
    (again,) = run.join(member_id)
    assert again.generation_id == 1
    assert [each.member_id for each in again.members] == [member_id]


def test_changed_member_during_assignment_sends_those_who_wait_back(run: GroupRun) -> None:
    ids = [run.member_id() for _ in range(2)]
    joins = [run.join(each) for each in ids]
    run.timers.advance(2 * DELAY_MS)
    leader = joins[0][0].leader
    follower = next(each for each in ids if each != leader)
    waiting = run.sync(follower, 1)
    run.join(leader, protocols=(Protocol("range", b"changed"),))
    assert codes(waiting) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert run.state() is GroupState.PREPARING_REBALANCE


def test_leaving_member_has_the_others_rejoin(run: GroupRun) -> None:
    (leader, follower) = run.stable(2)
    (answer,) = run.leave(LeavingMember(follower))
    assert answer.error_code == ErrorCode.NONE
    assert run.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert run.heartbeat(follower, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_last_member_that_leaves_empties_the_group_at_once(run: GroupRun) -> None:
    (leader,) = run.stable()
    run.leave(LeavingMember(leader))
    assert run.state() is GroupState.EMPTY
    assert run.timers.pending == 0


def test_leaving_is_answered_for_each_member(run: GroupRun) -> None:
    (leader,) = run.stable()
    answers = run.leave(LeavingMember("nobody"), LeavingMember(leader))
    assert [answer.error_code for answer in answers] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    (unknown,) = run.leave(LeavingMember(leader), group="no such group")
    assert unknown.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeat_of_another_generation_or_group_is_refused(run: GroupRun) -> None:
    (leader,) = run.stable()
    assert run.heartbeat(leader, 0) == ErrorCode.ILLEGAL_GENERATION
    assert run.heartbeat("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert run.heartbeat(leader, 1, group="other") == ErrorCode.UNKNOWN_MEMBER_ID
    assert run.heartbeat(leader, 1, group="") == ErrorCode.INVALID_GROUP_ID
    assert run.heartbeat(leader, 1) == ErrorCode.NONE


def test_group_takes_no_more_members_than_group_max_size(broker: GroupBroker) -> None:
    run = GroupRun(broker, max_size=2)
    ids = run.stable(2)
    assert codes(run.join()) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    assert run.join(ids[0]) == [], "who is in may rejoin"
    assert codes(run.join(run.member_id())) == []
    assert codes(run.join(ids[1])) == [ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_loaded_group_over_its_size_rebalances_and_keeps_the_fastest(broker: GroupBroker) -> None:
    ids = GroupRun(broker).stable(3)
    broker.close()
    run = GroupRun(broker, max_size=2)
    assert run.state() is GroupState.PREPARING_REBALANCE
    waiting = [run.join(each) for each in ids]
    assert codes(waiting[2]) == [ErrorCode.GROUP_MAX_SIZE_REACHED]
    run.timers.advance(REBALANCE_MS)
    assert codes(waiting[0]) == codes(waiting[1]) == [ErrorCode.NONE]


def test_unwritten_assignment_sends_members_back_to_rejoin(
    run: GroupRun, broker: GroupBroker
) -> None:
    member_id = run.member_id()
    run.join(member_id)
    run.timers.advance(DELAY_MS)
    broker.fails_with = StorageError("disk")
    assert codes(run.sync(member_id, 1, {member_id: b"a"})) == [ErrorCode.NOT_COORDINATOR]
    assert run.state() is GroupState.PREPARING_REBALANCE
    broker.fails_with = None
    (answer,) = run.join(member_id)
    assert codes(run.sync(member_id, answer.generation_id, {member_id: b"a"})) == [0]


def test_new_group_that_cannot_be_written_refuses_its_first_member(
    run: GroupRun, broker: GroupBroker
) -> None:
    broker.fails_with = UnknownTopicOrPartitionError("gone")
    answers = run.join(needs_member_id=False)
    assert codes(answers) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_new_group_that_no_record_can_hold_is_refused_and_not_kept(
    run: GroupRun, broker: GroupBroker
) -> None:
    name = "g" * 40_000
    assert codes(run.join(group=name, needs_member_id=False)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert run.state(name) is None
    assert run.commit(1, topic=name) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert run.offset(name) == -1
    assert broker.records() == []
    assert run.timers.pending == 0


@pytest.mark.parametrize("instance", [None, "i" * 32_731], ids=["client id", "instance id"])
def test_member_whose_id_no_record_can_hold_is_refused_and_not_kept(
    run: GroupRun, instance: str | None
) -> None:
    client = Client("c" * 32_731, "/127.0.0.1")
    answers = run.join(group_instance_id=instance, client=client, needs_member_id=False)
    assert codes(answers) == [ErrorCode.UNKNOWN_SERVER_ERROR]
    group = run.groups.describe("g", ClassicGroup)
    assert len(group) == len(group.pending_joins) == run.timers.pending == 0


def test_assignment_that_no_record_can_hold_is_refused_and_the_group_goes_on(
    run: GroupRun, broker: GroupBroker
) -> None:
    (first,) = run.stable()
    broad = Client("client", "/" + "h" * 40_000)
    second = run.member_id(client=broad)
    waiting = [run.join(first), run.join(second, client=broad)]
    assert codes(waiting[0]) == codes(waiting[1]) == [ErrorCode.NONE]
    written = broker.records()
    syncs = [run.sync(second, 2), run.sync(first, 2, {first: b"a", second: b"b"})]
    assert [codes(each) for each in syncs] == [[ErrorCode.UNKNOWN_SERVER_ERROR]] * 2
    assert broker.records() == written
    assert run.state() is GroupState.PREPARING_REBALANCE
    again = run.join(first)
    run.timers.advance(SESSION_MS)  # the other does not come back
    assert codes(again) == [ErrorCode.NONE]
    assert codes(run.sync(first, 3, {first: b"a"})) == [ErrorCode.NONE]
    assert run.state() is GroupState.STABLE
    assert run.restarted().state() is GroupState.STABLE


def test_session_that_ends_in_a_group_that_cannot_be_written_leaves_it_empty(
    run: GroupRun, broker: GroupBroker
) -> None:
    run.stable()
    broker.fails_with = StorageError("disk")
    run.timers.advance(SESSION_MS)
    assert run.state() is GroupState.EMPTY
    assert run.timers.pending == 0


def test_member_that_names_a_protocol_twice_is_counted_once(run: GroupRun) -> None:
    twice = (Protocol("range", b"a"), Protocol("range", b"b"))
    answers = run.join(run.member_id(protocols=twice), protocols=twice)
    run.timers.advance(DELAY_MS)
    assert codes(answers) == [ErrorCode.NONE]
    assert answers[0].protocol_name == "range"
    other = run.join(run.member_id())
    assert run.state() is GroupState.PREPARING_REBALANCE
    assert codes(run.join(answers[0].member_id, protocols=twice)) == [ErrorCode.NONE]
    assert codes(other) == [ErrorCode.NONE]


def test_closed_coordinator_sends_those_who_wait_away(run: GroupRun) -> None:
    joining = run.join(run.member_id())
    run.groups.close()
    assert codes(joining) == [ErrorCode.NOT_COORDINATOR]
    assert run.timers.pending == 0


def test_member_of_an_old_client_that_never_comes_back_is_let_go(run: GroupRun) -> None:
    (leader,) = run.stable()
    given = run.join(needs_member_id=False)
    run.join(leader)
    assert codes(given) == [ErrorCode.NONE]
    lost = given[0].member_id
    run.timers.advance(SESSION_MS)
    assert run.heartbeat(lost, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_protocol_metadata_decides_whether_a_member_has_changed(run: GroupRun) -> None:
    (_, follower) = run.stable(2)
    assert codes(run.join(follower, protocols=RANGE)) == [ErrorCode.NONE]
    assert run.join(follower, protocols=(Protocol("range", b"new"),)) == []


def test_no_other_request_is_served_while_a_group_is_being_changed(run: GroupRun) -> None:
    ids = [run.member_id() for _ in range(2)]
    joins = [run.join(member_id) for member_id in ids]
    run.timers.advance(2 * DELAY_MS)
    leader = joins[0][0].leader
    other = next(each for each in ids if each != leader)
    leaving = Interruption(lambda: run.leave(LeavingMember(other)))
    answers = leaving.run(lambda: run.sync(leader, 1, {each: assigned(each) for each in ids}))
    assert codes(answers) == [ErrorCode.NONE]
    leaving.run(lambda: run.join(group="another"))
    assert leaving.count == 0
    assert run.state() is GroupState.STABLE
