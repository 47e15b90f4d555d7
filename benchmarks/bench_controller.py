"""Measures a controller and three brokers with many partitions, Cordwood's beside Apache Kafka's.

One cluster runs at a time: its controller and its three brokers are on this machine, and every
partition has a replica on each.

- `create`: from the first CreateTopics until the last is answered, and until a record with acks=all
  is acknowledged in every partition.
- `failover`: from the SIGKILL of a broker until a record is acknowledged in every partition again;
  broker.session.timeout.ms, which is 3 s, is part of it.
- `memory`: resident memory of the controller, and of a broker, with these partitions.

benchmarks/README.md says how to read the figures.

usage: bench_controller.py [--quick] [--turns N] [--json FILE]
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from broker_report import run_benchmark
from broker_sides import JVM_FLAGS, memory_mb
from kafka_side import jvm_flags
from log_rows import Row
from support.mixed_cluster import MixedCluster

IDS = (1, 2, 3)
_WAIT_S = 1800.0
_PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "log.cleaner.enable": "false",
    # Kafka maps this much of two indexes for each log.
    "log.index.size.max.bytes": "4096",
    "replica.lag.time.max.ms": "60000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the measurements."""

    topics: int = 10
    partitions: int = 1000
    turns: int = 1


_QUICK = Sizes(topics=2, partitions=10)


class Bench:
    """The sections, which need each other: all are measured."""

    def __init__(self, sizes: Sizes, work: Path) -> None:
        self.sizes = sizes
        self._work = work

    def run(self, _names: Sequence[str]) -> Iterator[Row]:
        """The rows."""
        count = self.sizes.topics * self.sizes.partitions
        many = f"{count:,} partitions on three brokers"
        rows = [
            Row(what=f"{many}: created", unit="s", other_name="Kafka"),
            Row(what=f"{many}: created, and a record in each", unit="s", other_name="Kafka"),
            Row(what=f"{many}: a record in each after SIGKILL", unit="s", other_name="Kafka"),
            Row(what=f"{many}: memory of the controller", unit="MB", other_name="Kafka"),
            Row(what=f"{many}: memory of a broker", unit="MB", other_name="Kafka"),
        ]
        for turn in range(self.sizes.turns):
            for is_ours in (True, False):
                kind = "cordwood" if is_ours else "kafka"
                figures = self._measured(self._work / f"{kind}-{turn}", is_ours=is_ours)
                for row, figure in zip(rows, figures, strict=True):
                    (row.ours if is_ours else row.other).append(figure)
        yield from rows

    def _measured(self, root: Path, *, is_ours: bool) -> list[float]:
        """Seconds to create, to write, to fail over; megabytes of the controller, of a broker."""
        names = [f"topic-{number}" for number in range(self.sizes.topics)]
        with (
            jvm_flags(JVM_FLAGS),
            MixedCluster(
                root,
                kafka=() if is_ours else IDS,
                cordwood=IDS if is_ours else (),
                has_own_controller=is_ours,
                properties=_PROPERTIES,
                module="cordwood",
            ) as cluster,
        ):
            begun = time.perf_counter()
            for name in names:
                topic = NewTopic(name, self.sizes.partitions, len(IDS))
                done = cluster.admin.create_topics([topic], operation_timeout=_WAIT_S)
                done[name].result(_WAIT_S)
            created_s = time.perf_counter() - begun
            self._write(cluster, names)
            written_s = time.perf_counter() - begun
            memory = [
                memory_mb(cluster.controller.pid),
                max(memory_mb(each.pid) for each in cluster.brokers.values()),
            ]
            begun = time.perf_counter()
            cluster.brokers[3].kill()
            self._write(cluster, names)
            failed_over_s = time.perf_counter() - begun
            return [created_s, written_s, failed_over_s, *memory]

    def _write(self, cluster: MixedCluster, names: Sequence[str]) -> None:
        """Returns when a record is acknowledged in every partition.

        Each topic has a producer. A producer's requests have one partition each, and a broker
        answers those of a connection one after the other.
        """
        errors: list[object] = []
        settings = {
            "acks": "all",
            "linger.ms": 5,
            "message.timeout.ms": int(_WAIT_S * 1000),
            "topic.metadata.refresh.interval.ms": 1000,
            # A broker does not know a topic before it has made the logs of those before it.
            "topic.metadata.propagation.max.ms": int(_WAIT_S * 1000),
            "retry.backoff.max.ms": 100,
        }
        producers = {name: Producer(cluster.client(settings)) for name in names}
        for name, producer in producers.items():
            for partition in range(self.sizes.partitions):
                producer.produce(
                    name,
                    b"x" * 100,
                    partition=partition,
                    on_delivery=lambda error, _: errors.append(error),
                )
        unsent = sum(producer.flush(_WAIT_S) for producer in producers.values())
        if unsent or set(errors) != {None}:
            raise SystemExit(f"{unsent} records were not written; errors: {set(errors)}")


SECTIONS = ("all",)


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        "controller",
        SECTIONS,
        Bench,
        sizes=Sizes(),
        quick=_QUICK,
        free="10 GB are free",
        arguments=arguments,
    )


if __name__ == "__main__":
    raise SystemExit(main())
