"""confluent-kafka: librdkafka in Python."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from support.stock_clients.base import (
    READ_SECONDS_MAX,
    Codec,
    NoOffsetError,
    Start,
    StockClientError,
    StockRecord,
    TopicExistsError,
)

_POLL_SECONDS: Final = 0.5
#: Without members: the consumer needs a group's name even when it never joins one.
_NO_GROUP: Final = "stock-client-without-group"


class ConfluentClient:
    """librdkafka's Python face."""

    name = "confluent-kafka"
    lacks: Mapping[str, str] = {
        "reset_by_duration": "librdkafka knows earliest, latest and error",
    }
    cannot_write: Mapping[str, str] = {}
    group_protocol = "classic"

    def __init__(self, bootstrap_servers: str) -> None:
        self._common: dict[str, Any] = {"bootstrap.servers": bootstrap_servers, "log_level": 0}

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
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        settings = {
            "compression.type": codec,
            "enable.idempotence": idempotent,
            "message.max.bytes": max_bytes,
            "acks": "all",
            "linger.ms": 5,
        }
        producer = Producer({**self._common, **settings})
        for record in records:
            producer.produce(
                topic,
                record.value,
                record.key,
                partition=0,
                headers=list(record.headers),
                timestamp=record.timestamp or 0,
                on_delivery=delivered,
            )
        left = producer.flush(READ_SECONDS_MAX)
        if failures or left:
            raise StockClientError(f"{left} records not delivered, {failures}")

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
        settings = self._consumer_settings(_NO_GROUP, reset)
        if fetch_bytes is not None:
            settings |= {
                "max.partition.fetch.bytes": fetch_bytes,
                "fetch.max.bytes": fetch_bytes,
                "message.max.bytes": fetch_bytes,
            }
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(topic, 0, self._offset(consumer, topic, start))])
            return self._read(consumer, count)
        finally:
            consumer.close()

    def consume_group(
        self, topic: str, group: str, count: int, *, reset: str = "earliest"
    ) -> list[StockRecord]:
        """Reads records as a group's only member."""
        consumer = Consumer(self._consumer_settings(group, reset))
        try:
            consumer.subscribe([topic])
            read = self._read(consumer, count)
            if read:
                last = read[-1]
                place = TopicPartition(topic, last.partition, last.offset + 1)
                consumer.commit(offsets=[place], asynchronous=False)
            return read
        finally:
            consumer.close()

    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """The log start and the offset of the next record."""
        consumer = Consumer(self._consumer_settings(_NO_GROUP, "none"))
        try:
            place = TopicPartition(topic, partition)
            low, high = consumer.get_watermark_offsets(place, timeout=READ_SECONDS_MAX)
            return low, high
        finally:
            consumer.close()

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Creates a topic."""
        new = NewTopic(topic, num_partitions=partitions, config=dict(configs))
        admin = AdminClient(self._common)  # kept: its answers end with it
        try:
            admin.create_topics([new])[topic].result(READ_SECONDS_MAX)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicExistsError(topic) from error
            raise

    def describe_topic(self, topic: str) -> tuple[int, dict[str, str | None]]:
        """Partitions and configs."""
        admin = AdminClient(self._common)
        resource = ConfigResource(ResourceType.TOPIC, topic)
        entries = admin.describe_configs([resource])[resource].result(READ_SECONDS_MAX)
        metadata = admin.list_topics(topic, timeout=READ_SECONDS_MAX)
        configs = {name: entry.value for name, entry in entries.items()}
        return len(metadata.topics[topic].partitions), configs

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""
        admin = AdminClient(self._common)
        admin.delete_topics([topic])[topic].result(READ_SECONDS_MAX)

    def close(self) -> None:
        """Nothing is kept open."""

    def _consumer_settings(self, group: str, reset: str) -> dict[str, Any]:
        return {
            **self._common,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "error" if reset == "none" else reset,
            "fetch.wait.max.ms": 100,
            "group.protocol": self.group_protocol,
        }

    def _offset(self, consumer: Consumer, topic: str, start: Start) -> int:
        known: dict[str, int] = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
        if start.kind != "timestamp":
            return known.get(start.kind, start.at)
        wanted = [TopicPartition(topic, 0, start.at)]
        [found] = consumer.offsets_for_times(wanted, timeout=READ_SECONDS_MAX)
        offset: int = found.offset
        return offset

    def _read(self, consumer: Consumer, count: int) -> list[StockRecord]:
        deadline = time.monotonic() + READ_SECONDS_MAX
        read: list[StockRecord] = []
        while len(read) < count and time.monotonic() < deadline:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            error = message.error()
            if error is None:
                read.append(stock_record(message))
            elif error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
                raise NoOffsetError(error.str())
            else:
                raise StockClientError(error.str())
        return read


def stock_record(message: Message) -> StockRecord:
    """A record of the client as a value."""
    return StockRecord(
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
        timestamp=message.timestamp()[1],
        offset=message.offset(),
        partition=message.partition(),
    )


class ConfluentConsumerProtocolClient(ConfluentClient):
    """The same, with members of the consumer protocol (KIP-848)."""

    name = "confluent-kafka-consumer-protocol"
    group_protocol = "consumer"
