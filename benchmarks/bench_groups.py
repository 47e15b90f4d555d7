"""Measures the groups of `cordwood serve` beside those of Apache Kafka.

- `commits`: offsets committed a second, over raw connections.
- `join`: from the subscription of N consumers (librdkafka) until each has its partitions, by both
  protocols.
- `load`: from the start of the process until the offsets of a group of every partition of
  `__consumer_offsets` are served: 10,000 groups that have committed 100 offsets each, three times.
  Then the same after `cordwood clean`. Both brokers get copies of one directory.

benchmarks/README.md says how to read the figures.

usage: bench_groups.py [--quick] [--sections NAME,...] [--turns N] [--json FILE]
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException

from broker_report import run_benchmark
from broker_sides import Side, both_sides, cpu_seconds
from cordwood.format.java_map import absolute_hash
from load_time import WAIT_S, LoadTime, connected
from log_rows import Row
from support.kafka import poll_until
from support.wire import ConnectionClosedError, Wire

LOAD = Path(__file__).with_name("broker_load.py")
PARTITIONS = 50
TOPIC = "orders"
_PROPERTIES = {
    "offsets.topic.num.partitions": str(PARTITIONS),
    "offsets.topic.replication.factor": "1",
    # Small segments: the last one of a partition is not cleaned.
    "offsets.topic.segment.bytes": str(1 << 20),
    # All members of a group that join at once are in its first rebalance, at both.
    "group.initial.rebalance.delay.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "log.cleaner.enable": "false",
}


Found = tuple[list[float], list[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the measurements."""

    load_s: float = 5.0
    members: tuple[int, ...] = (1, 10, 100)
    groups: int = 10_000
    offsets: int = 100
    rounds: int = 3
    turns: int = 3


_QUICK = Sizes(load_s=0.5, members=(1, 3), groups=200, offsets=10, rounds=2, turns=1)


