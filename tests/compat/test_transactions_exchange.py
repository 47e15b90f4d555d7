"""One directory, a real Kafka and Cordwood by turns: each transaction ends as it began."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Final

import pytest

from cordwood.coordinator.transaction import records
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.transaction import TransactionState
from cordwood.model.clock import SystemClock
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC
from cordwood.storage.log.log_reader import Isolation
from cordwood.testing.broker import RunningBroker
from support.applied import wait_until_applied
from support.kafka import RealKafka, poll_until
from support.log_under_test import batches_read, new_log
from support.no_engine import NoEngine
from support.transaction_client import (
    TransactionClient,
    TransactionRefusedError,
    Version,
    WireProducer,
)

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

PARTITIONS: Final = [("a", 0), ("a", 1), ("b", 0)]
VERSIONS: Final[tuple[Version, ...]] = (0, 2)
_WAIT_S: Final = 180
_LONG_MS: Final = 900_000
#: Of transactions that the next broker aborts by their timeout.
_SHORT_MS: Final = 20_000
#: The same where the next broker is a Kafka, whose clock cannot be moved.
_SHORTER_MS: Final = 8_000
_PROPERTIES: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "auto.create.topics.enable": "false",
}
#: How each transaction is left behind, and whether it is committed in the end.
KINDS: Final = {
    "committed": True,
    "aborted": False,
    "prepared-commit": True,
    "prepared-abort": False,
    "continued": True,
    "initialized": False,
    "timed-out": False,
}
#: The offset of each group before its transaction, and that of the transaction.
BEFORE, AFTER = 3, 9


def name_of(kind: str, version: Version) -> str:
    return f"{kind}-{version}"


@dataclass
class Exchange:
    """The transactions of one directory, and their producers.

    `level` is the finalized transaction.version; records of the coordinator have an older version
    at level 0, and producers of version 2 send what they write to no partition by itself.
    """

    data: Path
    level: Version
    short_ms: int
    producers: dict[str, WireProducer] = field(default_factory=dict)

    @property
    def versions(self) -> Sequence[Version]:
        """Of the producers."""
        return VERSIONS if self.level else VERSIONS[:1]

    @property
    def names(self) -> list[str]:
        """The transactional ids, which are those of the groups, too."""
        return [name_of(*each) for each in product(KINDS, self.versions)]

    def begin(self, wire: TransactionClient, now_ms: int) -> None:
        """All transactions at the first broker."""
        for topic in ("a", "b"):
            wire.create(topic, 2, retention_ms=-1)
        for kind, version in product(KINDS, self.versions):
            name = name_of(kind, version)
            timeout_ms = self.short_ms if kind == "timed-out" else _LONG_MS
            producer = WireProducer(wire, name, version, timeout_ms, now_ms)
            self.producers[name] = producer
            producer.init()
            producer.commit_offset(name, "a", 0, BEFORE)
            producer.end(commit=True)
        for name, producer in self.producers.items():
            for topic, partition in PARTITIONS:
                producer.produce(topic, partition, *(f"{name} {n}".encode() for n in (1, 2)))
            producer.commit_offset(name, "a", 0, AFTER)
        for version, kind in product(self.versions, ("committed", "aborted")):
            name = name_of(kind, version)
            self.producers[name].end(commit=kind == "committed")
            wire.wait_until_ended(name)

    def prepare(self) -> None:
        """Has the outcome of some be in the log, as where a broker dies before it sends markers."""
        for partition in range(2):
            log = new_log(self.data, name=f"{TRANSACTION_STATE_TOPIC}-{partition}")
            found = batches_read(log.reader.read(0, 1 << 26, isolation=Isolation.LOG_END))
            epoch = found[-1].header.partition_leader_epoch
            last = {
                record.transactional_id: record
                for batch in found
                for each in batch.records()
                for record in [records.decode(each.key, each.value)]
            }
            for name, record in last.items():
                if name.startswith("prepared"):
                    batch = records.batch_of([records.encode(prepared(record))], now_ms=0)
                    log.append_as_leader(batch, leader_epoch=epoch)
            log.flush()
            log.close()

    def end(self, wire: TransactionClient, now_ms: int, let_time_out: Callable[[], object]) -> None:
        """Ends at the other broker what is left, and checks that all have ended as they have to."""
        for version in self.versions:
            for kind in ("committed", "aborted", "prepared-commit", "prepared-abort"):
                wanted = "CompleteCommit" if KINDS[kind] else "CompleteAbort"
                wire.wait_until_ended(name_of(kind, version), wanted)
            continued = self.producers[name_of("continued", version)]
            assert wire.state(continued.transactional_id) == "Ongoing"
            continued.wire = wire
            continued.produce("a", 0, f"{continued.transactional_id} 3".encode())
            continued.end(commit=True)
            name = name_of("initialized", version)
            before = self.producers[name]
            after = WireProducer(wire, name, version, _LONG_MS, now_ms)
            after.init()
            assert after.producer_id == before.producer_id
            assert after.producer_epoch > before.producer_epoch
            before.wire = wire
            with pytest.raises(TransactionRefusedError, match=r"fenced|epoch"):
                before.produce("a", 0, b"late")
        let_time_out()
        for version in self.versions:
            wire.wait_until_ended(name_of("timed-out", version), "CompleteAbort")
            wire.wait_until_ended(name_of("continued", version), "CompleteCommit")
        poll_until(
            lambda: all(wire.is_stable(*each) for each in PARTITIONS),
            timeout_s=_WAIT_S,
            what="no transaction is open",
        )


def set_level(port: int, level: Version) -> None:
    """Has the broker finalize that transaction.version; new clusters begin with 2."""
    if level != VERSIONS[-1]:
        update = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": 2}
        with TransactionClient(port) as wire:
            answer = wire.ask(
                "update_features", 1, {"feature_updates": [update], "timeout_ms": 10_000}
            )
        assert answer["error_code"] == "none", answer
        wait_until_applied(port)


def prepared(record: TransactionRecord) -> TransactionRecord:
    """The record of the decision that a transaction's name says."""
    transaction = record.transaction
    assert transaction is not None
    assert transaction.state is TransactionState.ONGOING, record
    decided = transaction.prepared(
        commit=record.transactional_id.startswith("prepared-commit"),
        client_version=int(record.transactional_id[-1]),
        now_ms=transaction.update_ms,
    )
    return record._replace(transaction=decided)


