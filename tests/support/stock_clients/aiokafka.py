"""aiokafka: an event loop of its own for each call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import (
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    for_code,
)

from support.stock_clients.base import (
    READ_SECONDS_MAX,
    Codec,
    NoOffsetError,
    Start,
    StockClientError,
    StockRecord,
    TopicExistsError,
)

_POLL_MS: Final = 500
_TOPIC_ALREADY_EXISTS: Final = 36


class AiokafkaClient:
    """Kafka's protocol on asyncio."""

    name = "aiokafka"
    lacks: Mapping[str, str] = {"reset_by_duration": "not a form of auto_offset_reset here"}
    cannot_write: Mapping[str, str] = {"null_key_and_value": "needs one of the two"}
    group_protocol = "classic"

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers

    def produce(
        self,
        topic: str,
        records: Sequence[StockRecord],
        *,
        codec: Codec = "none",
        idempotent: bool = False,
        max_bytes: int = 1_000_000,
    ) -> None:
        """Writes the records."""
        settings = {
            "compression_type": None if codec == "none" else codec,
            "enable_idempotence": idempotent,
            "max_request_size": max_bytes,
        }
        asyncio.run(self._produce(topic, records, settings))

    def consume(
        self,
        topic: str,
        start: Start,
        count: int,
        *,
        reset: str = "none",
        fetch_bytes: int | None = None,
    ) -> list[StockRecord]:
        """Reads records."""
        limits = {}
        if fetch_bytes is not None:
            limits = {"max_partition_fetch_bytes": fetch_bytes, "fetch_max_bytes": fetch_bytes}
        return asyncio.run(self._consume(topic, start, count, reset, limits))

    def consume_group(
        self, topic: str, group: str, count: int, *, reset: str = "earliest"
    ) -> list[StockRecord]:
        """Reads records as a group's only member."""
        return asyncio.run(self._consume_group(topic, group, count, reset))

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Creates a topic."""
        asyncio.run(self._create_topic(topic, partitions, configs))

    def describe_topic(self, topic: str) -> tuple[int, dict[str, str | None]]:
        """Partitions and configs."""
        return asyncio.run(self._describe_topic(topic))

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""
        asyncio.run(self._delete_topic(topic))

    def close(self) -> None:
        """Nothing is kept open."""

    async def _produce(
        self, topic: str, records: Sequence[StockRecord], settings: Mapping[str, Any]
    ) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._servers, acks="all", linger_ms=5, **settings
        )
        await producer.start()
        try:
            sent = [
                await producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=0,
                    timestamp_ms=record.timestamp,
                    headers=list(record.headers),
                )
                for record in records
            ]
            for future in sent:
                await asyncio.wait_for(future, READ_SECONDS_MAX)
        finally:
            await producer.stop()

    async def _consume(
        self, topic: str, start: Start, count: int, reset: str, settings: Mapping[str, Any]
    ) -> list[StockRecord]:
        place = TopicPartition(topic, 0)
        async with self._consumer(None, reset, settings) as consumer:
            consumer.assign([place])
            if start.kind == "earliest":
                await consumer.seek_to_beginning(place)
            elif start.kind == "latest":
                await consumer.seek_to_end(place)
            elif start.kind == "offset":
                consumer.seek(place, start.at)
            else:
                found = (await consumer.offsets_for_times({place: start.at}))[place]
                if found is None:
                    raise StockClientError(f"no record at {start.at} or later")
                consumer.seek(place, found.offset)
            return await self._read(consumer, count)

    async def _consume_group(
        self, topic: str, group: str, count: int, reset: str
    ) -> list[StockRecord]:
        async with self._consumer(group, reset, {}) as consumer:
            consumer.subscribe([topic])
            read = await self._read(consumer, count)
            if read:
                place = TopicPartition(topic, read[-1].partition)
                await consumer.commit({place: read[-1].offset + 1})
            return read

    async def _create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        async with self._admin() as admin:
            new = NewTopic(topic, partitions, 1, topic_configs=dict(configs))
            try:
                response = await admin.create_topics([new])
            except TopicAlreadyExistsError as error:
                raise TopicExistsError(topic) from error
        _check(response.topic_errors)

    async def _describe_topic(self, topic: str) -> tuple[int, dict[str, str | None]]:
        async with self._admin() as admin:
            [described] = await admin.describe_topics([topic])
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            [response] = await admin.describe_configs([resource])
        [told] = response.resources
        configs = {entry[0]: entry[1] for entry in told[-1]}
        return len(described["partitions"]), configs

    async def _delete_topic(self, topic: str) -> None:
        async with self._admin() as admin:
            response = await admin.delete_topics([topic])
        _check(response.topic_error_codes)

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._servers)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    @asynccontextmanager
    async def _consumer(
        self, group: str | None, reset: str, settings: Mapping[str, Any]
    ) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset=reset,
            fetch_max_wait_ms=100,
            partition_assignment_strategy=(RangePartitionAssignor,),
            **settings,
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()

    async def _read(self, consumer: AIOKafkaConsumer, count: int) -> list[StockRecord]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READ_SECONDS_MAX
        read: list[StockRecord] = []
        try:
            while len(read) < count and loop.time() < deadline:
                polled = await consumer.getmany(timeout_ms=_POLL_MS, max_records=count - len(read))
                read += [stock_record(record) for records in polled.values() for record in records]
        except (NoOffsetForPartitionError, OffsetOutOfRangeError) as error:
            raise NoOffsetError(repr(error)) from error
        return read


def _check(results: Sequence[Sequence[Any]]) -> None:
    for topic, code, *_ in results:
        if code == _TOPIC_ALREADY_EXISTS:
            raise TopicExistsError(topic)
        if code != 0:
            raise StockClientError(f"{topic}: {for_code(code).__name__}")


def stock_record(record: Any) -> StockRecord:
    """A record of the client as a value."""
    headers = tuple((name, value) for name, value in record.headers)
    place = record.offset, record.partition
    return StockRecord(record.key, record.value, headers, record.timestamp, *place)