class Bench:
    """The sections."""

    def __init__(self, sizes: Sizes, work: Path) -> None:
        self.sizes = sizes
        self.work = work
        self._groups = 0

    def run(self, names: Sequence[str]) -> Iterator[Row]:
        """The rows of the sections of those names."""
        running = {"commits": self.commit_rows, "join": self.join_rows}
        if any(name in running for name in names):
            with both_sides(self.work, _PROPERTIES) as self.sides:
                for name, rows in running.items():
                    if name in names:
                        yield from rows()
        if "load" in names:
            yield from self.load_rows()

    def _turns(self, row: Row, run: Callable[[Side], float], *, warm: bool = True) -> Row:
        ours, kafka = self.sides
        if warm:
            for side in self.sides:
                run(side)
        for _ in range(self.sizes.turns):
            row.turn(lambda: run(ours), lambda: run(kafka))
        return row

    # ---- commits

    def commit_rows(self) -> Iterator[Row]:
        """Requests of one and of 100 offsets, over one and over ten connections."""
        for side in self.sides:
            side.create(TOPIC, 100, {})
            commit(side.port, "first", 1, 1)
        for count in (1, 100):
            for connections in (1, 10):
                what = f"commits of {count} offsets, {connections} connections"
                speed = Row(what=what, unit="1/s", other_name="Kafka", ratio_min=1.0)
                cost = Row(what=f"{what}: CPU", unit="us", other_name="Kafka", ratio_min=1.0)
                job = {"committed": count, "connections": connections, "partitions": connections}
                costs: Mapping[str, list[float]] = {self.sides[0].name: cost.ours}

                def run(
                    side: Side,
                    *,
                    job: dict[str, int] = job,
                    costs: Mapping[str, list[float]] = costs,
                    other: list[float] = cost.other,
                ) -> float:
                    begun = cpu_seconds(side)
                    done = self._load(side, job)
                    spent = (cpu_seconds(side) - begun) / done["requests"] * 1e6
                    costs.get(side.name, other).append(spent)
                    return float(done["requests"] / done["seconds"])

                yield self._turns(speed, run)
                yield cost

    def _load(self, side: Side, job: Mapping[str, int]) -> dict[str, Any]:
        whole = {
            "port": side.port,
            "topic": TOPIC,
            "in_flight": 5,
            "seconds": self.sizes.load_s,
            **job,
        }
        command = [sys.executable, str(LOAD)]
        done = subprocess.run(
            command, input=json.dumps(whole), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"the load on {side.name} failed: {done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    # ---- members that join

    def join_rows(self) -> Iterator[Row]:
        """Groups of the classic and of the consumer protocol."""
        partitions = max(self.sizes.members)
        for side in self.sides:
            side.create("joined", partitions, {})
        for protocol in ("classic", "consumer"):
            for count in self.sizes.members:
                row = Row(
                    what=f"{count} members of the {protocol} protocol join",
                    unit="s",
                    other_name="Kafka",
                    ratio_min=1.0,
                )

                def run(side: Side, *, protocol: str = protocol, count: int = count) -> float:
                    self._groups += 1
                    group = f"{protocol}-{self._groups}"
                    return seconds_to_join(side.address, group, protocol, count, partitions)

                yield self._turns(row, run)

    # ---- load

    def load_rows(self) -> Iterator[Row]:
        """Before and after compaction."""
        loads = LoadTime(self.work, _PROPERTIES)
        made = loads.made_by_kafka(self._fill)
        cleaned = self.work / "cleaned"
        shutil.copytree(made, cleaned)
        command = [sys.executable, "-m", "cordwood", "clean", "--topic", "__consumer_offsets"]
        subprocess.run([*command, str(cleaned)], check=True, capture_output=True)
        for directory, label in ((made, "before compaction"), (cleaned, "after it")):
            size = sum(each.stat().st_size for each in directory.glob("__consumer_offsets-*/*.log"))
            what = f"{self.sizes.groups:,} groups, {label}, {size / 1e6:,.0f} MB"
            served = Row(what=f"{what}: all served", unit="s", other_name="Kafka", ratio_min=1.0)
            first = Row(what=f"{what}: the first is", unit="s", other_name="Kafka")
            p99 = Row(what=f"{what}: p99 of the first's commits", unit="ms", other_name="Kafka")
            for _ in range(self.sizes.turns):
                ours = partial(self._timed, loads.ours, directory, first.ours, p99.ours)
                kafkas = partial(self._timed, loads.kafkas, directory, first.other, p99.other)
                served.turn(ours, kafkas)
            # A load that is over at once leaves no time for commits beside it.
            yield from (served, first, *([p99] if all(p99.ours) and all(p99.other) else []))

    def _fill(self, port: int) -> None:
        make_topic(port, self.sizes.offsets)
        commit(port, "first", 1, 1)
        for turn in range(self.sizes.rounds):
            commit_all(port, self.sizes.groups, self.sizes.offsets, turn)

    def _timed(
        self,
        start: Callable[[Path, Callable[[int], Found]], tuple[float, Found]],
        made: Path,
        first: list[float],
        p99: list[float],
    ) -> float:
        """Measures the time from the start of the process until every partition is served."""
        begun, (times, latencies) = start(
            made, lambda port: until_served(port, self.sizes.groups, self.sizes.offsets)
        )
        first.append(times[0] - begun)
        p99.append(latencies[int(len(latencies) * 0.99)] * 1000 if latencies else 0.0)
        return times[-1] - begun


def make_topic(port: int, partitions: int) -> None:
    """Makes the topic whose offsets are committed."""
    topics = [{"name": TOPIC, "num_partitions": partitions, "replication_factor": 1}]
    with Wire(port) as wire:
        wire.ask("create_topics", 7, {"topics": topics, "timeout_ms": 60_000})


def commit(port: int, group: str, count: int, turn: int) -> None:
    """Commits offsets of a group without members, once its coordinator is there."""
    found = {"key": group, "key_type": 0}
    with Wire(port) as wire:
        poll_until(
            lambda: wire.ask("find_coordinator", 3, found)["error_code"] == "none",
            timeout_s=WAIT_S,
            what="the coordinator is there",
        )
        poll_until(
            lambda: _commit(wire, group, count, turn), timeout_s=WAIT_S, what="a commit of offsets"
        )


def commit_all(port: int, groups: int, count: int, turn: int) -> None:
    """Commits offsets of many groups."""
    with Wire(port) as wire:
        for group in range(groups):
            if not _commit(wire, f"group-{group}", count, turn):
                raise SystemExit(f"group-{group} could not commit")


def _commit(wire: Wire, group: str, count: int, turn: int) -> bool:
    partitions = [
        {"partition_index": index, "committed_offset": turn, "committed_leader_epoch": -1}
        for index in range(count)
    ]
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": TOPIC, "partitions": partitions}],
    }
    answer = wire.ask("offset_commit", 8, values)
    return all(each["error_code"] == "none" for each in answer["topics"][0]["partitions"])


