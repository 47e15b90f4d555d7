"""Measures the transactions of `cordwood serve` beside those of Apache Kafka.

- `rate`: transactions committed a second by 1, 10 and 100 producers, over raw connections: a batch
  of ten records and the commit.
- `latency`: from the hand-over of a record to a producer (librdkafka) that commits at once until
  a consumer with isolation.level=read_committed has it.
- `load`: from the start of the process until all partitions of `__transaction_state` are served:
  100,000 transactional ids with a committed transaction each. Both brokers get copies of one
  directory.

benchmarks/README.md says how to read the figures.

usage: bench_transactions.py [--quick] [--sections NAME,...] [--turns N] [--json FILE]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from bench_groups import make_topic
from broker_report import run_benchmark
from broker_sides import Side, both_sides, cpu_seconds
from cordwood.format.java_map import absolute_hash
from load_time import WAIT_S, LoadTime, connected
from log_rows import Row
from support.kafka import poll_until
from support.wire import ConnectionClosedError, Wire
from transaction_load import id_of

LOAD = Path(__file__).with_name("transaction_load.py")
TOPIC = "orders"
_PARTITIONS = 100
_STATE_PARTITIONS = 50
_PROPERTIES = {
    "transaction.state.log.num.partitions": str(_STATE_PARTITIONS),
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "offsets.topic.replication.factor": "1",
    "log.cleaner.enable": "false",
}
_PAUSE_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the measurements."""

    load_s: float = 5.0
    producers: tuple[int, ...] = (1, 10, 100)
    commits: int = 250
    ids: int = 100_000
    turns: int = 3


_QUICK = Sizes(load_s=0.5, producers=(1, 3), commits=10, ids=200, turns=1)


