"""Measures replication between three Cordwood brokers beside that between three of Apache Kafka.

Both clusters have a controller of Kafka's. All run on this machine, which has to serve six logs.

- `acks`: records a second with acks=all and min.insync.replicas=2, and the p99 of a record's
  acknowledgement, from the hand-over to a producer (librdkafka).
- `catch-up`: MB a second by which a broker catches up that was away, from the start of its process.
- `failover`: from the SIGKILL of a partition's leader until a record is acknowledged by another.

benchmarks/README.md says how to read the figures.

usage: bench_replication.py [--quick] [--sections NAME,...] [--turns N] [--json FILE]
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Producer

from broker_report import run_benchmark
from broker_sides import JVM_FLAGS
from kafka_side import jvm_flags
from log_rows import Row
from support.kafka import poll_until
from support.mixed_cluster import MixedCluster

TOPIC, AWAY = "replicated", "away"
IDS = (1, 2, 3)
_PARTITIONS = 3
_WAIT_S = 180.0
_PROPERTIES = {
    "offsets.topic.replication.factor": "3",
    "replica.lag.time.max.ms": "5000",
    "log.cleaner.enable": "false",
}
_CONFIGS = {"min.insync.replicas": "2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the measurements."""

    records: int = 100_000
    record_bytes: int = 100
    catch_up_mb: int = 1000
    turns: int = 3


_QUICK = Sizes(records=2_000, catch_up_mb=4, turns=1)


class Cluster(MixedCluster):
    """A controller and three brokers of one kind; a context manager."""

    def __init__(self, root: Path, *, is_ours: bool) -> None:
        """Nothing runs yet."""
        super().__init__(
            root,
            kafka=() if is_ours else IDS,
            cordwood=IDS if is_ours else (),
            properties=_PROPERTIES,
            module="cordwood",
        )

    def until_in_sync(self, name: str, count: int) -> None:
        """Returns when so many replicas of each partition of a topic are in sync."""

        def is_so() -> bool:
            topic = self.admin.list_topics(timeout=10).topics.get(name)
            return topic is not None and all(
                len(each.isrs) == count for each in topic.partitions.values()
            )

        poll_until(is_so, timeout_s=_WAIT_S, what=f"{count} replicas in sync", interval_s=0.01)


class Bench:
    """The sections."""

    def __init__(self, sizes: Sizes, work: Path) -> None:
        self.sizes = sizes
        self._work = work

    def run(self, names: Sequence[str]) -> Iterator[Row]:
        """The rows of the sections of those names."""
        sections = {"acks": self._acks, "catch-up": self._catch_up, "failover": self._failover}
        with (
            jvm_flags(JVM_FLAGS),
            Cluster(self._work / "cordwood", is_ours=True) as ours,
            Cluster(self._work / "kafka", is_ours=False) as kafka,
        ):
            for cluster in (ours, kafka):
                cluster.create_topic(TOPIC, cluster.spread(_PARTITIONS), _CONFIGS)
            for name in names:
                yield from sections[name](ours, kafka)

    def _acks(self, ours: Cluster, kafka: Cluster) -> Iterator[Row]:
        rate = Row(what="acks=all: records", unit="1/s", other_name="Kafka", ratio_min=1.0)
        p99 = Row(what="acks=all: p99 of a record", unit="ms", other_name="Kafka")
        for cluster in (ours, kafka):
            self._produced(cluster, [])
        for _ in range(self.sizes.turns):
            rate.turn(
                partial(self._produced, ours, p99.ours), partial(self._produced, kafka, p99.other)
            )
        yield from (rate, p99)

    def _produced(self, cluster: Cluster, p99: list[float]) -> float:
        producer = Producer(cluster.client({"acks": "all", "linger.ms": 5}))
        times: list[float] = []
        value = b"x" * self.sizes.record_bytes
        begun = time.perf_counter()
        for number in range(self.sizes.records):
            handed_over = time.perf_counter()
            while True:
                try:
                    producer.produce(
                        TOPIC,
                        value,
                        partition=number % _PARTITIONS,
                        on_delivery=partial(_delivered, times, handed_over),
                    )
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        if producer.flush(_WAIT_S):
            raise SystemExit("records were not written in time")
        seconds = time.perf_counter() - begun
        times.sort()
        p99.append(times[int(len(times) * 0.99)] * 1000)
        return self.sizes.records / seconds

    def _catch_up(self, ours: Cluster, kafka: Cluster) -> Iterator[Row]:
        size = self.sizes.catch_up_mb
        what = f"a broker that was away for {size:,} MB catches up"
        row = Row(what=what, unit="MB/s", other_name="Kafka", ratio_min=1.0)
        for cluster in (ours, kafka):
            cluster.create_topic(AWAY, [list(IDS)], _CONFIGS)
        for _ in range(self.sizes.turns):
            row.turn(partial(self._caught_up, ours), partial(self._caught_up, kafka))
        yield row

    def _caught_up(self, cluster: Cluster) -> float:
        cluster.brokers[3].stop()
        cluster.until_in_sync(AWAY, 2)
        producer = Producer(
            cluster.client({"acks": "all", "linger.ms": 20, "batch.size": 1_000_000})
        )
        value = b"x" * 10_000
        for _ in range(self.sizes.catch_up_mb * 100):
            while True:
                try:
                    producer.produce(AWAY, value, partition=0)
                    break
                except BufferError:
                    producer.poll(0.05)
        if producer.flush(_WAIT_S):
            raise SystemExit("records were not written in time")
        begun = time.perf_counter()
        cluster.brokers[3].start()
        cluster.until_in_sync(AWAY, 3)
        return self.sizes.catch_up_mb / (time.perf_counter() - begun)

    def _failover(self, ours: Cluster, kafka: Cluster) -> Iterator[Row]:
        row = Row(
            what="a record is acknowledged again after SIGKILL of the leader",
            unit="s",
            other_name="Kafka",
            ratio_min=1.0,
        )
        for _ in range(self.sizes.turns):
            row.turn(partial(_failed_over, ours), partial(_failed_over, kafka))
        yield row


def _delivered(times: list[float], handed_over: float, error: object, _message: object) -> None:
    if error is not None:
        raise SystemExit(f"a record was not written: {error}")
    times.append(time.perf_counter() - handed_over)


def _failed_over(cluster: Cluster) -> float:
    producer = Producer(cluster.client({"acks": "all", "linger.ms": 0}))
    times: list[float] = []
    producer.produce(TOPIC, b"before", partition=0, on_delivery=partial(_delivered, times, 0.0))
    producer.flush(_WAIT_S)
    leader = cluster.leaders(TOPIC)[0]
    cluster.brokers[leader].kill()
    begun = time.perf_counter()
    producer.produce(TOPIC, b"after", partition=0, on_delivery=partial(_delivered, times, begun))
    if producer.flush(_WAIT_S):
        raise SystemExit("no other broker took the leadership in time")
    cluster.brokers[leader].start()
    cluster.until_in_sync(TOPIC, len(IDS))
    return times[-1]


SECTIONS = ("acks", "catch-up", "failover")


def main(arguments: Sequence[str] | None = None) -> int:
    return run_benchmark(
        __doc__,
        "replication",
        SECTIONS,
        Bench,
        sizes=Sizes(),
        quick=_QUICK,
        free="10 GB are free",
        arguments=arguments,
    )


if __name__ == "__main__":
    raise SystemExit(main())
