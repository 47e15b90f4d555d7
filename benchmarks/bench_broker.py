"""Measures `cordwood serve` beside Apache Kafka with Kafka's own performance tools.

Both brokers run all the while, each on its own directory, and take turns; the one whose turn it is
not has nothing to do. Which goes first changes from turn to turn. Before the turns that count each
side has one that does not. benchmarks/README.md says how to read the figures.

usage: bench_broker.py [--quick] [--sections NAME,...] [--turns N] [--no-kafka] [--json FILE]
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import measure
from broker_report import chosen_sections, report, section_parser
from broker_sides import (
    Side,
    both_sides,
    cpu_seconds,
    memory_mb,
    ours_alone,
    start_seconds,
)
from log_rows import Row
from support.kafka_programs import kafka_tool

LOAD = Path(__file__).with_name("broker_load.py")

_PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
_CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
_END_TO_END = "org.apache.kafka.tools.EndToEndLatency"
_SENT = re.compile(
    r"(\d+) records sent, ([\d.]+) records/sec \(([\d.]+) MB/sec\), ([\d.]+) ms avg latency, "
    r"[\d.]+ ms max latency, (\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th"
)
#: The rows of the table at the top of benchmarks/README.md: what is measured, and its name there.
SHORT_ROWS = {
    "start to serving": "start to serving",
    "resident memory, idle": "resident memory, idle",
    "resident memory after the first compressed produce": "the same after a compressed produce",
    "produce 1024 B, acks=all, default settings": "produce 1 KiB, acks=all, default settings",
    "produce 100 B, acks=all, default settings": "produce 100 B, acks=all, default settings",
    "produce 1024 B, acks=all, linger 10 ms, 128 KiB": "produce 1 KiB, acks=all, 128 KiB batches",
    "produce 100 B, acks=all, linger 10 ms, 128 KiB": "produce 100 B, acks=all, 128 KiB batches",
    "consume 1024 B, default settings": "consume 1 KiB",
    "end to end, one record at a time, acks=all": "end to end, a record at a time",
    "raw produce, 16 KiB batches, 1 connections": "raw requests of 16 KiB, 1 connection",
    "raw produce, 16 KiB batches, 10 connections": "raw requests of 16 KiB, 10 connections",
    "raw produce, 16 KiB batches, 100 connections": "raw requests of 16 KiB, 100 connections",
    "8 producers of 1024 B": "8 producers of 1 KiB, default settings",
    "8 consumers of 1024 B": "8 consumers of 1 KiB",
}
_LOOK_S = 0.02
_BATCHED = ("linger.ms=10", "batch.size=131072")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Sizes of the measurements: bytes of records in a turn, seconds of a load."""

    turn_bytes: int = 500_000_000
    load_s: float = 10.0
    cleaned_bytes: int = 1_500_000_000
    messages: int = 5_000
    turns: int = 3


_QUICK = Sizes(turn_bytes=20_000_000, load_s=2.0, cleaned_bytes=50_000_000, messages=200, turns=1)