class Bench:
    """The sections."""

    def __init__(self, sizes: Sizes, work: Path) -> None:
        self.sizes = sizes
        self.work = work
        self._ids = 0

    def run(self, names: Sequence[str]) -> Iterator[Row]:
        """The rows of the sections of those names."""
        running = {"rate": self.rate_rows, "latency": self.latency_rows}
        if any(name in running for name in names):
            with both_sides(self.work, _PROPERTIES) as self.sides:
                for side in self.sides:
                    side.create(TOPIC, _PARTITIONS, {})
                    wait_for_coordinator(side.port)
                for name, rows in running.items():
                    if name in names:
                        yield from rows()
        if "load" in names:
            yield from self.load_rows()

    # ---- rate

    def rate_rows(self) -> Iterator[Row]:
        """Transactions a second, what one costs the broker, and how long one takes."""
        ours, kafka = self.sides
        for producers in self.sizes.producers:
            what = f"{producers} producers"
            rate = Row(what=f"{what}: transactions", unit="1/s", other_name="Kafka", ratio_min=1.0)
            cost = Row(what=f"{what}: CPU of one", unit="us", other_name="Kafka", ratio_min=1.0)
            p99 = Row(what=f"{what}: p99 of one", unit="ms", other_name="Kafka")
            for side in self.sides:
                self._load(side, producers)
            for _ in range(self.sizes.turns):
                rate.turn(
                    partial(self._measured, ours, producers, cost.ours, p99.ours),
                    partial(self._measured, kafka, producers, cost.other, p99.other),
                )
            yield from (rate, cost, p99)

    def _measured(self, side: Side, producers: int, costs: list[float], p99: list[float]) -> float:
        begun = cpu_seconds(side)
        done = self._load(side, producers)
        costs.append((cpu_seconds(side) - begun) / done["transactions"] * 1e6)
        p99.append(done["p99_ms"])
        return float(done["transactions"] / done["seconds"])

    def _load(self, side: Side, producers: int) -> dict[str, Any]:
        self._ids += producers
        job = {
            "seconds": self.sizes.load_s,
            "connections": producers,
            "first_id": self._ids,
            "partitions": _PARTITIONS,
        }
        return load(side.port, job)

    # ---- latency

    def latency_rows(self) -> Iterator[Row]:
        """Measures the latency of a record for a reader of committed records."""
        ours, kafka = self.sides
        p50 = Row(what="read_committed: p50 of a record", unit="ms", other_name="Kafka")
        p99 = Row(what="read_committed: p99 of a record", unit="ms", other_name="Kafka")
        for side in self.sides:
            read_committed(side.address, self.sizes.commits // 5)
        for _ in range(self.sizes.turns):
            p50.turn(
                partial(self._latency, ours, p99.ours), partial(self._latency, kafka, p99.other)
            )
        yield from (p50, p99)

    def _latency(self, side: Side, p99: list[float]) -> float:
        found = read_committed(side.address, self.sizes.commits)
        p99.append(found[int(len(found) * 0.99)] * 1000)
        return found[len(found) // 2] * 1000

    # ---- load

    def load_rows(self) -> Iterator[Row]:
        """Measures the time from the process's start until all transactional ids are served."""
        loads = LoadTime(self.work, _PROPERTIES)
        made = loads.made_by_kafka(self._fill)
        size = sum(each.stat().st_size for each in made.glob("__transaction_state-*/*.log"))
        what = f"{self.sizes.ids:,} transactional ids, {size / 1e6:,.0f} MB"
        served = Row(what=f"{what}: all served", unit="s", other_name="Kafka", ratio_min=1.0)
        first = Row(what=f"{what}: the first is", unit="s", other_name="Kafka")
        for _ in range(self.sizes.turns):
            served.turn(
                partial(self._timed, loads.ours, made, first.ours),
                partial(self._timed, loads.kafkas, made, first.other),
            )
        yield from (served, first)

    def _fill(self, port: int) -> None:
        make_topic(port, _PARTITIONS)
        wait_for_coordinator(port)
        load(port, {"ids": self.sizes.ids, "connections": 10, "partitions": _PARTITIONS})

    def _timed(
        self,
        start: Callable[[Path, Callable[[int], list[float]]], tuple[float, list[float]]],
        made: Path,
        first: list[float],
    ) -> float:
        begun, times = start(made, lambda port: until_served(port, self.sizes.ids))
        first.append(times[0] - begun)
        return times[-1] - begun


def load(port: int, job: Mapping[str, Any]) -> dict[str, Any]:
    """Runs the load in a process of its own; returns its measurements."""
    whole = {"port": port, "topic": TOPIC, "records": 10, "record_bytes": 100, **job}
    command = [sys.executable, str(LOAD)]
    done = subprocess.run(
        command, input=json.dumps(whole), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the load failed: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def wait_for_coordinator(port: int) -> None:
    """Has `__transaction_state` made."""
    asked = {"key_type": 1, "coordinator_keys": [id_of(0)]}
    with Wire(port) as wire:
        poll_until(
            lambda: (
                wire.ask("find_coordinator", 4, asked)["coordinators"][0]["error_code"] == "none"
            ),
            timeout_s=WAIT_S,
            what="the coordinator is there",
        )


def read_committed(address: str, commits: int) -> list[float]:
    """Sorted times in seconds of records from a producer to a consumer, one in each transaction."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    partition = TopicPartition(TOPIC, 0)
    _, end = consumer.get_watermark_offsets(partition, WAIT_S)
    consumer.assign([TopicPartition(TOPIC, 0, end)])
    producer = Producer(
        {"bootstrap.servers": address, "transactional.id": "latency", "linger.ms": 0}
    )
    producer.init_transactions(WAIT_S)
    found: list[float] = []
    for _ in range(commits):
        producer.begin_transaction()
        begun = time.perf_counter()
        producer.produce(TOPIC, b"x" * 100, partition=0)
        producer.commit_transaction(WAIT_S)
        message = consumer.poll(WAIT_S)
        if message is None or message.error() is not None:
            raise SystemExit(f"{address}: no record was read")
        found.append(time.perf_counter() - begun)
        time.sleep(_PAUSE_S)
    consumer.close()
    return sorted(found)


def until_served(port: int, ids: int) -> list[float]:
    """The times at which an id of each partition of `__transaction_state` was described."""
    waiting: dict[int, str] = {}
    for number in range(ids):
        name = id_of(number)
        waiting.setdefault(absolute_hash(name) % _STATE_PARTITIONS, name)
    times: list[float] = []
    wire = connected(port)
    deadline = time.monotonic() + WAIT_S
    while waiting:
        if time.monotonic() > deadline:
            raise SystemExit(f"partitions {sorted(waiting)} are not served")
        try:
            told = wire.ask("describe_transactions", 0, {"transactional_ids": [*waiting.values()]})[
                "transaction_states"
            ]
        except ConnectionClosedError:  # by a Kafka that has not started all its parts
            wire.close()
            wire = connected(port)
            continue
        for state in told:
            if state["error_code"] == "none":
                times.append(time.monotonic())
                del waiting[absolute_hash(state["transactional_id"]) % _STATE_PARTITIONS]
        if waiting:
            time.sleep(0.005)
    wire.close()
    return times


SECTIONS = ("rate", "latency", "load")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        "transactions",
        SECTIONS,
        Bench,
        sizes=Sizes(),
        quick=_QUICK,
        free="1 GB is free",
        arguments=arguments,
    )


if __name__ == "__main__":
    raise SystemExit(main())