def contents(wire: TransactionClient) -> dict[str, list[str]]:
    """All that read_committed consumers see."""
    return {
        f"{topic}-{partition}": [
            (each.value or b"").decode() for each in wire.read_committed(topic, partition)[0]
        ]
        for topic, partition in PARTITIONS
    }


def has_loaded(wire: TransactionClient, group: str) -> bool:
    """Whether a group has a coordinator, which has loaded its offsets."""
    if wire.find_coordinator(group) != "none":
        return False
    answer = wire.ask("offset_fetch", 7, {"group_id": group, "topics": None})
    return bool(answer["error_code"] == "none")


def offsets(wire: TransactionClient, exchange: Exchange) -> dict[str, int]:
    """The offsets of all groups."""
    for name in exchange.names:
        poll_until(
            lambda: has_loaded(wire, name),  # noqa: B023
            timeout_s=_WAIT_S,
            what="the groups' coordinator",
        )
    return {name: wire.committed(name, "a", 0) for name in exchange.names}


def expected(exchange: Exchange) -> Mapping[str, set[str]]:
    """The records of each partition, whose order is that of the first broker."""
    committed = [name_of(*each) for each in product(KINDS, exchange.versions) if KINDS[each[0]]]
    both = {f"{name} {number}" for name in committed for number in (1, 2)}
    more = {f"{name_of('continued', version)} 3" for version in exchange.versions}
    return {"a-0": both | more, "a-1": both, "b-0": both}


def require_all(wire: TransactionClient, exchange: Exchange) -> dict[str, list[str]]:
    """Everything is as it has to be when all have ended; the records."""
    found = contents(wire)
    assert {name: set(values) for name, values in found.items()} == expected(exchange)
    assert all(len(set(values)) == len(values) for values in found.values())
    assert offsets(wire, exchange) == {
        name_of(*each): AFTER if KINDS[each[0]] else BEFORE
        for each in product(KINDS, exchange.versions)
    }
    return found


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[RealKafka]:
    with RealKafka(tmp_path, properties=_PROPERTIES) as real:
        yield real


def ours(data: Path) -> RunningBroker:
    return RunningBroker(_PROPERTIES, log_dir=data, engine=NoEngine)


@pytest.mark.parametrize("level", VERSIONS)
def test_transactions_of_a_kafka_end_here_as_they_began(kafka: RealKafka, level: Version) -> None:
    exchange = Exchange(kafka.log_dirs[0], level, _SHORT_MS)
    kafka.start_without_cleaning()
    set_level(kafka.port, level)
    with TransactionClient(kafka.port) as wire:
        exchange.begin(wire, SystemClock().now_ms())
    kafka.stop()
    exchange.prepare()
    with ours(exchange.data) as broker, TransactionClient(broker.port) as wire:
        exchange.end(wire, broker.now_ms(), lambda: broker.advance(minutes=2, compact=False))
        found = require_all(wire, exchange)
    kafka.start_without_cleaning()
    with TransactionClient(kafka.port) as wire:
        assert require_all(wire, exchange) == found
    kafka.stop()


@pytest.mark.parametrize("level", VERSIONS)
def test_transactions_that_began_here_end_at_a_kafka(kafka: RealKafka, level: Version) -> None:
    exchange = Exchange(kafka.log_dirs[0], level, _SHORTER_MS)
    with ours(exchange.data) as broker, TransactionClient(broker.port) as wire:
        set_level(broker.port, level)
        now_ms = broker.now_ms()
        exchange.begin(wire, now_ms)
    exchange.prepare()
    kafka.start_without_cleaning()
    with TransactionClient(kafka.port) as wire:
        exchange.end(wire, now_ms, lambda: None)  # its clock cannot be moved
        found = require_all(wire, exchange)
    kafka.stop()
    with ours(exchange.data) as broker, TransactionClient(broker.port) as wire:
        assert require_all(wire, exchange) == found
