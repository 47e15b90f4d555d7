"""Groups of the consumer protocol: joining, reconciliation, fencing, expressions, reloads.

What random members are answered, and which records are written, is compared with a real Kafka in
`tests/compat/test_consumer_groups_kafka.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.broker.coordinators.coordinator_metadata import CoordinatorMetadataImage
from cordwood.coordinator.group.classic.group import GroupState
from cordwood.coordinator.group.classic.member import LeavingMember, Protocol
from cordwood.coordinator.group.consumer.group import ConsumerGroup, ConsumerGroupState
from cordwood.coordinator.group.consumer.member import HeartbeatAnswer, MemberState, Owned
from cordwood.coordinator.group.consumer.regexes import resolve
from cordwood.coordinator.group.settings import ConsumerGroupSettings, MigrationPolicy
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError, NotLeaderOrFollowerError
from cordwood.model.uuids import ZERO_UUID, parse_uuid
from support.consumer_group_script import subscription_metadata
from support.groups_under_test import GroupBroker, GroupRun
from support.interruption import Interruption

AT_ONCE = ConsumerGroupSettings(assignment_interval_ms=0)
SESSION_MS = 45_000
SUBSCRIPTION = subscription_metadata(["t"], [])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[GroupBroker]:
    broker = GroupBroker(tmp_path, topics={"t": 4, "u": 2, "log-1": 1})
    yield broker
    broker.close()


@pytest.fixture
def run(broker: GroupBroker) -> GroupRun:
    return GroupRun(broker, consumer=AT_ONCE)


def group_of(run: GroupRun, name: str = "g") -> ConsumerGroup:
    return run.groups.describe(name, ConsumerGroup)


def partitions(run: GroupRun, answer: HeartbeatAnswer) -> dict[str, tuple[int, ...]]:
    assert answer.assignment is not None
    names = run.broker.image.topic_names
    return {names[each.topic_id]: each.partitions for each in answer.assignment}


def owned(run: GroupRun, **topics: tuple[int, ...]) -> Owned:
    return tuple((run.broker.image.topics[name].topic_id, each) for name, each in topics.items())


def test_partitions_move_only_when_their_owner_has_given_them_up(run: GroupRun) -> None:
    first = run.enter("a", "t")
    assert (first.error_code, first.member_epoch) == (0, 2)
    assert partitions(run, first) == {"t": (0, 1, 2, 3)}
    second = run.enter("b", "t")
    assert (second.member_epoch, partitions(run, second)) == (3, {})
    assert group_of(run).state is ConsumerGroupState.RECONCILING
    told = run.beat("a", 2)
    assert (told.member_epoch, partitions(run, told)) == (2, {"t": (0, 1)})
    assert run.beat("b", 3).assignment is None, "nothing is free yet"
    assert run.beat("a", 2, owned=owned(run, t=(0, 1, 2, 3))).member_epoch == 2
    assert run.beat("a", 2, owned=owned(run, t=(0, 1))).member_epoch == 3
    assert partitions(run, run.beat("b", 3)) == {"t": (2, 3)}
    assert group_of(run).state is ConsumerGroupState.STABLE


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topics": None}, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null"),
        ({"group": " "}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
    ],
)
def test_first_request_that_lacks_something_is_refused(
    run: GroupRun, fields: dict[str, Any], why: str
) -> None:
    answer = run.enter("a", "t", **fields)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (answer.error_message or "").startswith(why)


def test_unknown_assignor_names_the_known_ones(run: GroupRun) -> None:
    answer = run.enter("a", "t", assignor="sticky")
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == (
        "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
    )


def test_member_that_sends_nothing_is_fenced(run: GroupRun) -> None:
    run.enter("a", "t")
    run.enter("b", "t")
    run.timers.advance(SESSION_MS - 1)
    run.beat("b", 3)
    run.timers.advance(1)
    assert group_of(run).member_ids() == ["b"]
    assert run.beat("a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert partitions(run, run.beat("b", 3)) == {"t": (0, 1, 2, 3)}


def test_member_that_keeps_what_it_must_give_up_is_fenced(run: GroupRun) -> None:
    run.enter("a", "t", rebalance_timeout_ms=5_000)
    run.enter("b", "t")
    run.beat("a", 2)
    run.timers.advance(4_999)
    run.beat("a", 2, owned=owned(run, t=(0, 1, 2, 3)))
    run.timers.advance(1)
    assert group_of(run).member_ids() == ["b"]


def test_answer_that_was_lost_is_given_again(run: GroupRun) -> None:
    run.enter("a", "t")
    run.enter("b", "u")
    assert run.beat("a", 2).member_epoch == 3
    assert run.beat("a", 2, owned=owned(run, t=(0,))).error_code == 0, "the epoch before is known"
    assert run.beat("a", 2, owned=owned(run, u=(0,))).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert run.beat("a", 9).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_static_member_comes_back_to_its_partitions(run: GroupRun) -> None:
    run.enter("a", "t", instance_id="i")
    refused = run.enter("b", "t", instance_id="i")
    assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert run.beat("a", -2, instance_id="i").member_epoch == -2
    assert group_of(run).member_ids() == ["a"], "its place is kept"
    assert partitions(run, run.enter("b", "t", instance_id="i")) == {"t": (0, 1, 2, 3)}
    fenced = run.beat("a", 2, instance_id="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_next_assignment_waits_for_its_interval(broker: GroupBroker) -> None:
    run = GroupRun(broker, consumer=ConsumerGroupSettings(assignment_interval_ms=1_000))
    run.enter("a", "t")
    run.enter("b", "t")
    assert (group_of(run).epoch, group_of(run).assignment_epoch) == (3, 2)
    assert group_of(run).state is ConsumerGroupState.ASSIGNING
    run.timers.advance(1_000)
    run.beat("a", 2)
    assert group_of(run).assignment_epoch == 3


def test_time_of_an_assignment_that_is_not_yet_is_not_waited_for(broker: GroupBroker) -> None:
    """A coordinator whose clock is an hour behind follows: the group was stuck for that hour."""
    run = GroupRun(broker, consumer=ConsumerGroupSettings(assignment_interval_ms=1_000))
    run.enter("a", "t")
    run.enter("b", "t")
    broker.clock.set(broker.clock.now_ms() - 3_600_000)
    run.beat("a", 2)
    assert group_of(run).assignment_epoch == 3


def test_settings_of_a_group_go_before_the_brokers(broker: GroupBroker, run: GroupRun) -> None:
    broker.configure("g", consumer_session_timeout_ms="10000", consumer_heartbeat_interval_ms="7")
    assert run.enter("a", "t").heartbeat_interval_ms == 7
    run.timers.advance(10_000)
    assert group_of(run).is_empty


def test_topic_that_grows_is_assigned_again(broker: GroupBroker, run: GroupRun) -> None:
    run.enter("a", "new")
    assert (
        partitions(run, run.beat("a", 2, rebalance_timeout_ms=1, topics=("new",), owned=())) == {}
    )
    broker.create("new", 2)
    run.groups.maintenance.on_topics_changed(["new"])
    assert partitions(run, run.beat("a", 2)) == {"new": (0, 1)}


def test_full_group_takes_no_other_member(broker: GroupBroker) -> None:
    run = GroupRun(broker, consumer=ConsumerGroupSettings(max_size=1))
    run.enter("a", "t")
    answer = run.enter("b", "t")
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (
        answer.error_message == "The consumer group has reached its maximum capacity of 1 members."
    )
    assert run.beat("a", 2).error_code == 0


def test_full_group_takes_a_static_member_back(broker: GroupBroker) -> None:
    # GroupMetadataManager.throwIfConsumerGroupIsFull of Kafka 4.4; 4.3 refuses it.
    run = GroupRun(broker, consumer=ConsumerGroupSettings(max_size=1))
    run.enter("a", "t", instance_id="i")
    run.beat("a", -2, instance_id="i")
    assert run.enter("b", "t", instance_id="i").error_code == 0
    assert group_of(run).member_ids() == ["b"]
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert run.enter("c", "t", instance_id="k").error_code == full
    (answer,) = run.join(protocols=(Protocol("range", SUBSCRIPTION),), group_instance_id="i")
    assert answer.error_code == 0


def test_member_with_another_instance_id_gives_up_its_own(run: GroupRun) -> None:
    # ConsumerGroup.updateStaticMember of Kafka 4.4.
    run.enter("a", "t", instance_id="i")
    assert run.enter("a", "t", instance_id="k").error_code == 0
    group = group_of(run)
    assert (group.static_member_id("i"), group.static_member_id("k")) == (None, "a")
    group.check_invariants()


def test_group_is_assigned_again_when_most_members_ask_for_another_assignor(run: GroupRun) -> None:
    # GroupMetadataManager.hasPreferredServerAssignorChanged of Kafka 4.4.
    run.enter("a", "t", assignor="uniform")
    epoch = run.enter("b", "t", assignor="uniform").member_epoch
    run.beat("a", 2)
    run.beat("a", 2, owned=owned(run, t=(0, 1)))
    run.beat("b", epoch)
    assert (group_of(run).epoch, group_of(run).state) == (epoch, ConsumerGroupState.STABLE)
    run.beat("a", epoch, assignor="range")
    # One vote each: the heartbeats of the one that asks for range count its vote as the first.
    assert group_of(run).epoch == epoch + 1
    run.beat("b", epoch)
    assert group_of(run).epoch == epoch + 1
    run.beat("b", epoch + 1, assignor="range")
    assert (group_of(run).epoch, group_of(run).preferred_assignor) == (epoch + 2, "range")
    run.beat("b", epoch + 2)
    assert group_of(run).epoch == epoch + 2


def test_group_whose_last_member_has_left_has_been_assigned(run: GroupRun) -> None:
    # GroupMetadataManager.consumerGroupFenceMembers of Kafka 4.4.
    run.enter("a", "t")
    run.enter("b", "t")
    run.beat("a", -1)
    assert (group_of(run).epoch, group_of(run).assignment_epoch) == (4, 3)
    run.beat("b", -1)
    group = group_of(run)
    assert (group.epoch, group.assignment_epoch, group.assignment_timestamp_ms) == (5, 5, 0)


# ---- regular expressions


def test_expression_is_matched_with_whole_names_and_followed(
    broker: GroupBroker, run: GroupRun
) -> None:
    assert run.enter("a", topics=None, regex="log-.").member_epoch == 1
    assert not group_of(run).resolved
    run.timers.advance(0)
    assert group_of(run).resolved["log-."].topics == {"log-1"}
    assert partitions(run, run.beat("a", 1)) == {"log-1": (0,)}
    broker.create("log-2", 1)
    broker.create("log-10", 1)
    run.timers.advance(10_001)
    run.beat("a", 2)
    run.timers.advance(0)
    assert group_of(run).resolved["log-."].topics == {"log-1", "log-2"}
    assert partitions(run, run.beat("a", 2)) == {"log-1": (0,), "log-2": (0,)}


def test_expression_sees_only_what_the_client_may(run: GroupRun) -> None:
    run.enter("a", topics=None, regex=".", may_describe=lambda name: name == "t")
    run.timers.advance(0)
    assert group_of(run).resolved["."].topics == {"t"}


def test_expression_that_is_none_is_refused(run: GroupRun) -> None:
    answer = run.enter("a", topics=None, regex="(log")
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "SubscribedTopicRegex `(log` is not a valid regular expression" in str(
        answer.error_message
    )
    with pytest.raises(KafkaError, match="not found"):
        group_of(run)


def test_other_members_are_served_while_many_names_are_matched(
    broker: GroupBroker, run: GroupRun
) -> None:
    for number in range(3_000):
        broker.create(f"log-{number}", 1)
    run.enter("b", "t", group="h")
    run.enter("a", topics=None, regex="log-1.*")
    answers: list[tuple[int, bool]] = []

    def others() -> None:
        answers.append((run.beat("b", 2, group="h").error_code, bool(group_of(run).resolved)))
        # It is the names at the beginning that are matched; another request starts no other task.
        broker.create("log-1x", 1)
        run.beat("a", 1)

    others_came = Interruption(others)
    others_came.run(lambda: run.timers.advance(0))
    assert others_came.count >= 7
    assert set(answers) == {(ErrorCode.NONE, False)}
    found = group_of(run).resolved["log-1.*"].topics
    assert len(found) == 1111
    assert run.timers.pending == 2, "the sessions"


def test_expression_of_a_loaded_group_that_is_none_matches_nothing(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    topics = CoordinatorMetadataImage(broker, broker.group_setting)
    found = resolve("g", ["(log", "log-."], topics, None, 7)
    assert {regex: each.topics for regex, each in found.items()} == {
        "(log": frozenset(),
        "log-.": {"log-1"},
    }
    assert "Ignoring a regular expression: Invalid regular expression '(log'" in caplog.text


def test_last_member_takes_its_expression_along(run: GroupRun) -> None:
    run.enter("a", topics=None, regex=".")
    run.timers.advance(0)
    run.beat("a", -1)
    assert not group_of(run).resolved
    assert not group_of(run).subscriptions.topics


# ---- what is kept


def test_group_is_as_it_was_after_a_reload(broker: GroupBroker, run: GroupRun) -> None:
    run.enter("a", "t", rack_id="r", assignor="range")
    run.enter("b", topics=("t", "u"), regex="log.*", instance_id="i")
    run.timers.advance(0)
    run.beat("a", 2)
    before = group_of(run)
    again = GroupRun(broker, consumer=AT_ONCE)
    after = group_of(again)
    assert list(after.members()) == list(before.members())
    assert (after.epoch, after.assignment_epoch) == (before.epoch, before.assignment_epoch)
    assert (after.resolved, after.targets) == (before.resolved, before.targets)
    assert after.subscriptions.topics == before.subscriptions.topics
    again.timers.advance(SESSION_MS)
    assert group_of(again).is_empty, "sessions begin at the load"


def test_records_that_cannot_be_written_change_nothing(broker: GroupBroker, run: GroupRun) -> None:
    run.enter("a", "t")
    before = group_of(run)
    broker.fails_with = NotLeaderOrFollowerError("no")
    assert run.enter("b", "t").error_code == ErrorCode.NOT_COORDINATOR
    broker.fails_with = None
    after = group_of(run)
    assert (after.epoch, after.member_ids()) == (before.epoch, ["a"])
    assert run.enter("b", "t").member_epoch == 3


def test_readers_see_what_is_committed(broker: GroupBroker, run: GroupRun) -> None:
    run.enter("a", "t")
    broker.is_replicated = True
    with pytest.raises(ValueError, match="expected 1, got 0"):  # the answer waits
        run.enter("b", "t")
    assert group_of(run).member_ids() == ["a"]


def test_empty_group_becomes_a_classic_one_and_back(run: GroupRun) -> None:
    run.enter("a", "t")
    run.beat("a", -1)
    ids = run.stable(1)
    assert run.state() is not None
    assert run.beat("x", 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    run.leave(LeavingMember(ids[0]))
    assert run.enter("a", "t").error_code == 0
    assert run.state() is None


def test_member_of_the_classic_protocol_is_given_an_id_of_kafkas_uuid(run: GroupRun) -> None:
    run.enter("a", "t")
    (joined,) = run.join()
    assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert parse_uuid(joined.member_id) != ZERO_UUID


def test_group_with_members_moves_only_where_the_policy_allows(broker: GroupBroker) -> None:
    policy = ConsumerGroupSettings(migration_policy=MigrationPolicy.DISABLED)
    run = GroupRun(broker, consumer=policy)
    run.stable(1)
    answer = run.enter("a", "t")
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )
    run.enter("a", "t", group="h")
    (refused,) = run.join(group="h", protocols=(Protocol("range", SUBSCRIPTION),))
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_member_of_the_classic_protocol_has_to_say_what_it_subscribes_to(run: GroupRun) -> None:
    # GroupMetadataManager.deserializeSubscription; Kafka 4.3 answers UNKNOWN_SERVER_ERROR.
    run.enter("a", "t")
    (asked,) = run.join()
    (refused,) = run.join(asked.member_id)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        (
            # version 0, no topics, two bytes of user data
            bytes(6) + b"\0\0\0\2ab",
            "an unsupported custom assignor is in use. Please refer to the documentation or switch "
            "to a default assignor before re-attempting the upgrade.",
        ),
        (b"\0\0\0\0\0\1", "the embedded consumer protocol is malformed."),
    ],
    ids=["data of an assignor", "malformed"],
)
def test_group_whose_assignments_would_be_lost_stays_a_classic_one(
    run: GroupRun, assignment: bytes, reason: str
) -> None:
    member_id = run.member_id()
    joins = run.join(member_id)
    while not joins:
        run.timers.advance(run.groups.settings.initial_rebalance_delay_ms)
    run.sync(member_id, joins[0].generation_id, {member_id: assignment})
    answer = run.enter("a", "t")
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == (
        f"Cannot upgrade classic group g to consumer group because {reason}"
    )
    assert run.state() is GroupState.STABLE


# ---- offsets


def test_offset_may_be_committed_since_a_partition_was_assigned(run: GroupRun) -> None:
    run.enter("a", "t")
    run.enter("b", "u")
    run.beat("a", 2)
    known = run.broker.image.topics["t"].topic_id
    assert run.commit(1, topic="t", member_id="a", generation_id=3, topic_id=known) == 0
    assert run.commit(1, topic="t", member_id="a", generation_id=2, topic_id=known) == 0
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert run.commit(1, topic="t", member_id="a", generation_id=1, topic_id=known) == stale
    assert run.commit(1, topic="t", member_id="a", generation_id=4, topic_id=known) == stale
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert run.commit(1, topic="t", member_id="c", generation_id=3, topic_id=known) == unknown


def test_offset_whose_metadata_is_too_long_is_not_compared_with_the_assignment(
    run: GroupRun,
) -> None:
    run.enter("a", "t")
    run.enter("b", "u")
    run.beat("a", 2)
    known = run.broker.image.topics["t"].topic_id
    too_long = "x" * (run.groups.settings.offset_metadata_max_bytes + 1)
    committed = run.commit(
        1, topic="t", member_id="a", generation_id=1, topic_id=known, metadata=too_long
    )
    assert (committed, run.offset(topic="t")) == (ErrorCode.NONE, -1)


def test_offsets_of_subscribed_topics_do_not_expire(run: GroupRun) -> None:
    run.enter("a", "t")
    for topic in ("t", "u"):
        run.commit(1, topic=topic, member_id="a", generation_id=2)
    run.broker.clock.advance(run.groups.settings.offsets_retention_ms)
    run.groups.maintenance.expire_offsets()
    assert (run.offset(topic="t"), run.offset(topic="u")) == (1, -1)


def test_unknown_state_of_a_later_release_is_fenced_or_assigned_again(run: GroupRun) -> None:
    assert MemberState(55) is MemberState.UNKNOWN
