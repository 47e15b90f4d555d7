"""The other end of each check: librdkafka makes topics, and reads everything again."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.format.record_batch import iter_batches
from support.kafka import poll_until
from support.stock_clients.base import READ_SECONDS_MAX, Codec, Start, StockRecord
from support.stock_clients.confluent import ConfluentClient
from support.wire import Wire

_TICK_SECONDS: Final = 0.1
#: In a group of the consumer protocol the broker sets the interval of heartbeats.
_MEMBER_SETTINGS: Final[Mapping[str, Mapping[str, str | int]]] = {
    "classic": {"partition.assignment.strategy": "range", "heartbeat.interval.ms": 200},
    "consumer": {},
}
#: The last that names topics.
_FETCH_VERSION: Final = 12
_KEEP: Final = {"retention.ms": "-1"}


class Neutral:
    """Sets the stage for one client, and looks at what it has done."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.client = ConfluentClient(bootstrap_servers)
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})

    def topic(self, configs: Mapping[str, str] | None = None, *, partitions: int = 1) -> str:
        """A new topic; unless `configs` says so, retention leaves its records alone."""
        name = f"stock-{uuid.uuid4().hex[:12]}"
        new = NewTopic(name, num_partitions=partitions, config={**_KEEP, **(configs or {})})
        self.admin.create_topics([new])[name].result(READ_SECONDS_MAX)
        self._wait_for_leaders(name, partitions)
        return name

    def has_topic(self, name: str) -> bool:
        """True while the broker lists the topic."""
        return name in self.admin.list_topics(timeout=READ_SECONDS_MAX).topics

    def write(
        self,
        topic: str,
        records: Sequence[StockRecord],
        *,
        codec: Codec = "none",
        max_bytes: int = 1_000_000,
    ) -> None:
        """Appends records."""
        self.client.produce(topic, records, codec=codec, max_bytes=max_bytes)

    def read(self, topic: str, count: int, *, start: int = 0) -> list[StockRecord]:
        """`count` records from an offset on."""
        return self.client.consume(topic, Start("offset", start), count)

    def stored_codecs(self, topic: str, before: int) -> set[str]:
        """The codecs of the batches as they are stored, of those that begin before an offset."""
        place = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 2**30}
        request = {"min_bytes": 1, "topics": [{"topic": topic, "partitions": [place]}]}
        with self._wire() as wire:
            answer = wire.ask("fetch", _FETCH_VERSION, request)
        records = answer["responses"][0]["partitions"][0]["records"]
        batches = [batch for _, batch in iter_batches(records) if batch.base_offset < before]
        return {batch.codec.config_name for batch in batches}

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """The offset of the next record."""
        return self.client.watermarks(topic, partition)[1]

    def start_offset(self, topic: str) -> int:
        """The log start."""
        return self.client.watermarks(topic)[0]

    def delete_records(self, topic: str, before: int) -> None:
        """Moves the log start to the offset `before`."""
        place = TopicPartition(topic, 0, before)
        self.admin.delete_records([place])[place].result(READ_SECONDS_MAX)

    def commit(self, group: str, topic: str, offset: int) -> None:
        """Sets the offset of a group without members."""
        places = [TopicPartition(topic, 0, offset)]
        wanted = ConsumerGroupTopicPartitions(group, places)
        self.admin.alter_consumer_group_offsets([wanted])[group].result(READ_SECONDS_MAX)

    def committed(self, group: str, topic: str, partition: int = 0) -> int:
        """A group's offset."""
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
        answer = self.admin.list_consumer_group_offsets([wanted])[group].result(READ_SECONDS_MAX)
        offset: int = answer.topic_partitions[0].offset
        return offset

    def group_type(self, group: str) -> str:
        """The type that the broker lists for a group: classic or consumer."""
        listed = self.admin.list_consumer_groups().result(READ_SECONDS_MAX)
        [found] = [each for each in listed.valid if each.group_id == group]
        name: str = found.type.name
        return name.lower()

    @contextmanager
    def member(self, topic: str, group: str, protocol: str) -> Iterator[Callable[[], set[int]]]:
        """A member of a group that commits nothing; yields a function for its partitions."""
        settings = {
            "bootstrap.servers": self.bootstrap_servers,
            "log_level": 0,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **_MEMBER_SETTINGS[protocol],
        }
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        ended = threading.Event()

        held: set[int] = set()

        def poll() -> None:
            nonlocal held
            while not ended.is_set():
                consumer.poll(_TICK_SECONDS)
                # Not for other threads: it may wait for the one that polls.
                held = {place.partition for place in consumer.assignment()}

        thread = threading.Thread(target=poll, name="member", daemon=True)
        thread.start()
        try:
            yield lambda: held
        finally:
            ended.set()
            thread.join()
            consumer.close()

    @contextmanager
    def ticking(self, topic: str, *, partitions: int = 1) -> Iterator[None]:
        """A record `tick` with an empty key every tenth of a second, in each partition."""
        ended = threading.Event()
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

        def tick() -> None:
            while not ended.wait(_TICK_SECONDS):
                for partition in range(partitions):
                    producer.produce(topic, b"tick", b"", partition=partition)
                producer.poll(0)

        thread = threading.Thread(target=tick, name="ticking", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            producer.flush(READ_SECONDS_MAX)

    def _wire(self) -> Wire:
        host, _, port = self.bootstrap_servers.rpartition(":")
        return Wire(int(port), host=host)

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        def led() -> bool:
            found = self.admin.list_topics(name, timeout=READ_SECONDS_MAX).topics[name]
            return len(found.partitions) == partitions and all(
                partition.leader >= 0 for partition in found.partitions.values()
            )

        poll_until(led, timeout_s=READ_SECONDS_MAX, what=f"{name} has leaders")


def now_ms() -> int:
    """The real time, which the clients go by."""
    return time.time_ns() // 1_000_000
