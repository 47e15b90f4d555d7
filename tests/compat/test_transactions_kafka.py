"""Transactions at a Kafka 4.4 and at Cordwood: same answers, same logs, snapshots and indexes.

A script of transactional requests of all kinds is answered by both, in transaction.version 0, 1
and 2. Some transactional ids begin with epochs that are nearly used up.

Logs are compared without what depends on the time.

Source: names of files are those of org.apache.kafka.storage.internals.log.LogFileUtils.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import pytest

from cordwood.coordinator.transaction import records
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.transaction import Transaction
from cordwood.format.group_metadata import decode_group_key, decode_group_value
from cordwood.format.java_map import absolute_hash
from cordwood.format.producer_snapshot import parse_producer_snapshot
from cordwood.format.record_batch import Record, build_batch, iter_batches
from cordwood.format.transaction_index import parse_transaction_index
from cordwood.format.transaction_state import decode_transaction_key, decode_transaction_value
from cordwood.model.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from support.applied import wait_until_applied
from support.kafka import poll_until
from support.kafka_programs import KAFKA_4_4
from support.transaction_comparison import Comparison, Side
from support.transaction_script import (
    BASE_MS,
    CLASSIC_MEMBER,
    GROUPS,
    IDS,
    TOPICS,
    WORN,
    TransactionScript,
)
from support.two_brokers import TwoBrokers, make_topics
from support.wire import Wire

_TIMES: Final = frozenset(
    {"assignmentTimestamp", "commitTimestamp", "currentStateTimestamp", "expireTimestamp"}
    | {"timestamp", "transactionLastUpdateTimestampMs"}
)
_START: Final = "transactionStartTimestampMs"
_LATEST_OF_RECORDS_MS: Final = BASE_MS + 10**9

Line = tuple[Any, ...]


def lines_of(log_dir: Path, topics: list[str], member_id: str) -> Iterator[Line]:
    """Batches, transaction indexes and producer snapshots of topics' partitions.

    Args:
        log_dir: of the stopped broker.
        topics: names.
        member_id: of the classic group's member, which the broker made.
    """
    for topic in topics:
        for directory in sorted(log_dir.glob(f"{topic}-[0-9]*")):
            yield ("partition", directory.name)
            for path in sorted(directory.iterdir()):
                yield from _lines_of_file(path, topic, member_id)


def _lines_of_file(path: Path, topic: str, member_id: str) -> Iterator[Line]:
    data = path.read_bytes()
    if path.suffix == ".log":
        yield ("segment", path.name)
        yield from _batches(data, _READERS.get(topic, _as_it_is), member_id)
    elif path.suffix == ".txnindex":
        yield ("transaction index", path.name, parse_transaction_index(data))
    elif path.suffix == ".snapshot":
        entries = [
            replace(each, timestamp=min(each.timestamp, _LATEST_OF_RECORDS_MS))
            for each in parse_producer_snapshot(data)
        ]
        yield ("snapshot", path.name, entries)


def _batches(data: bytes, read: Callable[[Record], Line], member_id: str) -> Iterator[Line]:
    for _, batch in iter_batches(data):
        header = batch.header  # type: ignore[union-attr]
        # Varints of times differ in size.
        fixed = header._replace(crc=0, batch_length=0)
        if header.base_timestamp > _LATEST_OF_RECORDS_MS:
            fixed = fixed._replace(base_timestamp=0, max_timestamp=0)
        yield ("batch", *fixed)
        for each in batch.iter_records():  # type: ignore[union-attr]
            line = _as_it_is(each) if header.is_control else read(each)
            yield ("record", each.offset, *_without(line, member_id))


def _without(value: Any, member_id: str) -> Any:
    """The value with the member's id replaced."""
    if isinstance(value, str):
        return value.replace(member_id, CLASSIC_MEMBER)
    if isinstance(value, (list, tuple)):
        return tuple(_without(each, member_id) for each in value)
    if isinstance(value, Mapping):
        return {key: _without(inner, member_id) for key, inner in value.items()}
    return value


def _as_it_is(record: Record) -> Line:
    return record.key, record.value, record.headers


def _transaction(record: Record) -> Line:
    key = decode_transaction_key(record.key)
    value = decode_transaction_value(0, record.value)
    if value is None:
        return key.fields, None
    fields = {name: 0 if name in _TIMES else each for name, each in value.fields.items()}
    fields[_START] = min(fields[_START], 0)
    return key.fields, value.version, fields


def _group(record: Record) -> Line:
    key = decode_group_key(record.key)
    value = decode_group_value(key.record_type, record.value)
    if value is None:
        return key.record_type, key.fields, None
    fields = {name: 0 if name in _TIMES else each for name, each in value.fields.items()}
    return key.record_type, key.fields, value.version, fields


_READERS: Final[Mapping[str, Callable[[Record], Line]]] = {
    "__transaction_state": _transaction,
    "__consumer_offsets": _group,
}


pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_4_4_jars")]

SHORT, LONG = 600, 1500
STATE_PARTITIONS: Final = 3
PROPERTIES: Mapping[str, str] = {
    "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.max.session.timeout.ms": "1800000",
    "group.consumer.session.timeout.ms": "1800000",
}
#: Small enough that a log has several segments.
TOPIC_CONFIGS: Final = {"segment.bytes": str(1 << 20)}
#: A client has three more epochs.
WORN_EPOCH: Final = 32_763
_SAFE_DOWNGRADE: Final = 2


