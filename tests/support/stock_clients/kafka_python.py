"""kafka-python."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Final

from support.stock_clients.base import (
    READ_SECONDS_MAX,
    Codec,
    NoOffsetError,
    Start,
    StockClientError,
    StockRecord,
    TopicExistsError,
)

with warnings.catch_warnings():
    # It still uses what the standard library has deprecated.
    warnings.simplefilter("ignore")
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType
    from kafka.errors import (
        NoOffsetForPartitionError,
        OffsetOutOfRangeError,
        TopicAlreadyExistsError,
    )
    from kafka.structs import OffsetAndMetadata

_POLL_MS: Final = 500


class KafkaPythonClient:
    """Kafka's protocol in pure Python."""

    name = "kafka-python"
    lacks: Mapping[str, str] = {"reset_by_duration": "not a form of auto_offset_reset here"}
    cannot_write: Mapping[str, str] = {
        "null_key_and_value": "needs one of the two",
        "null_headers": "takes only bytes as a header's value",
    }
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
        producer = KafkaProducer(
            bootstrap_servers=self._servers,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            max_request_size=max_bytes,
            acks="all",
            linger_ms=5,
        )
        try:
            sent = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=0,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            for future in sent:
                future.get(READ_SECONDS_MAX)
        finally:
            producer.close(READ_SECONDS_MAX)

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
        consumer = self._consumer(None, reset, limits)
        place = TopicPartition(topic, 0)
        try:
            consumer.assign([place])
            if start.kind == "earliest":
                consumer.seek_to_beginning(place)
            elif start.kind == "latest":
                consumer.seek_to_end(place)
            elif start.kind == "offset":
                consumer.seek(place, start.at)
            else:
                found = consumer.offsets_for_times({place: start.at})[place]
                if found is None:
                    raise StockClientError(f"no record at {start.at} or later")
                consumer.seek(place, found.offset)
            return self._read(consumer, count)
        finally:
            consumer.close()

    def consume_group(
        self, topic: str, group: str, count: int, *, reset: str = "earliest"
    ) -> list[StockRecord]:
        """Reads records as a group's only member."""
        consumer = self._consumer(group, reset, {})
        try:
            consumer.subscribe([topic])
            read = self._read(consumer, count)
            if read:
                committed = OffsetAndMetadata(read[-1].offset + 1, "", -1)
                consumer.commit({TopicPartition(topic, read[-1].partition): committed})
            return read
        finally:
            consumer.close(autocommit=False)

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """Creates a topic."""
        wanted = {"num_partitions": partitions, "replication_factor": 1, "configs": dict(configs)}
        admin = self._admin()
        try:
            admin.create_topics({topic: wanted})
        except TopicAlreadyExistsError as error:
            raise TopicExistsError(topic) from error
        finally:
            admin.close()

    def describe_topic(self, topic: str) -> tuple[int, dict[str, str | None]]:
        """Partitions and configs."""
        admin = self._admin()
        try:
            [described] = admin.describe_topics([topic])
            resource = ConfigResource(ConfigResourceType.TOPIC, topic)
            told = admin.describe_configs([resource], config_filter="all")
        finally:
            admin.close()
        configs = {name: entry["value"] for name, entry in told["topic"][topic].items()}
        return len(described["partitions"]), configs

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic."""
        admin = self._admin()
        try:
            admin.delete_topics([topic])
        finally:
            admin.close()

    def close(self) -> None:
        """Nothing is kept open."""

    def _admin(self) -> KafkaAdminClient:
        return KafkaAdminClient(bootstrap_servers=self._servers)

    def _consumer(
        self, group: str | None, reset: str, settings: Mapping[str, Any]
    ) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self._servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset=reset,
            fetch_max_wait_ms=100,
            **settings,
        )

    def _read(self, consumer: KafkaConsumer, count: int) -> list[StockRecord]:
        deadline = time.monotonic() + READ_SECONDS_MAX
        read: list[StockRecord] = []
        try:
            while len(read) < count and time.monotonic() < deadline:
                polled = consumer.poll(_POLL_MS, max_records=count - len(read))
                read += [stock_record(record) for records in polled.values() for record in records]
        except (NoOffsetForPartitionError, OffsetOutOfRangeError) as error:
            raise NoOffsetError(repr(error)) from error
        return read


def stock_record(record: Any) -> StockRecord:
    """A record of the client as a value."""
    headers = tuple((name, value) for name, value in record.headers)
    place = record.offset, record.partition
    return StockRecord(record.key, record.value, headers, record.timestamp, *place)
