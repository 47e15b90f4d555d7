"""A real Kafka goes on where `cordwood clean` stopped: as its own user, from our checkpoint."""

from __future__ import annotations

import os
import pwd
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.clean import run_clean
from support.compare import dump_files
from support.kafka import RealKafka, read_checkpoint
from support.reading import offset_of, read_partition
from support.workload import DAY_MS, Workload

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.usefixtures("kafka_jars")]

SMALL = {"internal.segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.01"}
TOPICS = {
    "goes-on-plain": {**SMALL, "cleanup.policy": "compact"},
    "goes-on-gzip": {**SMALL, "cleanup.policy": "compact", "compression.type": "gzip"},
    "goes-on-transactions": {**SMALL, "cleanup.policy": "compact", "delete.retention.ms": "0"},
    "goes-on-open": {**SMALL, "cleanup.policy": "compact"},
    "goes-on-both": {**SMALL, "cleanup.policy": "compact,delete", "retention.ms": str(DAY_MS)},
    "goes-on-deleted": {**SMALL, "cleanup.policy": "delete", "retention.ms": str(DAY_MS)},
    "goes-on-untouched": {**SMALL, "cleanup.policy": "delete", "retention.ms": "-1"},
}
COMPACTED = ("goes-on-plain", "goes-on-gzip", "goes-on-transactions", "goes-on-both")

