"""A segment that became several, and one whose replacement was interrupted: a Kafka goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import SystemClock
from support.in_process_engine import clean_in_process
from support.kafka import RealKafka
from support.killing import KillableCleanings
from support.reading import read_committed
from support.workload import Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

SEGMENT_BYTES = 16384
HORIZON_MS = 10**15
TOPIC = "growing"
SETTINGS = {
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "retention.ms": "-1",
    "cleanup.policy": "compact",
    "delete.retention.ms": str(HORIZON_MS),
}
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    segment_bytes=SEGMENT_BYTES,
    delete_retention_ms=HORIZON_MS,
)


def sizes_in(directory: Path) -> dict[int, int]:
    return {int(path.stem): path.stat().st_size for path in directory.glob("*.log")}


def filled(kafka: RealKafka) -> None:
    """Tombstones of different keys in batches of some: with a horizon each takes more bytes."""
    work = Workload(kafka, seed=11)
    work.create({TOPIC: SETTINGS})
    producer = work.producer({"batch.num.messages": 20})
    for number in range(6_000):
        work.send(producer, TOPIC, None, key=b"%d" % number)
    work.flush(producer)


def test_a_kafka_opens_segments_that_became_several(tmp_path: Path) -> None:
    with RealKafka(tmp_path / "kafka") as kafka:
        kafka.start_without_cleaning()
        filled(kafka)
        before = read_committed(kafka.bootstrap_servers, TOPIC)
        kafka.stop()
        (data,) = kafka.log_dirs
        count = len(sizes_in(data / f"{TOPIC}-0"))
        now_ms = SystemClock().now_ms()
        report = clean_in_process(data, {TOPIC: CONFIG}, now_ms=now_ms, verify=True)
        assert report.failed == []
        sizes = sizes_in(data / f"{TOPIC}-0")
        assert len(sizes) > count + 3
        assert max(sizes.values()) <= SEGMENT_BYTES
        kafka.start_without_cleaning()
        assert read_committed(kafka.bootstrap_servers, TOPIC) == before
        assert kafka.errors_since_start == []
        kafka.stop()
        kafka.run_cleaner_until()
        assert kafka.errors_since_start == []


def state_of(directory: Path) -> tuple[bool, int, bool]:
    """The state of a replacement: the names before the swap, of it, and after it."""
    names = [path.name for path in directory.iterdir()]
    swaps = sum(name.endswith(".log.swap") for name in names)
    return (
        any(name.endswith(".cleaned") for name in names),
        swaps,
        any(name.endswith(".log.deleted") for name in names),
    )


def test_a_kafka_finishes_or_undoes_a_replacement_by_several_segments(tmp_path: Path) -> None:
    """A run killed while no new segment is in place, some are, and all are."""
    with RealKafka(tmp_path / "kafka") as kafka, KillableCleanings() as cleanings:
        kafka.start_without_cleaning()
        filled(kafka)
        before = read_committed(kafka.bootstrap_servers, TOPIC)
        kafka.stop()
        (data,) = kafka.log_dirs
        directory = data / f"{TOPIC}-0"
        saved = shutil.copytree(data, tmp_path / "saved")
        old = sizes_in(directory)
        now_ms = SystemClock().now_ms()
        cleanings.load(shutil.copytree(saved, tmp_path / "first"), {TOPIC: CONFIG}, now_ms=now_ms)
        wanted = {
            (True, 1, False): False,  # the second new segment is .swap, the first is not
            (False, 2, False): True,
            (False, 2, True): True,
            (False, 1, True): True,  # the first new segment has its name
        }
        for step in range(1, 60):
            shutil.rmtree(data)
            shutil.copytree(saved, data)
            cleanings.clean(data, {TOPIC: CONFIG}, now_ms=now_ms, kill_at=step)
            is_new = wanted.pop(state_of(directory), None)
            if is_new is None:
                continue
            kafka.start_without_cleaning()
            assert read_committed(kafka.bootstrap_servers, TOPIC) == before, step
            kafka.stop()
            assert (sizes_in(directory) != old) == is_new, step
            assert state_of(directory)[:2] == (False, 0)
            if not wanted:
                break
        assert not wanted
