"""A cluster of Kafka and Cordwood brokers, whose brokers are killed, suspended and stopped.

Producers with idempotence, with keys and with transactions write, groups of both protocols read and
commit, and every broker compacts. No acknowledged record is lost, written twice or out of its
order, every transaction is whole, no commit goes back, and in the end the replicas are the same.
"""

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

import pytest

from support.kafka import poll_until, read_checkpoint
from support.kafka_tools import KafkaTools
from support.mixed_cluster import WAIT_S, MixedCluster
from support.soaks.cluster_transactions import Outcome, TransactionalWriter, Transactions
from support.soaks.groups import Group
from support.soaks.ledger import Cleanup, Ledger, Place
from support.soaks.reading import committed_offsets, complaints_of, ends_of, read_messages
from support.soaks.replicas import difference, dump
from support.soaks.writers import Writer
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
"""How much is done between two events, at least."""
_RECORDS_PER_SECOND: Final = 100
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
class SoakOutcome:
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
        self._random = random.Random(seed)  # a schedule
        self._events: Counter[str] = Counter()
        self._ledger = Ledger()
        self._transactions = Transactions(PARTITIONS)
        self._groups: list[Group] = []

    def run(self, events: int) -> SoakOutcome:
        """Lets so many things happen, each after the cluster has recovered from the last."""
        with self._cluster as cluster:
            for name in (NUMBERS, TRANSACTIONS):
                cluster.create_topic(name, cluster.spread(PARTITIONS), _PLAIN)
            cluster.create_topic(LATEST, cluster.spread(PARTITIONS), _COMPACTED)
            self._work(events)
            complaints = self._complaints()
            poll_until(self._has_cleaned, timeout_s=WAIT_S, what="every broker has compacted")
            poll_until(self._has_equal_ends, timeout_s=WAIT_S, what="all have all")
        outcomes = Counter(each.value for each in self._transactions.outcomes.values())
        return SoakOutcome(
            self._events,
            self._done(),
            outcomes + self._transactions.failures,
            self._cleaned(),
            complaints + self._differences(),
        )

    def _work(self, events: int) -> None:
        """Has clients work while things happen, and until the groups have read all."""
        servers = self._cluster.bootstrap_servers
        with contextlib.ExitStack() as readers:
            for name in GROUPS:
                group = Group(
                    name, servers, [NUMBERS], members=_MEMBERS, contiguous=True, protocol=name
                )
                readers.callback(group.stop)
                self._groups.append(group)
            with contextlib.ExitStack() as writers:
                topics = {NUMBERS: False, LATEST: True}
                writer = Writer(
                    0, servers, self._ledger, topics=topics, records_per_second=_RECORDS_PER_SECOND
                )
                writers.callback(writer.stop)
                client = self._cluster.client()
                writers.callback(TransactionalWriter(client, TRANSACTIONS, self._transactions).stop)
                for _ in range(events):
                    self._wait_for_work()
                    self._happen()
                    self._cluster.wait_until_in_sync(NUMBERS, TRANSACTIONS, LATEST)
            self._cluster.wait_until_in_sync()
            poll_until(self._is_stable, timeout_s=WAIT_S, what="no transaction is open")
            poll_until(self._groups_have_all, timeout_s=WAIT_S, what="the groups have read all")

    def _complaints(self) -> list[str]:
        servers = self._cluster.bootstrap_servers
        ends = ends_of(servers, NUMBERS, PARTITIONS)
        found = [
            complaint
            for group in self._groups
            for complaint in group.complaints(
                ends, committed_offsets(self._cluster.admin, group.name) or {}
            )
        ]
        read: dict[int, list[bytes]] = {}
        for number in range(PARTITIONS):
            found += complaints_of(servers, Place(NUMBERS, number), self._ledger)
            found += complaints_of(servers, Place(LATEST, number), self._ledger, Cleanup.COMPACT)
            messages, _ = read_messages(servers, Place(TRANSACTIONS, number))
            read[number] = [each.value() or b"" for each in messages]
        return found + self._transactions.complaints(read)

    def _done(self) -> Counter[str]:
        """Counts of work done, by the names of `STEPS`."""
        return Counter(
            {
                "acknowledged": self._ledger.count_of(NUMBERS),
                "updated": self._ledger.count_of(LATEST),
                "transactions": self._transactions.count(Outcome.COMMITTED),
                **{f"committed by {group.name}": group.commits for group in self._groups},
            }
        )

    # ---- what happens

    def _wait_for_work(self) -> None:
        """Returns when every client has done something since, and some time later."""
        before = self._done()
        wanted = {name: before[name] + STEPS[name] for name in STEPS}
        poll_until(
            lambda: all(self._done()[name] >= count for name, count in wanted.items()),
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
        ends = ends_of(self._cluster.bootstrap_servers, NUMBERS, PARTITIONS)
        return all(
            group.has_read(ends) and committed_offsets(self._cluster.admin, group.name) == ends
            for group in self._groups
        )

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


@dataclass(frozen=True, slots=True)
class Mix:
    """The ids of Kafka's and of Cordwood's brokers, and who controls them."""

    kafka: tuple[int, ...]
    cordwood: tuple[int, ...]
    has_own_controller: bool = False
    kinds: dict[str, int] = field(default_factory=lambda: dict(KINDS))
    seed: int = 1


MANY = 50
MIXES = {
    "two kafka": Mix((1, 2), (3,)),
    "one kafka": Mix((1,), (2, 3)),
    # Two of five events are kills of the controller; with these seeds one of the first three.
    "own controller": Mix((), (1, 2, 3), True, KINDS | {CONTROLLER: 7}, seed=24),
    "own controller, one kafka": Mix((1,), (2, 3), True, KINDS | {CONTROLLER: 7}, seed=15),
}


FEW = [
    pytest.param(mix, 3, "support.serve_in_process", id=f"few-{mix}")
    for mix, found in MIXES.items()
    if found.has_own_controller
]
NIGHTLY = [
    pytest.param(
        *(mix, MANY, "cordwood"),
        marks=[pytest.mark.nightly, pytest.mark.rotated, pytest.mark.spark],
        id=f"many-{mix}",
    )
    for mix in MIXES
]


@pytest.mark.parametrize(("mix", "events", "module"), [*FEW, *NIGHTLY])
def test_a_cluster_loses_nothing(tmp_path: Path, mix: str, events: int, module: str) -> None:
    found = MIXES[mix]
    soak = ClusterSoak(
        tmp_path,
        kafka=found.kafka,
        cordwood=found.cordwood,
        seed=found.seed,
        module=module,
        has_own_controller=found.has_own_controller,
        kinds=found.kinds,
    )
    outcome = soak.run(events)
    print(outcome.summary())
    assert outcome.complaints == []
    assert sum(outcome.events.values()) == events
    assert all(outcome.done[name] >= count * events for name, count in STEPS.items())
    if found.has_own_controller:
        assert outcome.events[CONTROLLER] >= (20 if events == MANY else 1)
    assert outcome.cleaned == {*found.kafka, *found.cordwood}