class Bench:
    """Both sides, and what is asked of them."""

    def __init__(self, sizes: Sizes, work: Path, *, kafka: bool = True) -> None:
        self.sizes = sizes
        self._has_kafka = kafka
        self.work = work
        self._topics = 0

    @contextmanager
    def _topic(self, partitions: int = 1) -> Iterator[str]:
        """A new topic on both sides; deleted at the end, so that the disk has space again."""
        self._topics += 1
        name = f"bench-{self._topics}"
        for side in self.sides:
            side.create(name, partitions, {"file.delete.delay.ms": "1000"})
        yield name
        for side in self.sides:
            side.delete(name)

    def _turn(self, row: Row, run: Callable[[Side], float]) -> None:
        """A turn of each side that there is."""
        ours, *others = self.sides
        row.turn(lambda: run(ours), *((lambda side=side: run(side)) for side in others))

    def run(self, names: Sequence[str]) -> Iterator[Row]:
        """The rows of the sections of those names."""
        if "start" in names:
            yield from self.start_rows()
        with ours_alone(self.work) if not self._has_kafka else both_sides(self.work) as self.sides:
            if self._has_kafka:
                self.ours, self.kafka = self.sides
            sections: dict[str, Callable[[], Iterator[Row]]] = {
                "memory": self.memory_rows,
                "produce": self.produce_rows,
                "consume": self.consume_rows,
                "latency": self.latency_rows,
                "connections": self.connection_rows,
                "many": self.many_rows,
                "cleaning": self.cleaning_rows,
            }
            for name, rows in sections.items():
                if name in names:
                    yield from rows()

    # ---- start and memory

    def start_rows(self) -> Iterator[Row]:
        """Measures the time from the command to the first answer, on a formatted directory."""
        row = Row(what="start to serving", unit="s", other_name="Kafka", at_most=1.0)
        for _ in range(self.sizes.turns):
            sides = [lambda: start_seconds(self.work, kafka=False)]
            if self._has_kafka:
                sides.append(lambda: start_seconds(self.work, kafka=True))
            row.turn(*sides)
        yield row

    def memory_rows(self) -> Iterator[Row]:
        """Resident memory, as the system counts it, of the broker's own process."""
        idle = Row(what="resident memory, idle", unit="MB", other_name="Kafka", at_most=100.0)
        idle.turn(lambda: memory_mb(self.ours.pid), lambda: memory_mb(self.kafka.pid))
        yield idle
        used = Row(
            what="resident memory after the first compressed produce",
            unit="MB",
            other_name="Kafka",
            at_most=200.0,
        )
        with self._topic() as topic:
            for side in (self.ours, self.kafka):
                self._produce(side, topic, 1024, ("compression.type=lz4", *_BATCHED), 20_000_000)
            used.turn(
                lambda: memory_mb(self.ours.pid),
                lambda: memory_mb(self.kafka.pid),
            )
        yield used

    # ---- Kafka's own tools

    def _produce(
        self, side: Side, topic: str, size: int, properties: Sequence[str], total: int
    ) -> re.Match[str]:
        done = kafka_tool(
            _PRODUCER,
            *("--topic", topic, "--num-records", str(total // size), "--record-size", str(size)),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers={side.address}"),
            *properties,
        )
        found = list(_SENT.finditer(done.stdout))
        if not found:
            raise SystemExit(f"{done.stdout}\n{done.stderr}")
        return found[-1]

    def produce_rows(self) -> Iterator[Row]:
        """kafka-producer-perf-test."""
        for label, properties, least in (
            ("default settings", (), 0.9),
            ("linger 10 ms, 128 KiB", _BATCHED, 1.0),
        ):
            for size in (1024, 100):
                for acks in ("1", "all"):
                    yield from self._produce_rows(label, properties, least, size, acks)

    def _produce_rows(
        self, label: str, properties: Sequence[str], least: float, size: int, acks: str
    ) -> Iterator[Row]:
        with self._topic() as topic:
            total = self.sizes.turn_bytes if size > 100 else self.sizes.turn_bytes // 3
            what = f"produce {size} B, acks={acks}, {label}"
            speed = Row(what=what, unit="MB/s", other_name="Kafka", ratio_min=least)
            middle = Row(
                what=f"{what}: median latency", unit="ms", other_name="Kafka", ratio_min=1.0
            )
            asked = (*properties, f"acks={acks}")

            def run(side: Side, latencies: list[float]) -> float:
                found = self._produce(side, topic, size, asked, total)
                latencies.append(max(0.5, float(found[5])))  # the tool counts whole milliseconds
                return float(found[3])

            for side in (self.ours, self.kafka):
                run(side, [])
            for _ in range(self.sizes.turns):
                speed.turn(
                    lambda: run(self.ours, middle.ours), lambda: run(self.kafka, middle.other)
                )
            yield speed
            yield middle

    def consume_rows(self) -> Iterator[Row]:
        """kafka-consumer-perf-test, over what the producer wrote in batches of 128 KiB."""
        for size in (1024, 100):
            with self._topic() as topic:
                count = self.sizes.turn_bytes // size
                for side in (self.ours, self.kafka):
                    self._produce(side, topic, size, _BATCHED, self.sizes.turn_bytes)
                row = Row(
                    what=f"consume {size} B, default settings",
                    unit="MB/s",
                    other_name="Kafka",
                    ratio_min=1.0,
                )
                for side in (self.ours, self.kafka):
                    self._consume(side, topic, count)
                for _ in range(self.sizes.turns):
                    self._turn(row, lambda side: self._consume(side, topic, count))  # noqa: B023
                yield row

    def _consume(self, side: Side, topic: str, count: int) -> float:
        # fetch.MB.sec: the time of the rebalance left out
        return float(self._consumer_line(side, topic, count)[8])

    def _consumer_line(self, side: Side, topic: str, count: int) -> list[str]:
        done = kafka_tool(
            _CONSUMER,
            *("--topic", topic, "--num-records", str(count), "--bootstrap-server", side.address),
        )
        lines = [line for line in done.stdout.splitlines() if line[:2] == "20"]
        if not lines:
            raise SystemExit(f"{done.stdout}\n{done.stderr}")
        return [field.strip() for field in lines[-1].split(",")]

    def latency_rows(self) -> Iterator[Row]:
        """kafka-e2e-latency, a record at a time."""
        for acks in ("1", "all"):
            with self._topic() as topic:
                row = Row(
                    what=f"end to end, one record at a time, acks={acks}",
                    unit="ms",
                    other_name="Kafka",
                    ratio_min=1.0,
                )
                for side in (self.ours, self.kafka):
                    self._end_to_end(side, topic, acks)
                for _ in range(self.sizes.turns):
                    self._turn(row, lambda side: self._end_to_end(side, topic, acks))  # noqa: B023
                yield row

    def _end_to_end(self, side: Side, topic: str, acks: str) -> float:
        done = kafka_tool(
            _END_TO_END,
            *("--bootstrap-server", side.address, "--topic", topic),
            *("--num-records", str(self.sizes.messages), "--producer-acks", acks),
            *("--record-size", "100"),
        )
        found = re.search(r"Avg latency: ([\d.]+) ms", done.stdout)
        if found is None:
            raise SystemExit(f"{done.stdout}\n{done.stderr}")
        return float(found[1])

    # ---- a load of raw requests

    def _load(self, side: Side, **job: Any) -> dict[str, Any]:
        with ExitStack() as stack:
            process = stack.enter_context(self._begin_load(side, **job))
            out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"the load on {side.name} failed: {out}")
        return dict(json.loads(out))

    def _begin_load(self, side: Side, **job: Any) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(LOAD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps({"port": side.port, "keys": 1_000_000} | job))
        process.stdin.close()
        process.stdin = None
        return process

    def connection_rows(self) -> Iterator[Row]:
        """Batches of 16 KiB and of 1 KiB over many connections, five requests in flight on each."""
        for label, size, record_bytes in (("16 KiB", 16_000, 1_000), ("1 KiB", 1_000, 1_000)):
            for connections in (1, 10, 100, 1_000):
                partitions = min(connections, 10)
                job = {
                    "partitions": partitions,
                    "connections": connections,
                    "batch_bytes": size,
                    "record_bytes": record_bytes,
                    "in_flight": 5,
                }
                what = f"raw produce, {label} batches, {connections} connections"
                yield from self._load_rows(what, partitions, job)

    def _load_rows(self, what: str, partitions: int, job: dict[str, Any]) -> Iterator[Row]:
        speed = Row(what=what, unit="MB/s", other_name="Kafka", ratio_min=1.0)
        cost = Row(what=f"{what}: CPU", unit="s/GB", other_name="Kafka", ratio_min=1.0)
        with self._topic(partitions) as topic:

            def run(side: Side, costs: list[float], seconds: float) -> float:
                begun = cpu_seconds(side)
                done = self._load(side, topic=topic, seconds=seconds, **job)
                costs.append((cpu_seconds(side) - begun) / (done["bytes"] / 1e9))
                return float(done["mb_per_s"])

            self._turns(speed, cost, lambda side, costs: run(side, costs, self.sizes.load_s))
        yield speed
        yield cost

    def _turns(self, speed: Row, cost: Row, run: Callable[[Side, list[float]], float]) -> None:
        """The turns of both rows, after one that does not count."""
        for side in self.sides:
            run(side, [])
        for _ in range(self.sizes.turns):
            self._turn(
                speed, lambda side: run(side, cost.ours if side is self.sides[0] else cost.other)
            )

    # ---- many processes of Kafka's tools

    def many_rows(self) -> Iterator[Row]:
        """kafka-producer-perf-test and kafka-consumer-perf-test in several processes at once."""
        for size in (1024, 100):
            for count in (1, 4, 8):
                yield from self._many_rows(
                    f"{count} producers of {size} B",
                    lambda _: None,
                    self._produce_many,
                    size,
                    count,
                )
        for size in (1024, 100):
            for count in (1, 4, 8):
                yield from self._many_rows(
                    f"{count} consumers of {size} B",
                    lambda topic, size=size: self._fill(topic, size),
                    self._consume_many,
                    size,
                    count,
                )

    def _many_rows(
        self,
        what: str,
        fill: Callable[[str], None],
        run_many: Callable[[Side, str, int, int], tuple[float, int]],
        size: int,
        count: int,
    ) -> Iterator[Row]:
        speed = Row(what=what, unit="MB/s", other_name="Kafka", ratio_min=1.0)
        cost = Row(what=f"{what}: CPU", unit="s/GB", other_name="Kafka", ratio_min=1.0)
        with self._topic(partitions=8) as topic:
            fill(topic)

            def run(side: Side, costs: list[float]) -> float:
                begun = cpu_seconds(side)
                seconds, total = run_many(side, topic, size, count)
                costs.append((cpu_seconds(side) - begun) / (total / 1e9))
                return total / seconds / 1e6

            self._turns(speed, cost, run)
        yield speed
        yield cost

    def _many_bytes(self, size: int) -> int:
        return self.sizes.turn_bytes if size > 100 else self.sizes.turn_bytes // 3

    def _fill(self, topic: str, size: int) -> None:
        for side in self.sides:
            self._produce(side, topic, size, _BATCHED, self._many_bytes(size))

    def _produce_many(self, side: Side, topic: str, size: int, count: int) -> tuple[float, int]:
        """Seconds from the first record in the log to the last one, and the bytes of records."""
        records = self._many_bytes(size) // size // count
        before = side.record_count(topic)
        with ThreadPoolExecutor(count) as pool:
            total = records * size
            done = [
                pool.submit(self._produce, side, topic, size, ("acks=all",), total)
                for _ in range(count)
            ]
            begun = None
            while begun is None or side.record_count(topic) < before + records * count:
                if begun is None and side.record_count(topic) > before:
                    begun = time.monotonic()
                if all(each.done() for each in done):
                    break
                time.sleep(_LOOK_S)
            ended = time.monotonic()
            for each in done:
                each.result()
        assert begun is not None, "no record was written"
        return ended - begun, total * count

    def _consume_many(self, side: Side, topic: str, size: int, count: int) -> tuple[float, int]:
        """Seconds in which all have read everything, by their own clocks, and the bytes read."""
        records = self._many_bytes(size) // size
        with ThreadPoolExecutor(count) as pool:
            done = [pool.submit(self._consumed, side, topic, records) for _ in range(count)]
            spans = [each.result() for each in done]
        seconds = max(end for _, end in spans) - min(start for start, _ in spans)
        return seconds, records * size * count

    def _consumed(self, side: Side, topic: str, count: int) -> tuple[float, float]:
        """The times at which a consumer began and ended, in seconds since the epoch."""
        start, end = self._consumer_line(side, topic, count)[:2]
        began, ended = (
            datetime.strptime(each, "%Y-%m-%d %H:%M:%S:%f").replace(tzinfo=UTC).timestamp()
            for each in (start, end)
        )
        return began, ended

    # ---- reads and writes while a log is cleaned

    def cleaning_rows(self) -> Iterator[Row]:
        """A producer and a consumer at a fifth of peak, without and with a clean beside them."""
        results: dict[str, dict[str, dict[str, Any]]] = {}
        for side in (self.ours, self.kafka):
            results[side.name] = self._cleaning(side)
        row = Row(
            what="p99 of produce while cleaning, over p99 without",
            unit="x",
            other_name="Kafka",
            ratio_min=1.0,
            detail={"sides": results},
        )
        for side, figures in ((self.ours, row.ours), (self.kafka, row.other)):
            quiet, busy = results[side.name]["quiet"], results[side.name]["cleaning"]
            figures.append(busy["p99_ms"] / quiet["p99_ms"])
        yield row
        absolute = Row(
            what="p99 of produce while cleaning", unit="ms", other_name="Kafka", ratio_min=1.0
        )
        absolute.ours.append(results[self.ours.name]["cleaning"]["p99_ms"])
        absolute.other.append(results[self.kafka.name]["cleaning"]["p99_ms"])
        yield absolute

    def _cleaning(self, side: Side) -> dict[str, dict[str, Any]]:
        compacted, followed = f"compacted-{side.name}", f"followed-{side.name}"
        never = {"min.cleanable.dirty.ratio": "1.0", "segment.bytes": "104857600"}
        side.create(compacted, 1, {"cleanup.policy": "compact", **never})
        side.create(followed, 1, {})
        fill = {
            "topic": compacted,
            "partitions": 1,
            "connections": 1,
            "batch_bytes": 128_000,
            "record_bytes": 270,
            "in_flight": 5,
        }
        speed = self._load(side, **fill, seconds=self.sizes.load_s)["mb_per_s"]
        left = self.sizes.cleaned_bytes / 1e6 - speed * self.sizes.load_s
        if left > 0:
            self._load(side, **fill, seconds=left / speed)
        steady = {
            "topic": followed,
            "partitions": 1,
            "connections": 1,
            "batch_bytes": 16_000,
            "record_bytes": 1_000,
            "in_flight": 5,
            "follow": True,
        }
        peak = self._load(side, **steady, seconds=self.sizes.load_s)
        rate = peak["requests"] / self.sizes.load_s / 5
        quiet = self._load(side, **steady, requests_per_s=rate, seconds=2 * self.sizes.load_s)
        side.warm_cleaner()
        begun = time.monotonic()
        with self._begin_load(
            side, **steady, requests_per_s=rate, seconds=2 * self.sizes.load_s
        ) as process:
            side.alter(compacted, {"min.cleanable.dirty.ratio": "0.01"})
            seconds = side.wait_until_cleaned(compacted, begun)
            out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"a request failed while {side.name} was cleaning: {out}")
        return {"quiet": quiet, "cleaning": json.loads(out) | {"cleaned_s": seconds}}


