"""A mixed cluster of one real controller, and brokers of Kafka and of Cordwood."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.cluster_broker import ClusterBroker
from support.cluster_soak.judge import Judge
from support.cluster_soak.producers import Writer, idempotent, transactional
from support.kafka import poll_until
from support.kafka_cluster import KafkaBroker, KafkaController
from support.wire import ConnectionClosedError, Wire

PARTITIONS: Final = 3
NUMBERS, TRANSACTIONS = "numbers", "transactions"
_WAIT_S: Final = 120.0
_CONTROLLER: Final = "kill of the controller"
_KINDS: Final = {"kill": 4, "suspend": 3, "stop": 2, "leaders": 2, _CONTROLLER: 1}
_PROPERTIES: Final = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "200",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
}

Broker = KafkaBroker | ClusterBroker


@dataclass(slots=True)
class Outcome:
    """What happened, and what was wrong."""

    events: Counter[str]
    counts: Counter[str]
    transactions: Counter[str]
    complaints: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """A line."""
        return f"{dict(self.events)}; {dict(self.counts)}; {dict(self.transactions)}"


class ClusterSoak:
    """One run: each partition has a replica on every broker, and needs two to be written."""

    def __init__(
        self, root: Path, *, kafka: Sequence[int], cordwood: Sequence[int], seed: int
    ) -> None:
        """The ids of the brokers of each kind."""
        self._root = root
        self._kafka, self._cordwood = kafka, cordwood
        self._random = random.Random(seed)  # noqa: S311  # a schedule
        self._brokers: dict[int, Broker] = {}
        self._events: Counter[str] = Counter()

    def run(self, events: int) -> Outcome:
        """Lets so many things happen, each after the cluster has recovered from the last."""
        session = {"broker.session.timeout.ms": "3000"}
        judge = Judge()
        with KafkaController(self._root / "controller", properties=session) as controller:
            controller.start()
            with ExitStack() as stack:
                self._start(controller, stack)
                self._admin = AdminClient(self._client())
                self._make_topics()
                writers = [
                    Writer(idempotent(self._client(), NUMBERS, PARTITIONS, judge)),
                    Writer(transactional(self._client(), TRANSACTIONS, PARTITIONS, judge)),
                ]
                try:
                    for _ in range(events):
                        self._happen(controller)
                        poll_until(self._is_whole, timeout_s=_WAIT_S, what="all are in sync")
                finally:
                    for writer in writers:
                        writer.stop()
                poll_until(self._is_whole, timeout_s=_WAIT_S, what="all are in sync")
                complaints = judge.complaints(
                    {p: self._numbers(p) for p in range(PARTITIONS)},
                    {p: self._values(TRANSACTIONS, p) for p in range(PARTITIONS)},
                )
                poll_until(self._has_equal_ends, timeout_s=_WAIT_S, what="all have all")
        return Outcome(
            self._events, judge.counts, judge.outcomes(), complaints + self._differences()
        )

    # ---- brokers

    def _start(self, controller: KafkaController, stack: ExitStack) -> None:
        for node_id in self._kafka:
            broker = KafkaBroker(
                self._root / f"kafka-{node_id}", controller, node_id, properties=_PROPERTIES
            )
            self._brokers[node_id] = stack.enter_context(broker)
            broker.start()
        for node_id in self._cordwood:
            own = ClusterBroker(
                self._root / f"cordwood-{node_id}", controller, node_id, properties=_PROPERTIES
            )
            self._brokers[node_id] = stack.enter_context(own)
        # They have all they need for a clean stop, in any order, while the controller runs.
        stack.callback(self._stop_kafka)

    def _stop_kafka(self) -> None:
        for node_id in self._kafka:
            self._brokers[node_id].stop()

    def _happen(self, controller: KafkaController) -> None:
        time.sleep(self._random.uniform(0.5, 2.0))  # the producers are at work
        kind = self._random.choices(list(_KINDS), list(_KINDS.values()))[0]
        node_id = self._random.choice(sorted(self._brokers))
        broker = self._brokers[node_id]
        if kind == _CONTROLLER:
            controller.kill()
            time.sleep(self._random.uniform(0.0, 4.0))
            controller.start()
            self._events[kind] += 1
            return
        if kind == "kill":
            broker.kill()
            time.sleep(self._random.uniform(0.0, 4.0))
            broker.start()
        elif kind == "suspend":
            os.kill(broker.pid, signal.SIGSTOP)
            time.sleep(self._random.uniform(1.0, 6.0))
            os.kill(broker.pid, signal.SIGCONT)
        elif kind == "stop":
            broker.stop()
            broker.start()
        else:
            self._elect()
        self._events[f"{kind} {'kafka' if node_id in self._kafka else 'cordwood'}"] += 1

    def _elect(self) -> None:
        """Moves the leaders to the preferred replicas."""
        port = self._random.choice(list(self._brokers.values())).port
        with contextlib.suppress(OSError, ConnectionClosedError), Wire(port) as wire:
            wire.ask("elect_leaders", 2, {"election_type": 0, "topic_partitions": None})

    # ---- topics

    def _client(self, **settings: Any) -> dict[str, Any]:
        servers = ",".join(each.bootstrap_servers for each in self._brokers.values())
        return {"bootstrap.servers": servers, "log_level": 0, **settings}

    def _make_topics(self) -> None:
        ids = sorted(self._brokers)
        assignment = [ids[n:] + ids[:n] for n in range(PARTITIONS)]
        configs = {"min.insync.replicas": "2"}
        made = self._admin.create_topics(
            [
                NewTopic(name, PARTITIONS, replica_assignment=assignment, config=configs)
                for name in (NUMBERS, TRANSACTIONS)
            ]
        )
        for each in made.values():
            each.result()

    def _is_whole(self) -> bool:
        """Whether every partition of every topic has all its replicas in sync."""
        try:
            topics = self._admin.list_topics(timeout=5).topics
        except KafkaException:
            return False
        return {NUMBERS, TRANSACTIONS} <= topics.keys() and all(
            set(partition.isrs) == set(partition.replicas)
            for topic in topics.values()
            for partition in topic.partitions.values()
        )

    def _read(self, topic: str, partition: int) -> list[tuple[int, bytes]]:
        """All that is committed, from the start to the last stable offset."""
        consumer = Consumer(
            self._client(
                **{
                    "group.id": "reader",
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed",
                    "enable.partition.eof": True,
                }
            )
        )
        consumer.assign([TopicPartition(topic, partition, 0)])
        found = []
        ends = time.monotonic() + _WAIT_S
        try:
            while time.monotonic() < ends:
                for message in consumer.consume(1000, 1.0):
                    if message.error() is None:
                        found.append((message.offset(), message.value()))
                    elif message.error().name() == "_PARTITION_EOF":
                        return found
        finally:
            consumer.close()
        raise TimeoutError(f"{topic}-{partition} was not read to its end in {_WAIT_S} s")

    def _numbers(self, partition: int) -> list[tuple[int, int]]:
        return [(offset, int(value)) for offset, value in self._read(NUMBERS, partition)]

    def _values(self, topic: str, partition: int) -> list[bytes]:
        return [value for _, value in self._read(topic, partition)]

    # ---- replicas

    def _logs(self, topic: str, partition: int) -> dict[int, bytes]:
        return {
            node_id: b"".join(
                path.read_bytes()
                for path in sorted((broker.log_dirs[0] / f"{topic}-{partition}").glob("*.log"))
            )
            for node_id, broker in self._brokers.items()
        }

    def _has_equal_ends(self) -> bool:
        return all(
            len(set(map(len, self._logs(topic, partition).values()))) == 1
            for topic in (NUMBERS, TRANSACTIONS)
            for partition in range(PARTITIONS)
        )

    def _differences(self) -> list[str]:
        """The partitions whose replicas are not the same bytes."""
        return [
            f"the replicas of {topic}-{partition} differ"
            for topic in (NUMBERS, TRANSACTIONS)
            for partition in range(PARTITIONS)
            if len(set(self._logs(topic, partition).values())) != 1
        ]
