"""WriteTxnMarkers, by which tools and other brokers end transactions; and open ones at a start."""

from __future__ import annotations

from typing import Any

from cordwood.broker.broker import Broker
from cordwood.format.record_batch import Record, build_batch
from cordwood.testing.broker import RunningBroker
from support.wire import Wire
from support.wire_client import WireClient, batch_of

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


def test_transactions_of_version_2_are_finalized(wire: Wire) -> None:
    software = {"client_software_name": "wire", "client_software_version": "1"}
    answer = wire.ask("api_versions", 4, software)
    supported = {each["name"]: each["max_version"] for each in answer["supported_features"]}
    finalized = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    assert supported == {
        "metadata.version": 33,
        "kraft.version": 1,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "transaction.version": 2,
    }
    assert finalized == {**supported, "metadata.version": 30}
    lowest = {each["name"]: each["min_version"] for each in answer["supported_features"]}
    assert lowest["transaction.version"] == 0


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


def test_a_marker_of_version_2_needs_an_epoch_of_its_own(running: RunningBroker) -> None:
    """From transaction version 2 on the marker's epoch is above that of the records (KIP-1228)."""
    with WireClient(running.port) as wire:
        for version, epoch, error in (
            (1, 3, "none"),
            (2, 3, "invalid_producer_epoch"),
            (2, 4, "none"),
        ):
            topic = f"version-{version}-{epoch}"
            wire.create(topic, retention_ms=-1)
            open_transaction(running, topic, b"one")
            marker = {
                **MARKER,
                "producer_epoch": epoch,
                "transaction_result": True,
                "transaction_version": version,
                "topics": [{"name": topic, "partition_indexes": [0]}],
            }
            (answer,) = wire.ask("write_txn_markers", 2, {"markers": [marker]})["markers"]
            assert answer["topics"][0]["partitions"][0]["error_code"] == error, topic
            assert stable(wire, topic) == ((2, 2) if error == "none" else (0, 1))


def test_producers_are_described_with_the_start_of_their_transaction(
    running: RunningBroker,
) -> None:
    with WireClient(running.port) as wire:
        wire.create("described", retention_ms=-1)
        wire.produce("described", batch_of(b"before"))
        open_transaction(running, "described", b"one")

        def described() -> tuple[int, int, int, int]:
            topics = [{"name": "described", "partition_indexes": [0]}]
            answer = wire.ask("describe_producers", 0, {"topics": topics})
            (found,) = answer["topics"][0]["partitions"][0]["active_producers"]
            return (
                found["producer_id"],
                found["producer_epoch"],
                found["coordinator_epoch"],
                found["current_txn_start_offset"],
            )

        assert described() == (7, 3, -1, 1)
        write_marker(wire, ("described", 0))
        assert described() == (7, 3, 5, -1)
