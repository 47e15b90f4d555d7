"""A mixed cluster, its clients, and what happens to its brokers."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Message,
    TopicPartition,
)

from support.cluster_soak.judge import Judge
from support.cluster_soak.producers import idempotent, keyed, transactional
from support.cluster_soak.readers import member, read_committed
from support.cluster_soak.replicas import difference, dump
from support.cluster_soak.worker import Worker, stop_all
from support.kafka import poll_until, read_checkpoint
from support.kafka_tools import KafkaTools
from support.mixed_cluster import WAIT_S, MixedCluster
from support.wire import ConnectionClosedError, Wire
from support.wire_client import WireClient

PARTITIONS: Final = 3
NUMBERS, TRANSACTIONS, LATEST = "numbers", "transactions", "latest"
GROUPS: Final = ("classic", "consumer")
"""A group of each protocol, with its name."""
STEPS: Final = {
    "acknowledged": 100,
    "updated": 100,
    "transactions": 5,
    **{f"committed by {group}": 1 for group in GROUPS},
}
"""What has been done between two events, at least, as the judge counts it."""
_MEMBERS: Final = 2
CONTROLLER: Final = "kill of the controller"
KINDS: Final = {"kill": 4, "suspend": 3, "stop": 2, "leaders": 2, CONTROLLER: 1}
_PROPERTIES: Final = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "3000",
    "replica.fetch.backoff.ms": "200",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "log.initial.task.delay.ms": "1000",
}
_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "max.compaction.lag.ms": "2000",
    "min.cleanable.dirty.ratio": "0.01",
    "min.insync.replicas": "2",
}
_PLAIN: Final = {"min.insync.replicas": "2"}


@dataclass(slots=True)
class Outcome:
    """Events and faults; `cleaned` has the brokers that have compacted."""

    events: Counter[str]
    done: Counter[str]
    transactions: Counter[str]
    cleaned: set[int]
    complaints: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """A line."""
        return f"{dict(self.events)}; {dict(self.done)}; {dict(self.transactions)}"


class ClusterSoak:
    """One run: each partition has a replica on every broker, and needs two to be written."""

    def __init__(
        self,
        root: Path,
        *,
        kafka: Collection[int],
        cordwood: Collection[int],
        seed: int,
        module: str = "support.serve_in_process",
        has_own_controller: bool = False,
        kinds: Mapping[str, int] = KINDS,
    ) -> None:
        """Nothing runs yet.

        Args:
            root: where all files are.
            kafka: the ids of Kafka's brokers.
            cordwood: those of Cordwood's.
            seed: of what happens when.
            module: runs the brokers of Cordwood.
            has_own_controller: whether the controller is Cordwood's.
            kinds: how often each kind of event happens, relative to the others.
        """
        self._kafka = kafka
        self._cluster = MixedCluster(
            root,
            kafka=kafka,
            cordwood=cordwood,
            properties=_PROPERTIES,
            module=module,
            has_own_controller=has_own_controller,
        )
        self._kinds = kinds
        self._random = random.Random(seed)  # noqa: S311  # a schedule
        self._events: Counter[str] = Counter()

    def run(self, events: int) -> Outcome:
        """Lets so many things happen, each after the cluster has recovered from the last."""
        judge = Judge()
        with self._cluster as cluster:
            for name in (NUMBERS, TRANSACTIONS):
                cluster.create_topic(name, cluster.spread(PARTITIONS), _PLAIN)
            cluster.create_topic(LATEST, cluster.spread(PARTITIONS), _COMPACTED)
            self._work(judge, events)
            complaints = judge.complaints(
                {p: self._numbers(p) for p in range(PARTITIONS)},
                {p: self._values(TRANSACTIONS, p) for p in range(PARTITIONS)},
                {p: self._latest(p) for p in range(PARTITIONS)},
            )
            poll_until(self._has_cleaned, timeout_s=WAIT_S, what="every broker has compacted")
            poll_until(self._has_equal_ends, timeout_s=WAIT_S, what="all have all")
        return Outcome(
            self._events,
            judge.done(),
            judge.outcomes(),
            self._cleaned(),
            complaints + self._differences(),
        )

    def _work(self, judge: Judge, events: int) -> None:
        """Has clients work while things happen, and until the groups have read all."""
        client = self._cluster.client()
        readers = [
            Worker(member(client, group, group, NUMBERS, judge))
            for group in GROUPS
            for _ in range(_MEMBERS)
        ]
        try:
            writers = [
                Worker(make(client, topic, PARTITIONS, judge))
                for make, topic in (
                    (idempotent, NUMBERS),
                    (transactional, TRANSACTIONS),
                    (keyed, LATEST),
                )
            ]
            try:
                for _ in range(events):
                    self._wait_for_work(judge)
                    self._happen()
                    self._cluster.wait_until_in_sync(NUMBERS, TRANSACTIONS, LATEST)
            finally:
                stop_all(writers)
            self._cluster.wait_until_in_sync()
            poll_until(self._is_stable, timeout_s=WAIT_S, what="no transaction is open")
            poll_until(self._groups_have_all, timeout_s=WAIT_S, what="the groups have read all")
        finally:
            stop_all(readers)

    # ---- what happens

    def _wait_for_work(self, judge: Judge) -> None:
        """Returns when every client has done something since, and some time later."""
        before = judge.done()
        wanted = {name: before[name] + STEPS[name] for name in STEPS}
        poll_until(
            lambda: all(judge.done()[name] >= count for name, count in wanted.items()),
            timeout_s=WAIT_S,
            what="every client does something",
        )
        time.sleep(self._random.uniform(0.0, 1.0))

    def _happen(self) -> None:
        brokers, controller = self._cluster.brokers, self._cluster.controller
        kind = self._random.choices(list(self._kinds), list(self._kinds.values()))[0]
        node_id = self._random.choice(sorted(brokers))
        broker = brokers[node_id]
        if kind == CONTROLLER:
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
            try:
                time.sleep(self._random.uniform(1.0, 6.0))
            finally:
                os.kill(broker.pid, signal.SIGCONT)
        elif kind == "stop":
            broker.stop()
            broker.start()
        else:
            self._elect()
        self._events[f"{kind} {'kafka' if node_id in self._kafka else 'cordwood'}"] += 1

    def _elect(self) -> None:
        """Moves the leaders to the preferred replicas."""
        port = self._random.choice(list(self._cluster.brokers.values())).port
        with contextlib.suppress(OSError, ConnectionClosedError), Wire(port) as wire:
            wire.ask("elect_leaders", 2, {"election_type": 0, "topic_partitions": None})

    # ---- what is read in the end

    def _groups_have_all(self) -> bool:
        """Whether each group has committed the end of each partition."""
        consumer = Consumer(self._cluster.client({"group.id": "ends"}))
        try:
            ends = {
                p: consumer.get_watermark_offsets(TopicPartition(NUMBERS, p), timeout=30)[1]
                for p in range(PARTITIONS)
            }
        finally:
            consumer.close()
        for group in GROUPS:
            asked = [ConsumerGroupTopicPartitions(group)]
            try:
                found = self._cluster.admin.list_consumer_group_offsets(asked)[group].result()
            except KafkaException:
                return False  # its coordinator has to load it first
            offsets = {each.partition: each.offset for each in found.topic_partitions}
            if offsets != ends:
                return False
        return True

    def _is_stable(self) -> bool:
        """Whether each transaction has its markers: they are written behind the answer."""
        leaders = self._cluster.leaders(TRANSACTIONS)
        for partition, leader in leaders.items():
            with WireClient(self._cluster.brokers[leader].port) as wire:
                told = wire.fetch(TRANSACTIONS, partition)
            ends = told["last_stable_offset"], told["high_watermark"]
            if told["error_code"] != "none" or ends[0] != ends[1]:
                return False
        return len(leaders) == PARTITIONS

    def _read(self, topic: str, partition: int) -> list[Message]:
        return read_committed(self._cluster.client(), topic, partition)

    def _numbers(self, partition: int) -> list[tuple[int, int]]:
        return [(each.offset(), int(each.value())) for each in self._read(NUMBERS, partition)]

    def _values(self, topic: str, partition: int) -> list[bytes]:
        return [each.value() for each in self._read(topic, partition)]

    def _latest(self, partition: int) -> dict[bytes, tuple[int, bytes | None]]:
        return {each.key(): (each.offset(), each.value()) for each in self._read(LATEST, partition)}

    # ---- replicas

    def _checkpoints(self, partition: int) -> dict[int, int]:
        """The offsets up to which each broker has compacted a partition of the compacted topic."""
        return {
            node_id: read_checkpoint(broker.log_dirs[0] / "cleaner-offset-checkpoint").get(
                f"{LATEST}-{partition}", 0
            )
            for node_id, broker in self._cluster.brokers.items()
        }

    def _cleaned(self) -> set[int]:
        return {
            node_id
            for partition in range(PARTITIONS)
            for node_id, offset in self._checkpoints(partition).items()
            if offset
        }

    def _has_cleaned(self) -> bool:
        return self._cleaned() == set(self._cluster.brokers)

    def _has_equal_ends(self) -> bool:
        """Whether the replicas of the topics that are not compacted have the same size."""
        return all(
            len(set(map(len, self._cluster.logs(topic, partition).values()))) == 1
            for topic in (NUMBERS, TRANSACTIONS)
            for partition in range(PARTITIONS)
        )

    def _differences(self) -> list[str]:
        """The partitions whose replicas differ, by their bytes and in Kafka's dump-log."""
        found = [
            f"the replicas of {topic}-{partition} have other bytes"
            for topic in (NUMBERS, TRANSACTIONS)
            for partition in range(PARTITIONS)
            if len(set(self._cluster.logs(topic, partition).values())) != 1
        ]
        with KafkaTools() as tools:
            for topic in (NUMBERS, TRANSACTIONS, LATEST):
                for partition in range(PARTITIONS):
                    horizon = max(self._checkpoints(partition).values()) if topic == LATEST else 0
                    dumps = {
                        node_id: dump(tools, broker.log_dirs[0] / f"{topic}-{partition}")
                        for node_id, broker in self._cluster.brokers.items()
                    }
                    assert all(each.batches for each in dumps.values()), "dump-log shows batches"
                    assert topic != LATEST or all(each.records for each in dumps.values()), "keys"
                    differs = difference(dumps, horizon)
                    if differs:
                        found.append(f"{topic}-{partition}: {differs}")
        return found
