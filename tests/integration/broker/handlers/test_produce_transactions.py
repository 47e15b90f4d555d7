"""Produce of transactional batches: they are verified, or added to their transaction, before.

Source of the rules: kafka.server.ReplicaManagerTest, KafkaApisTest (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from cordwood.broker.broker import Broker
from cordwood.broker.coordinators.transaction_partitions import TransactionPartitions
from cordwood.model.error_codes import ErrorCode
from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.transaction_client import Producer, TransactionClient
from support.wire import API_KEYS, ConnectionClosedError, request_body
from support.wire_client import batch_of

NONE = "none"
VERIFICATION = "transaction.partition.verification.enable"
NOT_ADDED = "Partition was not added to the transaction"
UNVERIFIED = (
    "Unable to verify the partition has been added to the transaction. Underlying error: {}"
)
BROKER = 4


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker({"log.retention.ms": -1}, engine=NoEngine) as broker:
        yield broker


@pytest.fixture
def wire(running: RunningBroker) -> Iterator[TransactionClient]:
    with TransactionClient(running.port) as connection:
        yield connection


def set_verification(wire: TransactionClient, *, enabled: bool | None) -> None:
    """Changes the setting of the broker; None for its default."""
    change = {
        "name": VERIFICATION,
        "config_operation": 1 if enabled is None else 0,
        "value": None if enabled is None else str(enabled).lower(),
    }
    resource = {"resource_type": BROKER, "resource_name": "", "configs": [change]}
    answer = wire.ask("incremental_alter_configs", 1, {"resources": [resource]})
    assert answer["responses"][0]["error_code"] == NONE


@pytest.mark.parametrize("version", [9, 10, 11])
def test_a_partition_that_was_added_is_written(wire: TransactionClient, version: int) -> None:
    topic = f"added-{version}"
    wire.create(topic)
    producer = wire.producer(topic)
    wire.add(producer, {topic: [0]})
    assert wire.write_one(producer, topic, version) == NONE
    assert wire.write_one(producer, topic, version, sequence=1) == NONE
    assert wire.marks(topic) == (0, 2)
    wire.end(producer, commit=True)
    wire.settle(topic)
    assert wire.outcomes(topic) == ["v", "v", "commit"]


@pytest.mark.parametrize(
    ("version", "error", "text"),
    [(10, "invalid_txn_state", NOT_ADDED), (11, "transaction_abortable", None)],
)
def test_a_partition_that_was_not_added_is_not_written(
    wire: TransactionClient, version: int, error: str, text: str | None
) -> None:
    topic = f"not-added-{version}"
    for name in (topic, f"{topic}-there"):
        wire.create(name)
    producer = wire.producer(topic)
    wire.add(producer, {f"{topic}-there": [0]})
    batches = {name: producer.batch(b"v") for name in (topic, f"{topic}-there")}
    found = wire.write(producer, batches, version)
    assert found[f"{topic}-there"]["error_code"] == NONE
    assert (found[topic]["error_code"], found[topic]["error_message"]) == (error, text)
    assert found[topic]["base_offset"] == -1
    assert wire.marks(topic) == (0, 0)
    wire.end(producer, commit=False)


def test_version_12_adds_what_it_writes(wire: TransactionClient) -> None:
    wire.create("by-itself")
    producer = wire.producer("by-itself")
    assert wire.write_one(producer, "by-itself", 12) == NONE
    (topic,) = wire.described("by-itself")["topics"]
    assert (topic["topic"], topic["partitions"]) == ("by-itself", [0])
    wire.end(producer, commit=True, version=5)
    wire.settle("by-itself")
    assert wire.outcomes("by-itself") == ["v", "commit"]


@pytest.mark.parametrize("version", [11, 12])
def test_a_fenced_producer_writes_nothing(wire: TransactionClient, version: int) -> None:
    topic = f"fenced-{version}"
    wire.create(topic)
    old = wire.producer(topic)
    wire.producer(topic)
    assert wire.write_one(old, topic, version) == "invalid_producer_epoch"
    assert wire.write_one(Producer(topic, 1 << 40, 0), topic, version) == (
        "invalid_producer_id_mapping"
    )
    assert wire.marks(topic) == (0, 0)


def test_a_late_batch_of_an_ended_transaction_opens_no_other(wire: TransactionClient) -> None:
    wire.create("late")
    producer = wire.producer("late")
    wire.add(producer, {"late": [0]})
    assert wire.write_one(producer, "late") == NONE
    wire.end(producer, commit=True)
    wire.settle("late")
    assert wire.write_one(producer, "late", 10, sequence=1) == "invalid_txn_state"
    assert wire.write_one(producer, "late", 11, sequence=1) == "transaction_abortable"
    assert wire.marks("late") == (2, 2)


def test_all_batches_of_a_request_are_of_one_producer(wire: TransactionClient) -> None:
    for name in ("one-producer", "other-producer"):
        wire.create(name)
    producer = wire.producer("one-producer")
    other = producer._replace(epoch=producer.epoch + 1)
    batches = {"one-producer": producer.batch(b"v"), "other-producer": other.batch(b"v")}
    found = wire.write(producer, batches)
    assert {each["error_code"] for each in found.values()} == {"invalid_producer_id_mapping"}
    assert wire.marks("one-producer") == (0, 0)


def test_a_batch_outside_of_transactions_may_be_beside_one_in_it(wire: TransactionClient) -> None:
    for name in ("plain", "in-it"):
        wire.create(name)
    producer = wire.producer("in-it")
    wire.add(producer, {"in-it": [0]})
    found = wire.write(producer, {"plain": batch_of(b"p"), "in-it": producer.batch(b"v")})
    assert {each["error_code"] for each in found.values()} == {NONE}
    assert (wire.marks("plain"), wire.marks("in-it")) == ((1, 1), (0, 1))
    wire.end(producer, commit=False)


@pytest.mark.parametrize("version", [11, 12])
def test_partitions_that_are_not_there_are_refused_and_others_written(
    wire: TransactionClient, version: int
) -> None:
    topic = f"beside-{version}"
    wire.create(topic)
    producer = wire.producer(topic)
    wire.add(producer, {topic: [0]})
    batches = {"missing": producer.batch(b"v"), topic: producer.batch(b"v")}
    found = wire.write(producer, batches, version)
    assert {name: each["error_code"] for name, each in found.items()} == {
        "missing": "unknown_topic_or_partition",
        topic: NONE,
    }
    alone = wire.write(producer, {"missing": producer.batch(b"v")}, version)
    assert alone["missing"]["error_code"] == "unknown_topic_or_partition"
    wire.end(producer, commit=False)


def test_a_large_request_is_verified_too(wire: TransactionClient) -> None:
    wire.create("large", max_message_bytes=4_000_000)
    producer = wire.producer("large")
    values = [b"v" * 100_000] * 15
    refused = wire.write(producer, {"large": producer.batch(*values)})
    assert refused["large"]["error_code"] == "transaction_abortable"
    wire.add(producer, {"large": [0]})
    assert wire.write(producer, {"large": producer.batch(*values)})["large"]["error_code"] == NONE
    wire.end(producer, commit=True)


def test_verification_can_be_turned_off_and_on_while_the_broker_runs(
    wire: TransactionClient,
) -> None:
    for name in ("unverified", "verified"):
        wire.create(name)
        wire.producer(name)
    set_verification(wire, enabled=False)
    try:
        producer = wire.producer("unverified")
        assert wire.write_one(producer, "unverified") == NONE
        assert wire.marks("unverified") == (0, 1)
    finally:
        set_verification(wire, enabled=None)
    assert wire.write_one(wire.producer("verified"), "verified") == "transaction_abortable"
    assert wire.write_one(producer, "unverified", sequence=1) == NONE, "it is open there"


def test_version_12_adds_with_verification_turned_off(wire: TransactionClient) -> None:
    wire.create("still-added")
    set_verification(wire, enabled=False)
    try:
        producer = wire.producer("still-added")
        assert wire.write_one(producer, "still-added", 12) == NONE
        assert wire.state("still-added") == "Ongoing"
    finally:
        set_verification(wire, enabled=None)
    wire.end(producer, commit=True, version=5)
    assert wire.settle("still-added") == "CompleteCommit"


# ---- acks=0


def test_a_request_that_wants_no_answer_is_written_or_the_connection_closed(
    running: RunningBroker, wire: TransactionClient
) -> None:
    wire.create("silent")
    producer = wire.producer("silent")

    def tell(batch: bytes) -> TransactionClient:
        connection = TransactionClient(running.port)
        topics = [{"name": "silent", "partition_data": [{"index": 0, "records": batch}]}]
        values = {"acks": 0, "timeout_ms": 5000, "transactional_id": "silent", "topic_data": topics}
        produce = API_KEYS["produce"]
        connection.tell_raw(produce, 11, request_body(produce, 11, values))
        return connection

    with closing(tell(producer.batch(b"v"))) as refused, pytest.raises(ConnectionClosedError):
        refused.ask("api_versions", 0)
    wire.add(producer, {"silent": [0]})
    with closing(tell(producer.batch(b"v"))) as written:
        assert written.ask("api_versions", 0)["error_code"] == NONE
    assert wire.marks("silent") == (0, 1)
    wire.end(producer, commit=True)


# ---- what the coordinator cannot answer


class Answering:
    """Replacement of `TransactionPartitions.handle` that answers with one error."""

    def __init__(self, code: ErrorCode, times: int) -> None:
        self.code = code
        self.times = times
        self.asked = 0

    def patch(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        as_it_is = TransactionPartitions.handle

        def handle(partitions: Any, request: Any, reply: Any, **options: Any) -> None:
            self.asked += 1
            if self.asked <= self.times:
                reply(dict.fromkeys(request.partitions, int(self.code)))
            else:
                as_it_is(partitions, request, reply, **options)

        monkeypatch.setattr(TransactionPartitions, "handle", handle)


RETRIABLE = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


@pytest.mark.parametrize("version", [11, 12])
@pytest.mark.parametrize("code", RETRIABLE, ids=lambda code: code.name)
def test_errors_of_the_coordinator_are_ones_that_every_producer_tries_again(
    running: RunningBroker,
    wire: TransactionClient,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    code: ErrorCode,
) -> None:
    topic = f"again-{version}-{code}"
    wire.create(topic)
    producer = wire.producer(topic)
    Answering(code, 1).patch(running.broker, monkeypatch)
    found = wire.write(producer, {topic: producer.batch(b"v")}, version)[topic]
    assert found["error_code"] == "not_enough_replicas"
    assert found["error_message"] == UNVERIFIED.format(code.name)


@pytest.mark.parametrize("version", [11, 12])
def test_a_write_before_there_is_a_coordinator_is_one_to_try_again(version: int) -> None:
    with RunningBroker(engine=NoEngine) as running, TransactionClient(running.port) as wire:
        wire.create("t")
        wire.find_group("g")
        nobody = Producer("x", 5, 0)
        found = wire.write(nobody, {"t": nobody.batch(b"v")}, version)["t"]
        assert found["error_code"] == "not_enough_replicas"
        assert found["error_message"] == UNVERIFIED.format("COORDINATOR_NOT_AVAILABLE")
        offsets = wire.commit_offsets(nobody, "g", {("t", 0): 1}, version - 7)
        assert offsets == {("t", 0): "coordinator_not_available"}


@pytest.mark.parametrize(
    ("version", "error", "asked"), [(11, "not_enough_replicas", 1), (12, NONE, 3)]
)
def test_the_end_of_the_last_transaction_is_waited_for_a_little(
    running: RunningBroker,
    wire: TransactionClient,
    monkeypatch: pytest.MonkeyPatch,
    version: int,
    error: str,
    asked: int,
) -> None:
    topic = f"concurrent-{version}"
    wire.create(topic)
    producer = wire.producer(topic)
    answering = Answering(ErrorCode.CONCURRENT_TRANSACTIONS, 2)
    answering.patch(running.broker, monkeypatch)
    assert wire.write_one(producer, topic, version) == error
    assert answering.asked == asked


def test_a_transaction_that_does_not_end_is_answered_as_it_is(
    running: RunningBroker, wire: TransactionClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.create("endless")
    producer = wire.producer("endless")
    Answering(ErrorCode.CONCURRENT_TRANSACTIONS, 1 << 30).patch(running.broker, monkeypatch)
    assert wire.write_one(producer, "endless", 12) == "concurrent_transactions"


def test_what_is_refused_is_counted(running: RunningBroker, wire: TransactionClient) -> None:
    wire.create("counted")
    producer = wire.producer("counted")

    def counted() -> tuple[int, int]:
        return running.call(
            lambda broker: (
                broker.verification.counters.failures,
                broker.verification.counters.count,
            )
        )

    failures, count = counted()
    wire.write_one(producer, "counted")
    assert counted() == (failures + 1, count + 1)
    wire.write_one(producer, "counted", 12)
    assert counted() == (failures + 1, count + 2)
    wire.write_one(producer, "counted", 12, sequence=1)
    assert counted() == (failures + 1, count + 2), "it is open there"
    wire.end(producer, commit=True)
