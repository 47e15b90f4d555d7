"""Transactions of kafka-python."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

from support.stock_clients.base import READ_SECONDS_MAX, StockClientError, StockRecord
from support.stock_clients.kafka_python import stock_record
from support.stock_clients.sessions.base import (
    HEARTBEAT_MS,
    LAST,
    SESSION_TIMEOUT_MS,
    FencedError,
    Isolation,
)

with warnings.catch_warnings():
    # It still uses what the standard library has deprecated.
    warnings.simplefilter("ignore")
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError
    from kafka.structs import OffsetAndMetadata

_POLL_MS = 500


class KafkaPythonTransactions:
    """Kafka's protocol in pure Python."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers

    def open(self, transactional_id: str, source: str, group: str) -> KafkaPythonSession:
        """A session."""
        producer = KafkaProducer(
            bootstrap_servers=self._servers,
            transactional_id=transactional_id,
            max_block_ms=READ_SECONDS_MAX * 1000,
        )
        producer.init_transactions()
        settings = {
            "bootstrap_servers": self._servers,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
        return KafkaPythonSession(producer, settings, source)

    def told(self, taken: Any) -> StockRecord:
        """A record."""
        return stock_record(taken)

    def read_all(self, topic: str, isolation: Isolation) -> list[StockRecord]:
        """The records."""
        consumer = KafkaConsumer(bootstrap_servers=self._servers, isolation_level=isolation)
        place = TopicPartition(topic, 0)
        deadline = time.monotonic() + READ_SECONDS_MAX
        read: list[StockRecord] = []
        try:
            consumer.assign([place])
            consumer.seek_to_beginning(place)
            while not read or read[-1].value != LAST:
                read += map(stock_record, _polled(consumer, 500, deadline))
        finally:
            consumer.close()
        return read


class KafkaPythonSession:
    """A producer and, from the first `take` on, a consumer."""

    def __init__(self, producer: KafkaProducer, settings: dict[str, Any], source: str) -> None:
        self._producer = producer
        self._settings = settings
        self._source = source
        self._consumer: KafkaConsumer | None = None

    def take(self, count: int, seconds_max: float) -> list[Any]:
        """The next records."""
        if self._consumer is None:
            self._consumer = KafkaConsumer(self._source, **self._settings)
        deadline = time.monotonic() + seconds_max
        taken: list[Any] = []
        while len(taken) < count:
            taken += _polled(self._consumer, count - len(taken), deadline)
        return taken

    def begin(self) -> None:
        """Begins."""
        self._producer.begin_transaction()

    def send(self, topic: str, records: Sequence[StockRecord]) -> None:
        """Writes."""
        sent = [
            self._producer.send(topic, value=record.value, key=record.key, partition=0)
            for record in records
        ]
        for future in sent:
            future.get(READ_SECONDS_MAX)

    def send_offsets(self, taken: Sequence[Any]) -> None:
        """Adds offsets."""
        assert self._consumer is not None
        offsets = {
            TopicPartition(record.topic, record.partition): OffsetAndMetadata(
                record.offset + 1, "", -1
            )
            for record in taken
        }
        self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())

    def commit(self) -> None:
        """Commits."""
        try:
            self._producer.commit_transaction()
        except (InvalidProducerEpochError, ProducerFencedError) as error:
            raise FencedError(repr(error)) from error

    def abort(self) -> None:
        """Aborts, and seeks."""
        self._producer.abort_transaction()
        assert self._consumer is not None
        for place in self._consumer.assignment():
            self._consumer.seek(place, self._consumer.committed(place) or 0)

    def close(self) -> None:
        """Leaves."""
        if self._consumer is not None:
            self._consumer.close(autocommit=False)


def _polled(consumer: KafkaConsumer, count: int, deadline: float) -> list[Any]:
    if time.monotonic() > deadline:
        raise StockClientError("the records did not come in time")
    try:
        polled = consumer.poll(_POLL_MS, max_records=count)
    except KafkaError as error:
        raise StockClientError(repr(error)) from error
    return [record for records in polled.values() for record in records]
