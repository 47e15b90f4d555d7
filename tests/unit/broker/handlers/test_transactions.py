"""Clients that want transactions are refused for good; transactions that are open can be ended."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from cordwood.broker.refused_transactions import REFUSAL

from cordwood.broker.broker import Broker
from cordwood.format.record_batch import Record, build_batch
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.wire import Wire
from support.wire_client import WireClient, batch_of

REFUSED = "transactional_id_authorization_failed"
TRANSACTION = 1
MARKER = {"producer_id": 7, "producer_epoch": 3, "coordinator_epoch": 5}


def transactional(*values: bytes, base_offset: int = 0) -> bytes:
    records = [
        Record(base_offset + n, 1_700_000_000_000, b"k", value) for n, value in enumerate(values)
    ]
    return build_batch(
        records,
        base_offset=base_offset,
        producer_id=7,
        producer_epoch=3,
        base_sequence=0,
        is_transactional=True,
    )


def open_transaction(running: RunningBroker, topic: str, *values: bytes) -> None:
    """Writes what a producer wrote to a Kafka that did not live to see the end of it."""

    def append(broker: Broker) -> None:
        log = broker.replicas.log(topic, 0)
        log.append_as_follower(transactional(*values, base_offset=log.log_end_offset))
        log.maybe_update_high_watermark(log.log_end_offset)

    running.call(append)


def write_marker(wire: Wire, *topics: tuple[str, int], commit: bool = False, **fields: Any) -> Any:
    """The codes of the error of each partition."""
    marker = {
        **MARKER,
        "transaction_result": commit,
        "topics": [{"name": name, "partition_indexes": [index]} for name, index in topics],
        **fields,
    }
    (answer,) = wire.ask("write_txn_markers", 1, {"markers": [marker]})["markers"]
    return [one["error_code"] for topic in answer["topics"] for one in topic["partitions"]]


def stable(wire: WireClient, topic: str) -> tuple[int, int]:
    """The last stable offset and the high watermark."""
    told = wire.fetch(topic)
    return told["last_stable_offset"], told["high_watermark"]


@pytest.mark.parametrize("version", range(1, 7))
def test_the_coordinator_of_a_transaction_is_refused_for_good(wire: Wire, version: int) -> None:
    asked: dict[str, Any] = {"key_type": TRANSACTION, "key": "mine", "coordinator_keys": ["mine"]}
    answer = wire.ask("find_coordinator", version, asked)
    found = answer["coordinators"][0] if version >= 4 else answer
    assert (found["error_code"], found["error_message"]) == (REFUSED, REFUSAL)
    assert (found["node_id"], found["host"], found["port"]) == (-1, "", -1)


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_gets_no_producer_id(wire: Wire, version: int) -> None:
    asked = {"transactional_id": "mine", "transaction_timeout": 1000}
    assert wire.ask("init_producer_id", version, asked)["error_code"] == REFUSED
    asked = {"transactional_id": None, "transaction_timeout": 1000}
    assert wire.ask("init_producer_id", version, asked)["error_code"] == "none"


def test_a_transactional_batch_is_refused(running: RunningBroker) -> None:
    with WireClient(running.port) as wire:
        wire.create("refused-batches")
        told = wire.produce("refused-batches", transactional(b"one"))
        assert told["error_code"] == REFUSED
        assert wire.records("refused-batches") == []


def test_each_refused_id_has_one_line_in_the_log_and_only_so_many_have(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    with RunningBroker(engine=NoEngine) as running, Wire(running.port) as wire:
        for keys in (["mine", "mine"], ["mine", "other"], [f"id-{n}" for n in range(1200)]):
            asked = {"key_type": TRANSACTION, "coordinator_keys": keys}
            answer = wire.ask("find_coordinator", 4, asked)
            assert {each["error_code"] for each in answer["coordinators"]} == {REFUSED}
    lines = [each.getMessage() for each in caplog.records if "Refusing" in each.getMessage()]
    assert len(lines) == 1000
    assert lines[0] == f"Refusing transactional id 'mine' of client wire at 127.0.0.1. {REFUSAL}."
    assert sum("id 'mine'" in line for line in lines) == 1
    assert sum("Further refused" in each.getMessage() for each in caplog.records) == 1


def test_features_that_are_not_served_are_neither_advertised_nor_finalized(wire: Wire) -> None:
    software = {"client_software_name": "wire", "client_software_version": "1"}
    answer = wire.ask("api_versions", 4, software)
    supported = {each["name"]: each["max_version"] for each in answer["supported_features"]}
    finalized = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    assert supported == {
        "metadata.version": 30,
        "kraft.version": 1,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
    }
    assert finalized == supported


def test_a_pattern_that_is_no_regular_expression_is_refused(wire: Wire) -> None:
    asked: dict[str, Any] = {"state_filters": ["bogus"], "transactional_id_pattern": "("}
    answer = wire.ask("list_transactions", 2, asked)
    assert answer["error_code"] == "invalid_regular_expression"
    assert answer["unknown_state_filters"] == []
    for pattern in (None, "", "x.*"):
        answer = wire.ask("list_transactions", 2, {**asked, "transactional_id_pattern": pattern})
        assert answer["error_code"] == "none"
        assert answer["unknown_state_filters"] == ["bogus"]


def test_a_marker_ends_a_transaction_that_was_left_open(running: RunningBroker) -> None:
    with WireClient(running.port) as wire:
        wire.create("aborted", retention_ms=-1)
        wire.produce("aborted", batch_of(b"before"))
        open_transaction(running, "aborted", b"one", b"two")
        assert stable(wire, "aborted") == (1, 3)
        assert write_marker(wire, ("aborted", 0), ("aborted", 9), ("no-such", 0)) == [
            "none",
            "unknown_topic_or_partition",
            "unknown_topic_or_partition",
        ]
        assert stable(wire, "aborted") == (4, 4)
        wire.create("committed", retention_ms=-1)
        open_transaction(running, "committed", b"one")
        assert write_marker(wire, ("committed", 0), commit=True) == ["none"]
        assert stable(wire, "committed") == (2, 2)


def test_a_marker_of_an_older_epoch_is_refused(running: RunningBroker) -> None:
    with WireClient(running.port) as wire:
        wire.create("fenced", retention_ms=-1)
        open_transaction(running, "fenced", b"one")
        for epoch, error in ((2, "invalid_producer_epoch"), (-1, "unknown_server_error")):
            assert write_marker(wire, ("fenced", 0), producer_epoch=epoch) == [error]
            missing = write_marker(wire, ("missing", 0), producer_epoch=epoch)
            assert missing == ["unknown_topic_or_partition"]
        both = write_marker(wire, ("fenced", 0), ("missing", 0), producer_epoch=-1)
        assert both == ["unknown_server_error"] * 2
        offsets = ("__consumer_offsets", 0)
        asked: dict[str, Any] = {**MARKER, "producer_epoch": -1, "transaction_result": False}
        asked["topics"] = [{"name": "fenced", "partition_indexes": [0]}]
        answer = wire.ask("write_txn_markers", 1, {"markers": [asked]})
        assert [each["producer_id"] for each in answer["markers"]] == [MARKER["producer_id"]]
        both = write_marker(wire, offsets, ("missing", 0), producer_epoch=-1)
        assert both == ["unknown_topic_or_partition"] * 2
        assert stable(wire, "fenced") == (0, 1)
        assert write_marker(wire, ("fenced", 0)) == ["none"]
        fenced = write_marker(wire, ("fenced", 0), coordinator_epoch=4)
        assert fenced == ["transaction_coordinator_fenced"]


def test_a_partition_that_is_named_twice_has_one_marker(running: RunningBroker) -> None:
    with WireClient(running.port) as wire:
        wire.create("twice", retention_ms=-1)
        open_transaction(running, "twice", b"one")
        assert write_marker(wire, ("twice", 0), ("twice", 0), commit=True) == ["none"]
        assert stable(wire, "twice") == (2, 2)


def test_open_transactions_are_named_at_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        RunningBroker(log_dir=tmp_path, engine=NoEngine) as running,
        WireClient(running.port) as wire,
    ):
        wire.create("open", retention_ms=-1)
        wire.produce("open", batch_of(b"before"))
        open_transaction(running, "open", b"one")
    assert "Transactions are not supported" not in caplog.text
    with RunningBroker(log_dir=tmp_path, engine=NoEngine) as running:
        assert (
            "Partition open-0 has a transaction of producer 7 (epoch 3) open since offset 1, "
            "2023-11-14T22:13:20.000+00:00."
        ) in caplog.text
        assert "abort --topic open --partition 0 --start-offset 1" in caplog.text
        with WireClient(running.port) as wire:
            assert write_marker(wire, ("open", 0)) == ["none"]
    caplog.clear()
    with RunningBroker(log_dir=tmp_path, engine=NoEngine):
        assert "Transactions are not supported" not in caplog.text
