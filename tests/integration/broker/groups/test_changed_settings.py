"""A setting of groups that is changed while the broker runs takes effect at the next heartbeat."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from cordwood.testing.broker import RunningBroker
from support.kafka import poll_until
from support.no_engine import NoEngine
from support.wire import Wire

INTERVAL = "group.consumer.assignment.interval.ms"


@pytest.fixture
def running() -> Iterator[RunningBroker]:
    with RunningBroker({INTERVAL: 15_000}, engine=NoEngine) as running:
        yield running


def joined(wire: Wire, group: str) -> dict[str, Any]:
    return wire.ask(
        "consumer_group_heartbeat",
        1,
        {
            "group_id": group,
            "member_id": str(uuid.uuid4()),
            "member_epoch": 0,
            "rebalance_timeout_ms": 60_000,
            "subscribed_topic_names": ["t"],
            "topic_partitions": [],
        },
    )


def test_interval_of_assignments_changes_at_run_time(running: RunningBroker) -> None:
    with Wire(running.port) as wire:
        asked = {"key": "g", "key_type": 0}
        poll_until(
            lambda: wire.ask("find_coordinator", 3, asked)["error_code"] == "none",
            timeout_s=60,
            what="the coordinator is there",
        )
        # A second assignment waits for the interval: the member stays at the epoch before it.
        epochs = [joined(wire, "g")["member_epoch"] for _ in range(3)]
        assert epochs == [epochs[0]] * 3, epochs
        change = {"config_operation": 0, "name": INTERVAL, "value": "0"}
        resource = {"resource_type": 4, "resource_name": "", "configs": [change]}
        (answer,) = wire.ask(
            "incremental_alter_configs", 1, {"resources": [resource], "validate_only": False}
        )["responses"]
        assert answer["error_code"] == "none", answer
        later = [joined(wire, "g")["member_epoch"] for _ in range(3)]
        assert later == [later[0], later[0] + 1, later[0] + 2]
        assert later[0] > epochs[0]