ABOUT_LOGS = re.compile(
    r"\] (?:WARN|ERROR|FATAL) .*\((?:kafka\.log\.|org\.apache\.kafka\.storage\.|kafka\.cluster\."
    r"|org\.apache\.kafka\.server\.log|kafka\.server\.(?:ReplicaManager|LogDir))"
)
DEPRECATED_SETTING = "The config `log.cleaner.enable` is deprecated"
CLEANED_RANGE = re.compile(r"cleaned log (\S+) \(dirty section = \[(\d+), (\d+)\]\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A broker stopped after writing, whose directory `cordwood clean` has then cleaned."""

    kafka: RealKafka
    work: Workload
    owner: str

    @property
    def data(self) -> Path:
        return self.kafka.log_dirs[0]


def write(work: Workload, now_ms: int) -> None:
    work.fill("goes-on-plain", 1200, tombstones=0.2)
    work.fill("goes-on-gzip", 1200, settings={"compression.type": "lz4"})
    work.transactions("goes-on-transactions", 50)
    work.fill("goes-on-open", 500)
    work.fill("goes-on-untouched", 300)
    for topic in ("goes-on-both", "goes-on-deleted"):
        work.fill(topic, 600, timestamp=lambda n: now_ms - 3 * DAY_MS + n)
        work.fill(topic, 400, timestamp=lambda n: now_ms - 1000 + n)


@pytest.fixture(scope="module")
def stopped(kafka_jars: Path) -> Iterator[Stopped]:
    # Not below pytest's own temporary directory, which another user may not enter.
    with tempfile.TemporaryDirectory(prefix="cordwood-goes-on-") as name:
        Path(name).chmod(0o755)
        other = "nobody" if os.geteuid() == 0 else None
        with RealKafka(Path(name) / "kafka", user=other) as kafka:
            work = written_and_stopped(kafka)
            owner = other or pwd.getpwuid(os.geteuid()).pw_name
            yield Stopped(kafka=kafka, work=work, owner=owner)


def written_and_stopped(kafka: RealKafka) -> Workload:
    work = Workload(kafka, seed=7)
    kafka.start_without_cleaning()
    now_ms = time.time_ns() // 1_000_000
    work.create(TOPICS)
    write(work, now_ms)
    left_open = work.transactional("goes-on-left-open", transaction_timeout_ms=900_000)
    left_open.begin_transaction()
    work.fill("goes-on-open", 40, producer=left_open)
    work.fill("goes-on-open", 300)
    work.delete_records("goes-on-untouched", 77)
    kafka.stop()
    return work


def survivors(partition: Path, start: int, *, committed_only: bool) -> list[tuple[int, int, int]]:
    """Offset, key size and value size of what a consumer sees, from Kafka's own dump of the log."""
    logs = sorted(partition.glob("*.log"))
    dump = dump_files(logs)
    seen: list[tuple[int, int, int]] = []
    undecided: dict[int, list[tuple[int, int, int]]] = {}
    producer, transactional = -1, False
    for line in (line for log in logs for line in dump.lines[log]):
        if line.startswith("baseOffset: "):
            producer = int(fact("producerId", line))
            transactional = fact("isTransactional", line) == "true" and committed_only
        elif " endTxnMarker: " in line:
            decided = undecided.pop(producer, [])
            seen += decided if fact("endTxnMarker", line) == "COMMIT" else []
        elif line.startswith("| offset: "):
            offset = int(fact("offset", line))
            record = (offset, int(fact("keySize", line)), int(fact("valueSize", line)))
            (undecided.setdefault(producer, []) if transactional else seen).append(record)
    stable = min((records[0][0] for records in undecided.values()), default=2**63)
    return sorted(record for record in seen if start <= record[0] < stable)


def fact(name: str, line: str) -> str:
    """The value that follows `name: ` in a line of a dump."""
    found = re.search(rf"\b{name}: (\S+)", line)
    assert found is not None, (name, line)
    return found[1]


def consume(kafka: RealKafka, topic: str, isolation: str) -> list[tuple[int, int, int]]:
    """Reads a partition from its start to its end: offsets, sizes of keys and of values."""
    return [
        (offset_of(each), _size(each.key()), _size(each.value()))
        for each in read_partition(kafka.client(), topic, isolation=isolation).messages
    ]


def _size(part: bytes | None) -> int:
    return -1 if part is None else len(part)


def size_of(partition: Path) -> int:
    return sum(log.stat().st_size for log in partition.glob("*.log"))


def complaints(kafka: RealKafka) -> list[str]:
    """Warnings and errors about logs since the broker was last started."""
    lines = kafka.log_since_start.splitlines()
    return [line for line in lines if ABOUT_LOGS.search(line) and DEPRECATED_SETTING not in line]


def test_kafka_serves_the_survivors_and_cleans_on_from_our_checkpoint(stopped: Stopped) -> None:
    kafka, data = stopped.kafka, stopped.data
    sizes = {topic: size_of(data / f"{topic}-0") for topic in TOPICS}
    run_clean([data], now_ms=time.time_ns() // 1_000_000)
    for topic in ("goes-on-plain", "goes-on-deleted"):
        assert size_of(data / f"{topic}-0") < sizes[topic], topic
    owners = {path.owner() for path in data.rglob("*") if path.name != ".lock"}
    assert owners == {stopped.owner}
    starts = read_checkpoint(data / "log-start-offset-checkpoint")
    checkpoints = read_checkpoint(data / "cleaner-offset-checkpoint")
    assert {f"{topic}-0" for topic in COMPACTED} <= checkpoints.keys()
    expected = {
        (topic, isolation): survivors(
            data / f"{topic}-0", starts.get(f"{topic}-0", 0), committed_only=committed
        )
        for topic in TOPICS
        for isolation, committed in (("read_committed", True), ("read_uncommitted", False))
    }

    kafka.start_without_cleaning()
    for (topic, isolation), records in expected.items():
        assert consume(kafka, topic, isolation) == records, (topic, isolation)
    assert complaints(kafka) == []
    write(stopped.work, time.time_ns() // 1_000_000)
    kafka.stop()

    kafka.start_cleaning()
    kafka.wait_until_clean()
    kafka.stop()
    assert complaints(kafka) == []
    dirty_from: dict[str, int] = {}
    for partition, start, _ in CLEANED_RANGE.findall(kafka.log_since_start):
        dirty_from.setdefault(partition, int(start))
    for topic in COMPACTED:
        assert dirty_from[f"{topic}-0"] == checkpoints[f"{topic}-0"], topic
