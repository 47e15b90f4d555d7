"""Expiry of offsets and groups: offsets.retention.minutes, by the movable clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.group.classic.group import GroupState
from cordwood.coordinator.group.classic.member import LeavingMember, Protocol
from cordwood.coordinator.group.settings import GroupSettings
from cordwood.model.error_codes import ErrorCode
from support.groups_under_test import GroupBroker, GroupRun

WEEK_MS = 7 * 24 * 60 * 60 * 1_000
SUBSCRIBED_TO_T = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path, topics={"t": 1, "u": 1})


@pytest.fixture
def run(broker: GroupBroker) -> GroupRun:
    return GroupRun(broker)


def test_offsets_are_looked_at_in_every_check_interval(run: GroupRun, broker: GroupBroker) -> None:
    run.groups.start()
    assert broker.periods == {"delete-expired-group-metadata": 600_000}


def test_offset_of_a_standalone_consumer_expires_a_week_after_its_commit(
    run: GroupRun, broker: GroupBroker
) -> None:
    run.commit(1)
    broker.clock.advance(WEEK_MS - 1)
    run.groups.maintenance.expire_offsets()
    assert run.offset() == 1
    broker.clock.advance(1)
    run.groups.maintenance.expire_offsets()
    assert (run.offset(), run.state()) == (-1, None)


def test_later_commit_begins_the_week_anew(run: GroupRun, broker: GroupBroker) -> None:
    run.commit(1)
    broker.clock.advance(WEEK_MS - 1)
    run.commit(2)
    broker.clock.advance(WEEK_MS - 1)
    run.groups.maintenance.expire_offsets()
    assert run.offset() == 2


def test_offsets_of_an_empty_group_expire_a_week_after_it_became_so(
    run: GroupRun, broker: GroupBroker
) -> None:
    (leader,) = run.stable()
    run.commit(1, member_id=leader, generation_id=1)
    for _ in range(3):
        broker.clock.advance(WEEK_MS)
        run.groups.maintenance.expire_offsets()
        assert run.offset() == 1, "a group with members that subscribe to who knows what"
    run.leave(LeavingMember(leader))
    broker.clock.advance(WEEK_MS - 1)
    run.groups.maintenance.expire_offsets()
    assert run.offset() == 1
    broker.clock.advance(1)
    run.groups.maintenance.expire_offsets()
    assert (run.offset(), run.state()) == (-1, None)


def test_running_group_keeps_what_it_subscribes_to_and_forgets_the_rest(
    run: GroupRun, broker: GroupBroker
) -> None:
    (leader,) = run.stable(protocols=(Protocol("range", SUBSCRIBED_TO_T),))
    for topic in ("t", "u"):
        run.commit(1, topic=topic, member_id=leader, generation_id=1)
    broker.clock.advance(WEEK_MS)
    run.groups.maintenance.expire_offsets()
    assert (run.offset("t"), run.offset("u")) == (1, -1)
    assert run.heartbeat(leader, 1) == ErrorCode.NONE


def test_rebalancing_group_forgets_nothing(run: GroupRun, broker: GroupBroker) -> None:
    (leader,) = run.stable(protocols=(Protocol("range", SUBSCRIBED_TO_T),))
    run.commit(1, topic="u", member_id=leader, generation_id=1)
    broker.clock.advance(WEEK_MS)
    run.join(run.member_id(protocols=(Protocol("range", SUBSCRIBED_TO_T),)))
    run.groups.maintenance.expire_offsets()
    assert run.offset("u") == 1


def test_group_of_others_than_consumers_keeps_its_offsets_while_it_has_members(
    run: GroupRun, broker: GroupBroker
) -> None:
    (leader,) = run.stable(protocol_type="connect")
    run.commit(1, member_id=leader, generation_id=1)
    broker.clock.advance(WEEK_MS)
    run.groups.maintenance.expire_offsets()
    assert run.offset() == 1


def test_retention_that_an_old_client_asked_for_counts(run: GroupRun, broker: GroupBroker) -> None:
    run.commit(1, retention_ms=1_000)
    run.commit(2, topic="u", retention_ms=2 * WEEK_MS)
    broker.clock.advance(999)
    run.groups.maintenance.expire_offsets()
    assert run.offset() == 1
    broker.clock.advance(1)
    run.groups.maintenance.expire_offsets()
    assert run.offset() == -1
    again = run.restarted()
    broker.clock.advance(WEEK_MS)
    again.groups.maintenance.expire_offsets()
    assert again.offset("u") == 2


def test_empty_group_without_offsets_goes_at_the_next_check(run: GroupRun) -> None:
    (leader,) = run.stable()
    run.leave(LeavingMember(leader))
    run.groups.maintenance.expire_offsets()
    assert run.state() is None
    assert run.restarted().state() is None


def test_group_that_keeps_one_offset_stays(run: GroupRun, broker: GroupBroker) -> None:
    run.commit(1)
    broker.clock.advance(WEEK_MS - 1)
    run.commit(2, topic="u")
    broker.clock.advance(1)
    run.groups.maintenance.expire_offsets()
    assert (run.offset(), run.offset("u")) == (-1, 2)
    assert run.state() is not None


def test_empty_group_goes_on_ageing_while_the_broker_is_down(
    run: GroupRun, broker: GroupBroker
) -> None:
    (leader,) = run.stable()
    run.commit(1, member_id=leader, generation_id=1)
    run.leave(LeavingMember(leader))
    broker.clock.advance(WEEK_MS)
    again = run.restarted()
    again.groups.maintenance.expire_offsets()
    assert again.offset() == -1


def test_partitions_are_looked_at_one_after_the_other(tmp_path: Path) -> None:
    broker = GroupBroker(tmp_path, partitions=3)
    run = GroupRun(broker)
    names = {run.groups.partition_for(name).partition: name for name in ("a", "b", "c")}
    assert len(names) == 3
    for name in names.values():
        run.commit(1, group=name)
    broker.clock.advance(WEEK_MS)
    run.groups.maintenance.expire_offsets()
    left = 3
    while left:
        assert sum(run.offset(group=name) == 1 for name in names.values()) == left - 1
        left -= 1
        assert not left or broker.run_soon()


def test_retention_is_read_in_minutes() -> None:
    settings = GroupSettings.of({"offsets.retention.minutes": 3, "offsets.topic.num.partitions": 7})
    assert settings.offsets_retention_ms == 180_000
    assert settings.topic_partitions == 7


def test_retention_of_a_group_goes_before_the_brokers(run: GroupRun, broker: GroupBroker) -> None:
    for group in ("short", "long", "forever", "usual"):
        run.commit(1, group=group)
    broker.configure("short", cordwood_offsets_retention_minutes="1")
    broker.configure("long", cordwood_offsets_retention_minutes=str(30 * 24 * 60))
    broker.configure("forever", cordwood_offsets_retention_minutes="-1")

    def left() -> list[str]:
        run.groups.maintenance.expire_offsets()
        groups = ("short", "long", "forever", "usual")
        return [group for group in groups if run.offset(group=group) == 1]

    broker.clock.advance(60_000 - 1)
    assert left() == ["short", "long", "forever", "usual"]
    broker.clock.advance(1)
    assert left() == ["long", "forever", "usual"]
    broker.clock.advance(WEEK_MS)
    assert left() == ["long", "forever"]
    broker.clock.advance(100 * WEEK_MS)
    assert left() == ["forever"]


def test_interval_of_assignments_is_brought_into_its_bounds() -> None:
    name, bound = (
        "group.consumer.assignment.interval.ms",
        "group.consumer.{}.assignment.interval.ms",
    )
    bounds = {bound.format("min"): 10, bound.format("max"): 20}
    intervals = [
        GroupSettings.of({name: each, **bounds}).consumer.assignment_interval_ms
        for each in (9, 10, 20, 21)
    ]
    assert intervals == [10, 10, 20, 20]


def test_a_group_with_offsets_of_an_open_transaction_is_not_ended(run: GroupRun) -> None:
    assert run.commit(1, producer=TransactionalProducer(7, 0, None)) == ErrorCode.NONE
    run.groups.maintenance.expire_offsets()
    assert run.state() is GroupState.EMPTY


def test_a_group_with_a_member_that_has_an_id_and_has_not_joined_is_not_ended(
    run: GroupRun,
) -> None:
    (leader,) = run.stable()
    pending = run.member_id()
    run.leave(LeavingMember(leader))
    run.groups.maintenance.expire_offsets()
    assert run.state() is not None
    run.leave(LeavingMember(pending))
    run.groups.maintenance.expire_offsets()
    assert run.state() is None
