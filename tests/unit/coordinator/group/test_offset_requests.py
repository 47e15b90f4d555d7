"""Commits, look-ups and deletions of offsets, as in Kafka's OffsetMetadataManagerTest."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.coordinator.group.classic.group import GroupState
from cordwood.coordinator.group.classic.member import LeavingMember, Protocol
from cordwood.coordinator.group.offset_requests import CommitPartition, CommitTopic
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import RecordTooLargeError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from support.groups_under_test import GroupBroker, GroupRun
from support.interruption import Interruption

DELAY_MS = 3_000
SUBSCRIBED_TO_T = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"  # version 0, ["t"], no user data


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path, topics={"t": 2, "u": 1})


@pytest.fixture
def run(broker: GroupBroker) -> GroupRun:
    return GroupRun(broker)


def test_committed_offset_is_found_and_another_partition_has_none(run: GroupRun) -> None:
    assert run.commit(42, metadata="m") == ErrorCode.NONE
    found = run.fetched()
    assert (found.offset, found.metadata, found.leader_epoch) == (42, "m", -1)
    assert run.offset(partition=1) == -1
    assert run.offset(group="other") == -1


def test_later_commit_takes_the_place_of_the_earlier_even_if_it_is_smaller(run: GroupRun) -> None:
    run.commit(42)
    run.commit(7)
    assert run.offset() == 7


def test_all_offsets_of_a_group_are_found_at_once(run: GroupRun) -> None:
    run.commit(1)
    run.commit(2, partition=1)
    run.commit(3, topic="u")
    found = run.groups.fetch("g", None)
    told = {(t.name, p.partition): p.offset for t in found for p in t.partitions}
    assert told == {("t", 0): 1, ("t", 1): 2, ("u", 0): 3}


def test_null_metadata_is_as_none(run: GroupRun) -> None:
    run.commit(1, metadata=None)
    assert run.fetched().metadata == ""


@pytest.mark.parametrize("metadata", ["x" * 4_097, "\N{GRINNING FACE}" * 2_049])
def test_too_long_metadata_is_refused_and_the_other_partitions_are_committed(
    run: GroupRun, metadata: str
) -> None:
    parts = (CommitPartition(0, 5, -1, metadata), CommitPartition(1, 6, -1, "short"))
    assert run.commit_all(CommitTopic("t", parts)) == ErrorCode.NONE
    assert run.groups.is_metadata_too_long(metadata)
    assert (run.offset(), run.offset(partition=1)) == (-1, 6)


@pytest.mark.parametrize("metadata", ["x" * 4_096, "\N{GRINNING FACE}" * 2_048])
def test_metadata_is_measured_in_utf_16_units(run: GroupRun, metadata: str) -> None:
    assert not run.groups.is_metadata_too_long(metadata)
    run.commit(1, metadata=metadata)
    assert run.fetched().metadata == metadata


def test_commit_of_a_generation_to_a_group_that_is_not_there_is_refused(run: GroupRun) -> None:
    assert run.commit(1, generation_id=1, member_id="m") == ErrorCode.GROUP_ID_NOT_FOUND
    old = run.commit(1, generation_id=1, member_id="m", api_version=8)
    assert old == ErrorCode.ILLEGAL_GENERATION


def test_member_commits_in_its_generation_only(run: GroupRun) -> None:
    (leader,) = run.stable()
    assert run.commit(1, member_id=leader, generation_id=1) == ErrorCode.NONE
    assert run.commit(2, member_id=leader, generation_id=2) == ErrorCode.ILLEGAL_GENERATION
    assert run.commit(2, member_id="nobody", generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert run.offset() == 1


def test_who_is_no_member_does_not_commit_to_a_group_that_has_some(run: GroupRun) -> None:
    run.stable()
    assert run.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_anybody_commits_to_a_group_that_has_become_empty(run: GroupRun) -> None:
    (leader,) = run.stable()
    run.leave(LeavingMember(leader))
    assert run.commit(9) == ErrorCode.NONE
    assert run.commit(9, member_id=leader, generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_commit_while_others_rejoin_but_not_while_they_are_assigned(run: GroupRun) -> None:
    (leader,) = run.stable()
    newcomer = run.member_id()
    run.join(newcomer)
    assert run.commit(1, member_id=leader, generation_id=1) == ErrorCode.NONE
    run.join(leader)
    assert run.commit(2, member_id=leader, generation_id=2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_commit_keeps_the_session_alive(run: GroupRun) -> None:
    (leader,) = run.stable()
    for _ in range(3):
        run.timers.advance(9_999)
        assert run.commit(1, member_id=leader, generation_id=1) == ErrorCode.NONE


def test_commit_that_cannot_be_written_is_not_seen(run: GroupRun, broker: GroupBroker) -> None:
    run.commit(1)
    broker.fails_with = RecordTooLargeError("too large")
    assert run.commit(2) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert run.offset() == 1


def test_offset_of_a_topic_that_was_made_anew_is_none(run: GroupRun, broker: GroupBroker) -> None:
    old = broker.image.topics["t"].topic_id
    run.commit(5, topic_id=old)
    broker.recreate("t")
    new = broker.image.topics["t"].topic_id
    assert run.fetched(topic_id=new).offset == -1
    assert run.fetched(topic_id=old).offset == 5
    assert run.fetched().offset == 5, "who does not say which topic is told of any"


def test_group_that_is_joined_while_its_deletion_is_prepared_is_kept(run: GroupRun) -> None:
    run.commit(1)
    joining = Interruption(lambda: joining.count > 1 or run.stable())
    assert joining.run(run.delete_group) == ErrorCode.NON_EMPTY_GROUP
    assert joining.count
    assert (run.offset(), run.state()) == (1, GroupState.STABLE)
    assert run.restarted().offset() == 1


def test_offset_that_is_committed_while_its_group_is_deleted_goes_with_it(run: GroupRun) -> None:
    run.commit(1)
    committing = Interruption(lambda: run.commit(2, topic="u"))
    assert committing.run(run.delete_group) == ErrorCode.NONE
    assert committing.count
    assert (run.offset(), run.offset("u")) == (-1, -1)
    assert run.restarted().groups.list_groups() == []


def test_offset_for_a_new_topic_that_is_committed_during_the_deletion_of_the_old_is_kept(
    run: GroupRun, broker: GroupBroker
) -> None:
    run.commit(1)
    broker.recreate("t")
    new = broker.image.topics["t"].topic_id
    # The first pause is before the offsets of the old topic are looked for.
    committing = Interruption(lambda: committing.count == 2 and run.commit(5, topic_id=new))
    committing.run(lambda: run.groups.maintenance.on_topics_deleted(["t"]))
    assert committing.count == 2
    assert run.offset() == 5


def test_deleted_topic_takes_its_offsets_with_it(run: GroupRun, broker: GroupBroker) -> None:
    run.commit(1)
    run.commit(2, topic="u")
    broker.delete("t")
    run.groups.maintenance.on_topics_deleted(["t"])
    assert (run.offset(), run.offset("u")) == (-1, 2)
    assert run.restarted().offset() == -1


def test_offset_for_the_new_topic_outlives_the_deletion_of_the_old(
    run: GroupRun, broker: GroupBroker
) -> None:
    broker.recreate("t")
    run.commit(5, topic_id=broker.image.topics["t"].topic_id)
    run.groups.maintenance.on_topics_deleted(["t"])
    assert run.offset() == 5


def test_deleted_offsets_are_gone(run: GroupRun) -> None:
    run.commit(1)
    run.commit(2, partition=1)
    assert run.delete_offsets(("t", 0), ("u", 0)) == (0, (0, 0))
    assert (run.offset(), run.offset(partition=1)) == (-1, 2)
    again = run.restarted()
    assert (again.offset(), again.offset(partition=1)) == (-1, 2)


def test_offset_of_a_subscribed_topic_is_not_deleted(run: GroupRun) -> None:
    (leader,) = run.stable(protocols=(Protocol("range", SUBSCRIBED_TO_T),))
    for topic in ("t", "u"):
        run.commit(1, topic=topic, member_id=leader, generation_id=1)
    _, answers = run.delete_offsets(("t", 0), ("u", 0))
    assert answers == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)


def test_offsets_of_a_group_with_members_that_are_no_consumers_are_not_deleted(
    run: GroupRun,
) -> None:
    run.stable(protocol_type="connect")
    assert run.delete_offsets(("t", 0)) == (ErrorCode.NON_EMPTY_GROUP, ())


@pytest.mark.parametrize(
    ("group_id", "code"),
    [("nobody", ErrorCode.GROUP_ID_NOT_FOUND), ("", ErrorCode.INVALID_GROUP_ID)],
)
def test_offsets_of_no_group_are_not_deleted(run: GroupRun, group_id: str, code: int) -> None:
    assert run.delete_offsets(("t", 0), group=group_id) == (code, ())


def test_empty_group_is_deleted_with_its_offsets(run: GroupRun) -> None:
    (leader,) = run.stable()
    run.commit(1, member_id=leader, generation_id=1)
    assert run.delete_group() == ErrorCode.NON_EMPTY_GROUP
    run.leave(LeavingMember(leader))
    assert run.delete_group() == ErrorCode.NONE
    assert run.delete_group() == ErrorCode.GROUP_ID_NOT_FOUND
    assert (run.offset(), run.state()) == (-1, None)
    again = run.restarted()
    assert (again.offset(), again.state(), again.groups.list_groups()) == (-1, None, [])


def test_group_that_was_deleted_can_be_joined_anew(run: GroupRun) -> None:
    given = run.member_id()
    run.delete_group()
    assert run.join(given)[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert run.stable()


def test_many_tombstones_are_written_in_batches_that_the_log_takes(
    run: GroupRun, broker: GroupBroker
) -> None:
    name = "t" * 200
    parts = tuple(CommitPartition(number, number) for number in range(2_000))
    assert run.commit_all(CommitTopic(name, parts)) == ErrorCode.NONE
    before = len(broker.records())
    assert run.delete_group() == ErrorCode.NONE
    assert len(broker.records()) == before + 2_001
    assert len(broker.log(GROUP_METADATA_TOPIC, 0).segments) == 1
    assert len({record.offset for record in broker.records()}) == before + 2_001
    assert run.offset(name, 1_999) == -1
