"""Transactions of confluent-kafka."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from support.stock_clients.base import READ_SECONDS_MAX, StockClientError, StockRecord
from support.stock_clients.confluent import stock_record
from support.stock_clients.sessions.base import (
    HEARTBEAT_MS,
    LAST,
    SESSION_TIMEOUT_MS,
    FencedError,
    Isolation,
)

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


class ConfluentTransactions:
    """librdkafka."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}

    def open(self, transactional_id: str, source: str, group: str) -> ConfluentSession:
        """A session."""
        producer = Producer({**self._common, "transactional.id": transactional_id})
        producer.init_transactions(READ_SECONDS_MAX)
        settings = {
            **self._common,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
        }
        return ConfluentSession(producer, settings, source)

    def told(self, taken: Message) -> StockRecord:
        """A record."""
        return stock_record(taken)

    def read_all(self, topic: str, isolation: Isolation) -> list[StockRecord]:
        """The records."""
        settings = {"group.id": "no group", "isolation.level": isolation}
        consumer = Consumer({**self._common, **settings})
        deadline = time.monotonic() + READ_SECONDS_MAX
        read: list[StockRecord] = []
        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            while not read or read[-1].value != LAST:
                read += map(stock_record, _polled(consumer, deadline))
        finally:
            consumer.close()
        return read


class ConfluentSession:
    """A producer and, from the first `take` on, a consumer."""

    def __init__(self, producer: Producer, settings: dict[str, Any], source: str) -> None:
        self._producer = producer
        self._settings = settings
        self._source = source
        self._consumer: Consumer | None = None

    def take(self, count: int, seconds_max: float) -> list[Message]:
        """The next records."""
        if self._consumer is None:
            self._consumer = Consumer(self._settings)
            self._consumer.subscribe([self._source])
        deadline = time.monotonic() + seconds_max
        taken: list[Message] = []
        while len(taken) < count:
            taken += _polled(self._consumer, deadline)
        return taken

    def begin(self) -> None:
        """Begins."""
        self._producer.begin_transaction()

    def send(self, topic: str, records: Sequence[StockRecord]) -> None:
        """Writes."""
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        for record in records:
            self._producer.produce(
                topic, record.value, record.key, partition=0, on_delivery=delivered
            )
        left = self._producer.flush(READ_SECONDS_MAX)
        if left or failed:
            raise StockClientError(f"{left} records not delivered, {failed}")

    def send_offsets(self, taken: Sequence[Message]) -> None:
        """Adds offsets."""
        assert self._consumer is not None
        last = {message.partition(): message.offset() for message in taken}
        offsets = [TopicPartition(self._source, place, at + 1) for place, at in last.items()]
        metadata = self._consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(offsets, metadata, READ_SECONDS_MAX)

    def commit(self) -> None:
        """Commits."""
        try:
            self._producer.commit_transaction(READ_SECONDS_MAX)
        except KafkaException as error:
            if error.args[0].code() in _FENCED:
                raise FencedError(str(error)) from error
            raise

    def abort(self) -> None:
        """Aborts, and seeks."""
        self._producer.abort_transaction(READ_SECONDS_MAX)
        assert self._consumer is not None
        places = self._consumer.assignment()
        for place in self._consumer.committed(places, READ_SECONDS_MAX):
            self._consumer.seek(TopicPartition(place.topic, place.partition, max(place.offset, 0)))

    def close(self) -> None:
        """Leaves."""
        if self._consumer is not None:
            self._consumer.close()


def _polled(consumer: Consumer, deadline: float) -> list[Message]:
    if time.monotonic() > deadline:
        raise StockClientError("the records did not come in time")
    message = consumer.poll(0.5)
    if message is None:
        return []
    error = message.error()
    if error is not None:
        raise StockClientError(error.str())
    return [message]
