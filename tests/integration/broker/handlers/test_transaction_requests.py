"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and descriptions of transactions, on the wire."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cordwood.testing.broker import RunningBroker
from support.no_engine import NoEngine
from support.transaction_client import Producer, TransactionClient

NONE = "none"
FENCED_BY_VERSION = [
    (1, "invalid_producer_epoch"),
    (2, "producer_fenced"),
]
UNATTEMPTED, UNKNOWN = "operation_not_attempted", "unknown_topic_or_partition"
MAPPING = "invalid_producer_id_mapping"


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with RunningBroker(engine=NoEngine) as broker, TransactionClient(broker.port) as connection:
        connection.create("t", 3)
        connection.find_group("g")
        yield broker


@pytest.fixture
def wire(running: RunningBroker) -> Iterator[TransactionClient]:
    with TransactionClient(running.port) as connection:
        yield connection


def stale(producer: Producer) -> Producer:
    return producer._replace(epoch=producer.epoch - 1)


def fenced(wire: TransactionClient, name: str) -> Producer:
    """A producer that another one has fenced."""
    return stale(wire.producer(name)._replace(epoch=wire.producer(name).epoch))


# ---- AddPartitionsToTxn


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_by_their_producer(wire: TransactionClient, version: int) -> None:
    producer = wire.producer(f"add-{version}")
    assert wire.add(producer, {"t": [0, 2]}, version) == {("t", 0): NONE, ("t", 2): NONE}
    assert wire.add(producer, {"t": [2, 1]}, version) == {("t", 2): NONE, ("t", 1): NONE}
    found = wire.described(producer.transactional_id)
    assert found["transaction_state"] == "Ongoing"
    (topic,) = found["topics"]
    assert (topic["topic"], sorted(topic["partitions"])) == ("t", [0, 1, 2])
    wire.end(producer, commit=False)


def test_all_partitions_are_added_or_none(wire: TransactionClient) -> None:
    producer = wire.producer("all-or-none")
    asked = {"t": [0, 9], "missing": [0]}
    assert wire.add(producer, asked) == {
        ("t", 0): UNATTEMPTED,
        ("t", 9): UNKNOWN,
        ("missing", 0): UNKNOWN,
    }
    assert wire.state(producer.transactional_id) == "Empty"


@pytest.mark.parametrize(("version", "error"), [*FENCED_BY_VERSION, (3, "producer_fenced")])
def test_a_fenced_producer_adds_nothing(wire: TransactionClient, version: int, error: str) -> None:
    producer = fenced(wire, f"fenced-add-{version}")
    assert wire.add(producer, {"t": [0]}, version) == {("t", 0): error}


@pytest.mark.parametrize("version", [3, 4, 5])
def test_partitions_of_a_transactional_id_that_nobody_has(
    wire: TransactionClient, version: int
) -> None:
    wire.find("nobody")
    assert wire.add(Producer("nobody", 1, 0), {"t": [0]}, version) == {("t", 0): MAPPING}
    assert wire.add(Producer("", 1, 0), {"t": [0]}, version) == {("t", 0): "invalid_request"}


@pytest.mark.parametrize("version", [4, 5])
def test_brokers_verify_partitions_without_adding_them(
    wire: TransactionClient, version: int
) -> None:
    producer = wire.producer(f"verify-{version}")
    wire.add(producer, {"t": [0]})
    verified = wire.add(producer, {"t": [0, 1]}, version, verify_only=True)
    assert verified == {("t", 0): NONE, ("t", 1): "transaction_abortable"}
    verified = wire.add(stale(producer), {"t": [0]}, version, verify_only=True)
    assert verified == {("t", 0): "producer_fenced"}
    (topic,) = wire.described(producer.transactional_id)["topics"]
    assert topic["partitions"] == [0]
    wire.end(producer, commit=False)


def test_brokers_ask_for_several_transactions_at_once(wire: TransactionClient) -> None:
    producers = [wire.producer(f"several-{n}") for n in range(2)]
    topics = [{"name": "t", "partitions": [0]}]
    asked = [{**each.named(), "verify_only": False, "topics": topics} for each in producers]
    asked.append({**Producer("several-none", 1, 0).named(), "topics": topics})
    answer = wire.ask("add_partitions_to_txn", 5, {"transactions": asked})
    assert answer["error_code"] == NONE
    assert {
        each["transactional_id"]: each["topic_results"][0]["results_by_partition"][0][
            "partition_error_code"
        ]
        for each in answer["results_by_transaction"]
    } == {"several-0": NONE, "several-1": NONE, "several-none": MAPPING}
    for each in producers:
        wire.end(each, commit=False)


# ---- AddOffsetsToTxn


@pytest.mark.parametrize("version", range(5))
def test_the_offsets_of_a_group_are_added(wire: TransactionClient, version: int) -> None:
    producer = wire.producer(f"offsets-{version}")
    assert wire.add_offsets(producer, "g", version) == NONE
    (topic,) = wire.described(producer.transactional_id)["topics"]
    assert topic["topic"] == "__consumer_offsets"
    assert len(topic["partitions"]) == 1
    assert wire.end(producer, commit=True)["error_code"] == NONE
    assert wire.settle(producer.transactional_id) == "CompleteCommit"


