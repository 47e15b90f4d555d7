"""Records written to a real Kafka by stock clients, from a seed, for the tests to clean.

Which records share a batch depends on timing, so two runs with one seed write the same records but
not the same bytes. Every delivery is checked: a record that Kafka refuses fails the run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from support.kafka import KafkaRunError, RealKafka, poll_until
from support.kafka_programs import kafka_tool
from support.wire import Wire

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
DAY_MS: Final = 86_400_000
_FLUSH_SECONDS_MAX: Final = 300
_TRANSACTION_TIMEOUT_MS: Final = 300_000
_BATCH_BYTES: Final = 6_000
_BATCH_RECORDS: Final = (1, 7, 40, 200)


class Workload:
    """Writes to one broker. `random` is the only source of random numbers."""

    def __init__(self, kafka: RealKafka, seed: int) -> None:
        self.kafka = kafka
        self.random = random.Random(seed)  # noqa: S311  # nothing here is secret
        self._transactional: dict[str, Producer] = {}
        self._refused: list[str] = []

    def value(self, length_max: int, *, length_min: int = 0) -> bytes:
        """Printable bytes that compress by about half."""
        length = self.random.randint(length_min, length_max)
        return self.random.randbytes((length + 1) // 2).hex().encode()[:length]

    def create(self, topics: Mapping[str, Mapping[str, str]], *, partitions: int = 1) -> None:
        """Creates topics with these configs."""
        wanted = [NewTopic(name, partitions, 1, config=dict(c)) for name, c in topics.items()]
        admin = self.kafka.admin()  # Its futures fail when it is collected before they are done.
        for done in admin.create_topics(wanted).values():
            done.result()

    def alter(self, topic: str, config: Mapping[str, str]) -> None:
        """Sets configs of a topic."""
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        admin = self.kafka.admin()
        for done in admin.incremental_alter_configs([resource]).values():
            done.result()

    def alter_brokers(self, config: Mapping[str, str], *, broker: int | None = None) -> None:
        """Sets dynamic configs of one broker, or without `broker` the cluster-wide defaults."""
        entity = ["--entity-default"] if broker is None else ["--entity-name", str(broker)]
        settings = ",".join(f"{key}={value}" for key, value in config.items())
        where = ["--bootstrap-server", self.kafka.bootstrap_servers, "--entity-type", "brokers"]
        done = kafka_tool("configs", *where, *entity, "--alter", "--add-config", settings)
        if done.returncode != 0:
            raise KafkaRunError(f"kafka-configs failed: {done.stdout}{done.stderr}")

    def producer(self, settings: Mapping[str, Any] | None = None) -> Producer:
        """A producer whose batches fit small segments; how many records they hold is random."""
        small = {
            "linger.ms": 5,
            "batch.size": _BATCH_BYTES,
            "batch.num.messages": self.random.choice(_BATCH_RECORDS),
        }
        return Producer(self.kafka.client({**small, **(settings or {})}))

    def send(self, producer: Producer, topic: str, value: bytes | None, **fields: Any) -> None:
        """Gives one record to `producer`, waiting when its queue is full."""
        while True:
            try:
                producer.produce(topic, value, on_delivery=self._delivered, **fields)
            except BufferError:
                producer.poll(0.1)
            else:
                return

    def flush(self, producer: Producer) -> None:
        """Waits until everything is acknowledged.

        Raises:
            KafkaRunError: Kafka refused a record, or did not answer.
        """
        left = producer.flush(_FLUSH_SECONDS_MAX)
        if left or self._refused:
            raise KafkaRunError(f"{left} records not delivered; refused: {self._refused[:3]}")

    def fill(
        self,
        topic: str,
        count: int,
        *,
        keys: int = 200,
        unkeyed: float = 0,
        tombstones: float = 0.03,
        timestamp: Callable[[int], int] | None = None,
        headers: bool = False,
        length_max: int = 300,
        length_min: int = 0,
        partition: int | None = None,
        settings: Mapping[str, Any] | None = None,
        producer: Producer | None = None,
    ) -> None:
        """Writes `count` records over `keys` keys, low numbers more often than high ones.

        `unkeyed` and `tombstones` are shares of 1. `timestamp` gives ms by the record's number.
        """
        writer = producer or self.producer(settings)
        for number in range(count):
            key = None
            if not unkeyed or self.random.random() >= unkeyed:
                key = b"key-%d" % int(self.random.random() ** 2 * keys)
            value = None
            if key is None or self.random.random() >= tombstones:
                value = self.value(length_max, length_min=length_min)
            fields: dict[str, Any] = {"key": key}
            if timestamp is not None:
                fields["timestamp"] = timestamp(number)
            if headers:
                fields["headers"] = self._headers()
            if partition is not None:
                fields["partition"] = partition
            self.send(writer, topic, value, **fields)
            if number % 100 == 0:
                writer.poll(0)
        self.flush(writer)

    def transactional(self, transactional_id: str, **settings: Any) -> Producer:
        """The producer of this id, made and initialised when first asked for."""
        if transactional_id not in self._transactional:
            self._transactional[transactional_id] = self._initialised(transactional_id, **settings)
        return self._transactional[transactional_id]

    def _initialised(self, transactional_id: str, **settings: Any) -> Producer:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        made = self.producer({"transactional.id": transactional_id, **dotted})
        made.init_transactions(_FLUSH_SECONDS_MAX)
        return made

    def transactions(
        self, topic: str, count: int, *, ids: int = 3, aborted: float = 0.35, keys: int = 150
    ) -> None:
        """Writes transactions that overlap: some commit, some abort, some records are in none.

        The producers are new: one that was connected before the broker restarted may wait for its
        coordinator until its records time out.
        """
        producers: dict[str, Producer] = {}
        open_now: set[str] = set()
        plain = self.producer()
        names = [f"{topic}-{number}" for number in range(ids)]
        for _ in range(count):
            name = self.random.choice(names)
            codec = self.random.choice(CODECS)
            if name not in producers:
                producers[name] = self._initialised(
                    name, compression_type=codec, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS
                )
            producer = producers[name]
            if name not in open_now:
                producer.begin_transaction()
                open_now.add(name)
            self.fill(topic, self.random.randint(1, 40), keys=keys, producer=producer)
            if self.random.random() < 0.3:
                self.fill(topic, self.random.randint(1, 10), keys=keys, producer=plain)
            if self.random.random() < 0.6:
                self._end(producer, aborted)
                open_now.discard(name)
        for name in sorted(open_now):
            self._end(producers[name], aborted)
        self._wait_for_markers(sorted(producers))

    def commit_offsets(self, topics: Sequence[str], *, groups: int, commits: int) -> None:
        """Commits offsets of each group many times over, with a rebalance of a real member each."""
        for number in range(groups):
            with self._consumer(f"group-{number}") as consumer:
                for _ in range(commits):
                    offsets = [TopicPartition(t, 0, self.random.randrange(1000)) for t in topics]
                    consumer.commit(offsets=offsets, asynchronous=False)
            with self._consumer(f"member-{number}") as consumer:
                consumer.subscribe(list(topics))
                _wait_for_assignment(consumer)

    def delete_records(self, topic: str, offset: int, *, partition: int = 0) -> None:
        """Moves a partition's log start offset forward, as kafka-delete-records does."""
        where = [TopicPartition(topic, partition, offset)]
        admin = self.kafka.admin()
        for done in admin.delete_records(where).values():
            done.result()

    def _headers(self) -> list[tuple[str, bytes | None]]:
        return [
            (f"h{number}", self.value(20) if self.random.random() < 0.8 else None)
            for number in range(self.random.randrange(4))
        ]

    def _end(self, producer: Producer, aborted: float) -> None:
        if self.random.random() < aborted:
            producer.abort_transaction(_FLUSH_SECONDS_MAX)
        else:
            producer.commit_transaction(_FLUSH_SECONDS_MAX)

    def _wait_for_markers(self, ids: Sequence[str]) -> None:
        """Waits for the markers of the last transactions: they follow the answer to the client."""
        with Wire(self.kafka.port) as wire:

            def ended() -> bool:
                asked = {"transactional_ids": ids}
                told = wire.ask("describe_transactions", 0, asked)["transaction_states"]
                return all(each["transaction_state"].startswith("Complete") for each in told)

            poll_until(ended, timeout_s=_FLUSH_SECONDS_MAX, what="the markers of transactions")

    @contextmanager
    def _consumer(self, group: str) -> Iterator[Consumer]:
        consumer = Consumer(self.kafka.client({"group.id": group, "enable.auto.commit": False}))
        try:
            yield consumer
        finally:
            consumer.close()

    def _delivered(self, error: Any, _message: Message) -> None:
        if error is not None:
            self._refused.append(str(error))


def _wait_for_assignment(consumer: Consumer) -> None:
    def is_assigned() -> bool:
        consumer.poll(0.05)
        return bool(consumer.assignment())

    poll_until(is_assigned, timeout_s=_FLUSH_SECONDS_MAX, what="a member's partitions")
