"""Transactions of aiokafka, on an event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced

from support.stock_clients.aiokafka import stock_record
from support.stock_clients.base import READ_SECONDS_MAX, StockRecord
from support.stock_clients.sessions.base import (
    HEARTBEAT_MS,
    LAST,
    SESSION_TIMEOUT_MS,
    FencedError,
    Isolation,
)

T = TypeVar("T")


class AiokafkaTransactions:
    """Kafka's protocol on asyncio."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True).start()

    def open(self, transactional_id: str, source: str, group: str) -> AiokafkaSession:
        """A session."""
        producer = self.run(self._producer(transactional_id))
        settings = {
            "bootstrap_servers": self._servers,
            "group_id": group,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }
        return AiokafkaSession(self, producer, settings, source)

    def told(self, taken: Any) -> StockRecord:
        """A record."""
        return stock_record(taken)

    def read_all(self, topic: str, isolation: Isolation) -> list[StockRecord]:
        """The records."""
        return self.run(self._read_all(topic, isolation))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs on the loop; the loop runs between calls too."""

        async def bounded() -> T:
            return await asyncio.wait_for(work, READ_SECONDS_MAX)

        return asyncio.run_coroutine_threadsafe(bounded(), self._loop).result()

    async def _producer(self, transactional_id: str) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._servers, transactional_id=transactional_id
        )
        await producer.start()
        return producer

    async def _read_all(self, topic: str, isolation: Isolation) -> list[StockRecord]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._servers, isolation_level=isolation)
        await consumer.start()
        read: list[StockRecord] = []
        try:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            while not read or read[-1].value != LAST:
                read.append(stock_record(await consumer.getone()))
        finally:
            await consumer.stop()
        return read


class AiokafkaSession:
    """A producer and, from the first `take` on, a consumer."""

    def __init__(
        self,
        client: AiokafkaTransactions,
        producer: AIOKafkaProducer,
        settings: dict[str, Any],
        source: str,
    ) -> None:
        self._client = client
        self._producer = producer
        self._settings = settings
        self._source = source
        self._consumer: AIOKafkaConsumer | None = None

    def take(self, count: int, seconds_max: float) -> list[Any]:
        """The next records."""
        return self._client.run(asyncio.wait_for(self._take(count), seconds_max))

    async def _take(self, count: int) -> list[Any]:
        if self._consumer is None:
            self._consumer = AIOKafkaConsumer(self._source, **self._settings)
            await self._consumer.start()
        return [await self._consumer.getone() for _ in range(count)]

    def begin(self) -> None:
        """Begins."""
        self._client.run(self._producer.begin_transaction())

    def send(self, topic: str, records: Sequence[StockRecord]) -> None:
        """Writes."""
        self._client.run(self._send(topic, records))

    async def _send(self, topic: str, records: Sequence[StockRecord]) -> None:
        sent = [
            await self._producer.send(topic, value=record.value, key=record.key, partition=0)
            for record in records
        ]
        await asyncio.gather(*sent)

    def send_offsets(self, taken: Sequence[Any]) -> None:
        """Adds offsets; aiokafka names the group alone, not the member."""
        offsets = {
            TopicPartition(record.topic, record.partition): record.offset + 1 for record in taken
        }
        group = self._settings["group_id"]
        self._client.run(self._producer.send_offsets_to_transaction(offsets, group))

    def commit(self) -> None:
        """Commits."""
        try:
            self._client.run(self._producer.commit_transaction())
        except (InvalidProducerEpoch, ProducerFenced) as error:
            raise FencedError(repr(error)) from error

    def abort(self) -> None:
        """Aborts, and seeks."""
        self._client.run(self._abort())

    async def _abort(self) -> None:
        await self._producer.abort_transaction()
        assert self._consumer is not None
        for place in self._consumer.assignment():
            self._consumer.seek(place, await self._consumer.committed(place) or 0)

    def close(self) -> None:
        """Leaves."""
        if self._consumer is not None:
            self._client.run(self._consumer.stop())