#: The sections that need nothing of Kafka's.
_ALONE = ("start", "connections")
SECTIONS = ("start", "memory", "produce", "consume", "latency", "connections", "many", "cleaning")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = section_parser(__doc__, SECTIONS, free="40 GB are free")
    parser.add_argument("--load-seconds", type=float, default=None, metavar="SECONDS")
    parser.add_argument(
        "--no-kafka", action="store_true", help=f"ours alone; of sections {', '.join(_ALONE)}"
    )
    options = parser.parse_args(arguments)
    chosen = chosen_sections(parser, options, SECTIONS)
    if options.no_kafka and (needing := [name for name in chosen if name not in _ALONE]):
        parser.error(f"these sections need Kafka's tools: {needing}")
    sizes = _QUICK if options.quick else Sizes()
    given = {"turns": options.turns, "load_s": options.load_seconds}
    sizes = replace(sizes, **{name: value for name, value in given.items() if value is not None})
    target = options.json or measure.results_file("broker-")
    with tempfile.TemporaryDirectory(prefix="bench-broker-", dir=options.work_dir) as directory:
        bench = Bench(sizes, Path(directory), kafka=not options.no_kafka)
        rows = report(bench.run(chosen), target)
    print(
        "for benchmarks/README.md:",
        "| | Kafka | Cordwood | ratio |",
        "| --- | --- | --- | --- |",
        sep="\n",
    )
    for row in rows:
        if row.what in SHORT_ROWS:
            print(row.markdown(SHORT_ROWS[row.what], ours_first=False))
    print(f"written to {target}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
