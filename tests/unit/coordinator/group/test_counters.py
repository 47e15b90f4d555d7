"""Counters of a coordinator since its start: Kafka's sensors."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.coordinator.group.counters import Count
from cordwood.coordinator.group.settings import ConsumerGroupSettings
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import StorageError
from support.groups_under_test import GroupBroker, GroupRun

WEEK_MS = 7 * 24 * 60 * 60 * 1_000
NONE = dict.fromkeys(Count, 0)


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path, topics={"t": 4, "u": 1})


@pytest.fixture
def run(broker: GroupBroker) -> GroupRun:
    return GroupRun(broker, consumer=ConsumerGroupSettings(assignment_interval_ms=0))


def counts(run: GroupRun) -> dict[Count, int]:
    found = {**NONE, **run.groups.counts().since_start}
    return {what: count for what, count in found.items() if count}


def test_offsets_that_are_committed_and_that_expire(run: GroupRun, broker: GroupBroker) -> None:
    for partition in range(3):
        run.commit(1, partition=partition)
    run.commit(2)
    assert counts(run) == {Count.OFFSET_COMMITS: 4}
    broker.clock.advance(WEEK_MS)
    run.groups.maintenance.expire_offsets()
    assert counts(run) == {Count.OFFSET_COMMITS: 4, Count.OFFSET_EXPIRATIONS: 3}
    run.commit(1)
    run.delete_offsets(("t", 0), ("t", 1))
    assert counts(run)[Count.OFFSET_DELETIONS] == 1


def test_what_cannot_be_written_is_not_counted(run: GroupRun, broker: GroupBroker) -> None:
    broker.fails_with = StorageError("the disk is gone")
    assert run.commit(1) != ErrorCode.NONE
    assert counts(run) == {}


def test_rebalances_of_both_protocols(run: GroupRun) -> None:
    run.stable(group="classic")
    assert counts(run) == {Count.COMPLETED_REBALANCES: 1}
    run.enter("a", "t", group="consumer")
    run.enter("b", "t", group="consumer")
    run.beat("a", -1, group="consumer")
    rebalances = {Count.COMPLETED_REBALANCES: 1, Count.CONSUMER_REBALANCES: 2}
    assert counts(run) == rebalances