def until_served(port: int, groups: int, count: int) -> tuple[list[float], list[float]]:
    """The time at which a group of each partition was served, and the first one's latencies."""
    waiting: dict[int, str] = {}
    for number in range(groups):
        name = f"group-{number}"
        waiting.setdefault(absolute_hash(name) % PARTITIONS, name)
    times: list[float] = []
    latencies: list[float] = []
    steady: str | None = None
    wire = connected(port)
    deadline = time.monotonic() + WAIT_S
    while waiting:
        if time.monotonic() > deadline:
            raise SystemExit(f"partitions {sorted(waiting)} of __consumer_offsets are not served")
        for partition, group in sorted(waiting.items()):
            try:
                if _has_offsets(wire, group, count):
                    times.append(time.monotonic())
                    del waiting[partition]
                    steady = steady or group
                elif steady is not None:
                    begun = time.monotonic()
                    if not _commit(wire, steady, 1, 7):
                        raise SystemExit(f"{steady} could not commit")
                    latencies.append(time.monotonic() - begun)
            except ConnectionClosedError:  # by a Kafka that has not started all its parts
                wire.close()
                wire = connected(port)
            if partition in waiting:
                time.sleep(0.005)
    wire.close()
    return times, sorted(latencies)


def _has_offsets(wire: Wire, group: str, count: int) -> bool:
    asked = {"group_id": group, "topics": None}
    (answer,) = wire.ask("offset_fetch", 8, {"groups": [asked], "require_stable": False})["groups"]
    if answer["error_code"] != "none":
        return False
    found = [each for topic in answer["topics"] for each in topic["partitions"]]
    if len(found) != count:
        raise SystemExit(f"{group} has {len(found)} offsets, not {count}")
    return True


def seconds_to_join(address: str, group: str, protocol: str, count: int, partitions: int) -> float:
    """Measures the time from the members' subscription until all have their share of partitions."""
    config = {
        "bootstrap.servers": address,
        "group.id": group,
        "group.protocol": protocol,
        "enable.auto.commit": False,
        "log_level": 2,
    }
    consumers = [Consumer(config) for _ in range(count)]
    try:
        begun = time.monotonic()
        for consumer in consumers:
            consumer.subscribe(["joined"])
        while time.monotonic() < begun + WAIT_S:
            for consumer in consumers:
                consumer.poll(0)
            sizes = [len(consumer.assignment()) for consumer in consumers]
            if sum(sizes) == partitions and min(sizes) == partitions // count:
                return time.monotonic() - begun
            time.sleep(0.005)
    finally:
        closing = [
            threading.Thread(target=_close, args=(consumer,), daemon=True) for consumer in consumers
        ]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
    raise SystemExit(f"{count} members of the {protocol} protocol: no assignment")


def _close(consumer: Consumer) -> None:
    with contextlib.suppress(KafkaException):
        consumer.close()


SECTIONS = ("commits", "join", "load")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        "groups",
        SECTIONS,
        Bench,
        sizes=Sizes(),
        quick=_QUICK,
        free="5 GB are free",
        arguments=arguments,
    )


if __name__ == "__main__":
    raise SystemExit(main())
