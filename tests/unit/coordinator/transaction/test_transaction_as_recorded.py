"""Random transitions, and the bytes of their records, as Kafka 4.3.0 made them.

`TransitionRecorder.java` has written `transitions.txt`, and says how.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.transaction import records
from cordwood.coordinator.transaction.errors import IllegalTransitionError
from cordwood.coordinator.transaction.transaction import Transaction
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition

RECORDED = Path(__file__).with_name("transitions.txt")


def parsed(text: str) -> tuple[str, dict[str, str]]:
    name, *words = text.split()
    return name, dict(word.split("=", 1) for word in words)


class Script:
    """A transactional id, and the version that a broker has."""

    def __init__(self, fields: dict[str, str]) -> None:
        self.version = int(fields["version"])
        self.client_version = 2 if self.version == 2 else 0
        self.transaction = Transaction(
            transactional_id="id",
            producer_id=5,
            producer_epoch=int(fields["epoch"]),
            timeout_ms=60_000,
            update_ms=int(fields["now"]),
        )

    def moved(self, name: str, fields: dict[str, str]) -> Transaction:
        known, now_ms = self.transaction, int(fields["now"])
        if name == "epoch":
            expected = None if fields["expected"] == "none" else int(fields["expected"])
            return known.with_next_epoch(timeout_ms=60_000, expected_epoch=expected, now_ms=now_ms)
        if name == "rotate":
            return known.with_producer_id(
                int(fields["id"]),
                timeout_ms=60_000,
                keeps_last_epoch=fields["keeps"] == "true",
                now_ms=now_ms,
            )
        if name == "add":
            named = (each.split(":") for each in fields["partitions"].split(","))
            return known.with_partitions(
                [TopicPartition(topic, int(number)) for topic, number in named],
                client_version=self.client_version,
                now_ms=now_ms,
            )
        if name == "end":
            return known.prepared(
                commit=fields["commit"] == "true",
                client_version=self.client_version,
                next_producer_id=int(fields["next"]),
                now_ms=now_ms,
            )
        if name == "fence":
            return known.fenced().prepared(commit=False, client_version=0, now_ms=now_ms)
        assert name == "complete"
        return known.completed(now_ms=now_ms)

    def step(self, name: str, fields: dict[str, str]) -> str:
        """The record's bytes, or the exception that Kafka throws."""
        if fields.get("fails") == "true":
            self.transaction = self.transaction.fenced().with_failed_fence()
            return ""
        if name == "fence":  # Kafka keeps the epoch, whatever happens then
            fenced = self.transaction.fenced()
        try:
            moved = self.moved(name, fields)
            version = records.value_version_of(self.version)
            record = records.TransactionRecord("id", moved, version)
            key, value = records.encode(record)
        except IllegalTransitionError:
            return "illegal"
        except CoordinatorRequestError as error:
            return ErrorCode.of(error.code).name
        else:
            assert value is not None
            found = records.decode(key, value)
            assert as_loaded(found, moved) == found, "a load finds what is written"
            if name == "fence":
                assert moved.producer_epoch == fenced.producer_epoch
            self.transaction = moved
            return value.hex()


def as_loaded(record: records.TransactionRecord, written: Transaction) -> records.TransactionRecord:
    """The record of a transaction without what is not in the log; partitions may be reordered."""
    assert record.transaction is not None
    assert set(record.transaction.partitions) == set(written.partitions)
    expected = replace(
        written,
        last_producer_epoch=-1,
        has_failed_epoch_fence=False,
        partitions=record.transaction.partitions,
    )
    if record.value_version == 0:
        expected = replace(expected, prev_producer_id=-1, next_producer_id=-1)
    return record._replace(transaction=expected)


KAFKAS = {
    "IllegalStateException": "illegal",
    "IllegalArgumentException": "illegal",
    "ProducerFencedException": "PRODUCER_FENCED",
}


def steps(text: str) -> Iterator[tuple[str, str, str]]:
    """Each line, what it comes to here, and what Kafka has recorded."""
    script = None
    for line in text.splitlines():
        operation, _, recorded = line.partition(" =")
        name, fields = parsed(operation)
        if name == "new":
            script = Script(fields)
            continue
        assert script is not None
        recorded = recorded.strip()
        yield line, script.step(name, fields), KAFKAS.get(recorded, recorded)


def test_transitions_write_the_records_that_kafka_writes() -> None:
    count = 0
    for line, found, recorded in steps(RECORDED.read_text(encoding="utf-8")):
        assert found == recorded, line
        count += 1
    assert count > 400
