"""Markers that a request has written to partitions."""

from __future__ import annotations

from typing import Any

import pytest

from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.wire import Wire
from support.wire_client import WireClient


def marker(epoch: int, coordinator_epoch: int, *names: str) -> dict[str, Any]:
    return {
        "producer_id": 7,
        "producer_epoch": epoch,
        "transaction_result": False,
        "coordinator_epoch": coordinator_epoch,
        "topics": [{"name": name, "partition_indexes": [0]} for name in names],
    }


def test_markers_of_one_producer_are_answered_together_with_the_last_error() -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        with WireClient(running.port) as client:
            client.create("a")
            client.create("b")
        markers = [marker(3, 5, "a", "missing"), marker(3, 4, "a"), marker(3, 5, "b")]
        (answer,) = wire.ask("write_txn_markers", 1, {"markers": markers})["markers"]
        assert answer["producer_id"] == 7
        errors = {
            topic["name"]: [each["error_code"] for each in topic["partitions"]]
            for topic in answer["topics"]
        }
        assert errors == {
            "a": ["transaction_coordinator_fenced"],
            "missing": ["unknown_topic_or_partition"],
            "b": ["none"],
        }


@pytest.mark.parametrize("nobody", [{"producer_id": -1}, {"producer_epoch": -1}])
def test_a_marker_without_a_producer_fails_the_request(nobody: dict[str, int]) -> None:
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        with WireClient(running.port) as client:
            client.create("a")
            client.create("b")
        markers = [marker(3, 5, "b") | nobody, marker(3, 5, "a", "missing") | nobody]
        (answer,) = wire.ask("write_txn_markers", 1, {"markers": markers})["markers"]
        errors = {
            topic["name"]: [each["error_code"] for each in topic["partitions"]]
            for topic in answer["topics"]
        }
        assert errors == {"a": ["unknown_server_error"], "missing": ["unknown_server_error"]}
        end = running.call(lambda broker: broker.replicas.log("b", 0).log_end_offset)
        assert end == 0