def init_values(transactional_id: str | None) -> dict[str, object]:
    return {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": 900_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }


def await_coordinators(port: int) -> None:
    with Wire(port) as wire:

        def are_there() -> bool:
            asked = [("txn", 1), *((group, 0) for group in GROUPS)]
            found = [
                wire.ask("find_coordinator", 3, {"key": key, "key_type": kind})
                for key, kind in asked
            ]
            listed = [
                wire.ask("list_groups", 4),
                wire.ask("list_transactions", 1, {"duration_filter": -1}),
            ]
            return all(each["error_code"] == "none" for each in (*found, *listed))

        poll_until(are_there, timeout_s=120, what="the coordinators are there")
        # Until the controller has given the broker producer ids, a real Kafka has none to give.
        asked = init_values(None)
        poll_until(
            lambda: wire.ask("init_producer_id", 4, asked)["error_code"] == "none",
            timeout_s=120,
            what="the broker has producer ids",
        )
    wait_until_applied(port)


class Both(TwoBrokers):
    """Both, with topics, a transaction.version, and ids whose epochs are nearly used up."""

    def __init__(self, root: Path, version: int) -> None:
        super().__init__(
            root,
            properties=PROPERTIES,
            prepare=self._begin,
            is_ready=await_coordinators,
            version=KAFKA_4_4,
            release="4.3",
        )
        self.version = version
        self.topic_ids: dict[str, uuid.UUID] = {}

    def _begin(self, port: int) -> None:
        self.topic_ids = make_topics(port, TOPICS, TOPIC_CONFIGS)
        with Wire(port) as wire:
            if self.version < 2:
                update = {
                    "feature": "transaction.version",
                    "max_version_level": self.version,
                    "upgrade_type": _SAFE_DOWNGRADE,
                }
                values = {"timeout_ms": 10_000, "feature_updates": [update], "validate_only": False}
                answer = wire.ask("update_features", 1, values)
                assert answer["error_code"] == "none", answer
            wait_until_applied(port)
            for name in WORN:
                self._wear(wire, name)

    def _wear(self, wire: Wire, name: str) -> None:
        """Writes a record with a large epoch, for the coordinator to load when it starts."""
        given = wire.ask("init_producer_id", 4, init_values(name))
        assert given["error_code"] == "none", given
        transaction = Transaction(
            transactional_id=name,
            producer_id=given["producer_id"],
            producer_epoch=WORN_EPOCH,
            timeout_ms=900_000,
            update_ms=BASE_MS,
        )
        value_version = records.value_version_of(self.version)
        key, value = records.encode(TransactionRecord(name, transaction, value_version))
        wire.client_id = "__admin_client"  # only this client may write to the topic
        data = build_batch([Record(0, BASE_MS, key, value)], base_offset=0)
        partition = {"index": absolute_hash(name) % STATE_PARTITIONS, "records": data}
        topic = {"name": TRANSACTION_STATE_TOPIC, "partition_data": [partition]}
        values = {"acks": -1, "timeout_ms": 10_000, "topic_data": [topic]}
        (written,) = wire.ask("produce", 11, values)["responses"]
        assert written["partition_responses"][0]["error_code"] == "none", written

    def sides(self) -> tuple[Side, Side]:
        """New connections."""
        first, second = (Side(port) for port in self.ports)
        return first, second


def compare(root: Path, seed: int, count: int, *, version: int, moves: int = 0) -> None:
    with Both(root, version) as both:
        sides = both.sides()
        for side in sides:
            side.join()
        script = TransactionScript(seed, both.topic_ids, version=version, own_ids=(*IDS, *WORN))
        comparison = Comparison(sides, script)
        differences = comparison.run(count)
        for _ in range(moves):
            assert not differences, "\n".join(differences)
            both.swap()
            sides = both.sides()
            comparison.move_to(sides)
            differences = comparison.run(count)
        comparison.close()
        print(f"seed {seed}: {dict(sorted(comparison.answered.items()))}")
        assert not differences, "\n".join(differences)
        both.stop()
        require_same_logs(both, sides)
    require_all_kinds(comparison, count)


def require_same_logs(both: Both, sides: tuple[Side, Side]) -> None:
    topics = [*TOPICS, TRANSACTION_STATE_TOPIC, GROUP_METADATA_TOPIC]
    first, second = (
        list(lines_of(log_dir, topics, side.member_id))
        for log_dir, side in zip(both.log_dirs, sides, strict=True)
    )
    where: tuple[object, ...] = ()
    for one, other in zip_longest(first, second):
        if one is not None and one[0] == "partition":
            where = one
        assert one == other, where
    kinds = {line[0] for line in first}
    assert kinds == {"partition", "segment", "batch", "record", "transaction index", "snapshot"}
    assert len(first) > len(topics)


def require_all_kinds(comparison: Comparison, count: int) -> None:
    """A script that is refused everything compares little."""
    answered = comparison.answered
    assert answered["produce none"] > count // 20
    assert answered["end_txn none"] > count // 30
    assert answered["txn_offset_commit none"] > count // 150


def test_a_script_of_transactions_is_answered_as_by_kafka(tmp_path: Path) -> None:
    compare(tmp_path, 1, SHORT, version=2)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("version", "seed"), [(2, 2), (2, 3), (2, 4), (1, 5), (1, 6), (0, 7), (0, 8)]
)
def test_long_scripts_of_transactions_are_answered_as_by_kafka(
    tmp_path: Path, version: int, seed: int
) -> None:
    compare(tmp_path, seed, LONG, version=version)


@pytest.mark.parametrize(
    ("version", "seed"),
    [(2, 11), *(pytest.param(version, 12, marks=pytest.mark.nightly) for version in (0, 1))],
)
def test_transactions_continue_on_the_directory_of_the_other(
    tmp_path: Path, version: int, seed: int
) -> None:
    compare(tmp_path, seed, 150, version=version, moves=3)
