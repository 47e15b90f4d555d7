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
from support.kafka_cluster import CONTROLLER_ID
from support.kafka_programs import KAFKA_4_4
from support.kafka_tools import KafkaTools
from support.mixed_cluster import WAIT_S, MixedCluster
from support.soaks.cluster_load import (
    LATEST,
    NUMBERS,
    PARTITIONS,
    STEPS,
    TRANSACTIONS,
    ClusterLoad,
    properties_of_load,
)
from support.soaks.replicas import difference, dump
from support.wire import ConnectionClosedError, Wire

CONTROLLER: Final = "kill of the controller"
KINDS: Final = {"kill": 4, "suspend": 3, "stop": 2, "leaders": 2, CONTROLLER: 1}


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
        versions: Mapping[int, str],
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
            versions: as `MixedCluster`.
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
            properties=properties_of_load(len(kafka) + len(cordwood)),
            versions=versions,
            module=module,
            has_own_controller=has_own_controller,
        )
        self._load = ClusterLoad(self._cluster)
        self._kinds = kinds
        self._random = random.Random(seed)  # a schedule
        self._events: Counter[str] = Counter()

    def run(self, events: int) -> SoakOutcome:
        """Lets so many things happen, each after the cluster has recovered from the last."""
        load = self._load
        with self._cluster as cluster:
            load.make_topics()
            with load.working():
                for _ in range(events):
                    load.wait_for_work()
                    time.sleep(self._random.uniform(0.0, 1.0))
                    self._happen()
                    cluster.wait_until_in_sync(NUMBERS, TRANSACTIONS, LATEST)
            complaints = load.complaints()
            poll_until(self._has_cleaned, timeout_s=WAIT_S, what="every broker has compacted")
            poll_until(self._has_equal_ends, timeout_s=WAIT_S, what="all have all")
        return SoakOutcome(
            self._events,
            load.done(),
            load.transactions.summary(),
            self._cleaned(),
            complaints + self._differences(),
        )

    # ---- what happens

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
    """The ids of Kafka's and of Cordwood's brokers, and who controls them.

    The second broker of Kafka's, and its controller beside it, are 4.4.
    """

    kafka: tuple[int, ...]
    cordwood: tuple[int, ...]
    has_own_controller: bool = False
    kinds: dict[str, int] = field(default_factory=lambda: dict(KINDS))
    seed: int = 1
    #: The events of the form in `make compat`; 0 for none.
    few: int = 0

    @property
    def versions(self) -> dict[int, str]:
        """Of Kafka's nodes, as `MixedCluster`."""
        second = self.kafka[1:]
        return dict.fromkeys((*second, CONTROLLER_ID) if second else (), KAFKA_4_4)


MANY = 50
#: Two of five events are kills of the controller; with these seeds one of the first three.
_OWN = KINDS | {CONTROLLER: 7}
MIXES = {
    "kafka 4.3 and 4.4": Mix((1, 2), (3,), seed=42, few=2),  # kills of 4.4, and of Cordwood
    "one kafka": Mix((1,), (2, 3)),
    "own controller": Mix((), (1, 2, 3), True, _OWN, seed=24, few=3),
    "own controller, one kafka": Mix((1,), (2, 3), True, _OWN, seed=15),
    "own controller, kafka 4.3 and 4.4": Mix((1, 2), (3,), True, _OWN, seed=15, few=3),
}


FEW = [
    pytest.param(mix, found.few, "support.serve_in_process", id=f"few-{mix}")
    for mix, found in MIXES.items()
    if found.few
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
        versions=found.versions,
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