@pytest.mark.parametrize(("version", "error"), FENCED_BY_VERSION)
def test_a_fenced_producer_adds_no_offsets(
    wire: TransactionClient, version: int, error: str
) -> None:
    producer = fenced(wire, f"fenced-offsets-{version}")
    assert wire.add_offsets(producer, "g", version) == error


# ---- EndTxn


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_with_a_marker_in_each_partition(
    wire: TransactionClient, version: int, *, commit: bool
) -> None:
    topic = f"end-{version}-{commit}".lower()
    wire.create(topic, retention_ms=-1)
    producer = wire.producer(topic)
    wire.add(producer, {topic: [0]})
    assert wire.write_one(producer, topic) == NONE
    assert wire.marks(topic) == (0, 1)
    answer = wire.end(producer, commit=commit, version=version)
    assert answer["error_code"] == NONE
    assert wire.settle(topic) == ("CompleteCommit" if commit else "CompleteAbort")
    assert wire.outcomes(topic) == ["v", "commit" if commit else "abort"]
    assert wire.marks(topic) == (2, 2)
    again = wire.end(producer, commit=commit, version=version)["error_code"]
    other = wire.end(producer, commit=not commit, version=version)["error_code"]
    assert (again, other) == (NONE, "invalid_txn_state")


def test_from_version_5_on_each_transaction_has_an_epoch(wire: TransactionClient) -> None:
    wire.create("epochs", retention_ms=-1)
    producer = wire.producer("epochs")
    for epoch in (1, 2):
        assert wire.write_one(producer, "epochs", 12) == NONE
        answer = wire.end(producer, commit=True, version=5)
        assert answer["error_code"] == NONE
        assert (answer["producer_id"], answer["producer_epoch"]) == (producer.id, epoch)
        wire.settle("epochs")
        repeated = wire.end(producer, commit=True, version=5)
        assert (repeated["error_code"], repeated["producer_epoch"]) == (NONE, epoch)
        producer = producer._replace(epoch=epoch)
    late = producer._replace(epoch=1)
    assert wire.write_one(late, "epochs", 12, sequence=1) == "invalid_producer_epoch"
    assert wire.outcomes("epochs") == ["v", "commit"] * 2


@pytest.mark.parametrize(("version", "error"), FENCED_BY_VERSION)
def test_a_fenced_producer_ends_nothing(wire: TransactionClient, version: int, error: str) -> None:
    producer = fenced(wire, f"fenced-end-{version}")
    assert wire.end(producer, commit=True, version=version)["error_code"] == error


def test_the_end_of_what_is_not_there(wire: TransactionClient) -> None:
    wire.find("nobody")
    for name, error in (("nobody", MAPPING), ("", "invalid_request")):
        answer = wire.end(Producer(name, 1, 0), commit=True)
        assert answer["error_code"] == error
    empty = wire.producer("empty")
    assert wire.end(empty, commit=True)["error_code"] == "invalid_txn_state"


# ---- descriptions


def test_transactions_are_listed_by_state_producer_and_pattern(wire: TransactionClient) -> None:
    producer = wire.producer("listed-one")
    other = wire.producer("listed-two")
    wire.add(producer, {"t": [0]})

    def names(version: int = 2, **filters: object) -> list[str]:
        asked = {"duration_filter": -1, "transactional_id_pattern": None, **filters}
        answer = wire.ask("list_transactions", version, asked)
        assert answer["error_code"] == NONE
        found = [each["transactional_id"] for each in answer["transaction_states"]]
        return sorted(each for each in found if each.startswith("listed"))

    assert names() == ["listed-one", "listed-two"]
    assert names(state_filters=["Ongoing"]) == ["listed-one"]
    assert names(producer_id_filters=[producer.id]) == ["listed-one"]
    assert names(transactional_id_pattern=".*-two") == ["listed-two"]
    wire.add(other, {"t": [0]})
    assert names(duration_filter=3_600_000) == []
    for each in (producer, other):
        wire.end(each, commit=False)


def test_a_pattern_that_is_no_regular_expression_is_refused(wire: TransactionClient) -> None:
    asked = {"state_filters": ["bogus"], "transactional_id_pattern": "("}
    answer = wire.ask("list_transactions", 2, asked)
    assert answer["error_code"] == "invalid_regular_expression"
    assert answer["unknown_state_filters"] == []
    for pattern in (None, "", "x.*"):
        answer = wire.ask("list_transactions", 2, {**asked, "transactional_id_pattern": pattern})
        assert answer["error_code"] == NONE
        assert answer["unknown_state_filters"] == ["bogus"]


def test_a_description_has_what_the_transaction_is(wire: TransactionClient) -> None:
    producer = wire.producer("described", transaction_timeout_ms=12_345)
    wire.add(producer, {"t": [1]})
    found = wire.described("described")
    assert found["error_code"] == NONE
    assert (found["producer_id"], found["producer_epoch"]) == (producer.id, producer.epoch)
    assert found["transaction_timeout_ms"] == 12_345
    assert found["transaction_start_time_ms"] > 0
    wire.end(producer, commit=False)
    missing = wire.described("not-there")
    assert missing["error_code"] == "transactional_id_not_found"
