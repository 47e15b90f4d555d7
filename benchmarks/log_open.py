"""Directories of many logs, or of much data, opened by both sides on equal copies.

Kafka makes the directory and its topics and is stopped; the records are then written by our own
logs. Ours are opened by a process of their own, `log_opener`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    LOG_SUFFIX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.append import record_walk
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log_manager import LogManager
from cordwood.storage.segment.resources import ResourceCache
from kafka_side import JVM_FLAGS, jvm_flags
from log_data import Batches, UnsyncedFileSystem, allow_many_files, clone, warm
from log_opener import LARGE_MODULES
from log_rows import Row
from support.kafka import RealKafka, poll_until

_OPENER = Path(__file__).with_name("log_opener.py")
_TOPICS = 10
_OPEN_SECONDS_MAX = 15.0
_OURS_SECONDS_MAX = 900
_MAKE_SECONDS_MAX = 600
_LOOK_SECONDS = 0.5
_LOADED = re.compile(r"Loaded (\d+) logs in (\d+)ms( \(unclean log dirs)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """State of a directory that our side has opened; memory in bytes."""

    seconds: float
    cpu_seconds: float
    logs: int
    resident_bytes: int
    resident_before_bytes: int
    descriptors: int
    stop_seconds: float
    large_modules: list[str]


def partition_rows(work: Path, *, partitions: int, turns: int, kafka: bool) -> Iterator[Row]:
    """Directories after a clean stop.

    Args:
        work: an empty directory.
        partitions: how many, of ten topics, with two segments each.
        turns: how often.
        kafka: measure Kafka as well.
    """
    each = max(1, partitions // _TOPICS)
    source = _directory(work, {f"open{n}": each for n in range(_TOPICS)}, kafka=kafka)
    batch = Batches(4 << 10).raw[0]
    manager = _our_manager(source)
    for number in range(each * _TOPICS):
        log = manager.get_or_create(TopicPartition(f"open{number % _TOPICS}", number // _TOPICS))
        log.append_as_leader(batch)
        log.append_as_leader(batch)
        log.roll()
        log.append_as_leader(batch)
        log.update_high_watermark(log.log_end_offset)
    manager.shutdown()
    os.sync()
    opened: list[Opened] = []
    row = Row(
        what=f"open {each * _TOPICS:,} partitions after a clean stop",
        unit="s",
        other_name="Kafka",
        ratio_min=1.0,
        at_most=_OPEN_SECONDS_MAX,
    )
    logs = each * _TOPICS
    for _ in range(turns):
        row.turn(
            lambda: _ours(source, work / "ours", logs, opened),
            (lambda: _kafkas(source, work, logs, is_clean=True)) if kafka else None,
        )
    typical = sorted(opened, key=lambda o: o.seconds)[len(opened) // 2]
    row.detail = {
        "resident_bytes": typical.resident_bytes,
        "resident_before_bytes": typical.resident_before_bytes,
        "descriptors": typical.descriptors,
        "cpu_seconds": typical.cpu_seconds,
        "stop_seconds": typical.stop_seconds,
        "large_modules": typical.large_modules,
    }
    yield row
    shutil.rmtree(source)


def recovery_rows(work: Path, *, size_bytes: int, turns: int, kafka: bool) -> Iterator[Row]:
    """Logs after a stop that was not clean, with recovery points of 0: all of it is walked.

    Args:
        work: an empty directory.
        size_bytes: of all logs.
        turns: how often.
        kafka: measure Kafka as well.
    """
    partitions = 5
    source = _directory(work, {"recover": partitions}, kafka=kafka)
    segment_bytes = min(1 << 30, max(1 << 20, size_bytes // partitions // 2 + (1 << 16)))
    record_walk.prepare()
    batches = Batches(16 << 10)
    manager = _our_manager(source, LogConfig(segment_bytes=segment_bytes))
    data = batches.cycle(max(1, size_bytes // partitions // len(batches.raw[0])))
    for number in range(partitions):
        log = manager.get_or_create(TopicPartition("recover", number))
        for batch in data:
            log.append_as_leader(batch)
        log.update_high_watermark(log.log_end_offset)
    manager.shutdown()
    os.sync()
    # A crash: nothing says up to where the logs had been flushed.
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT):
        (source / name).unlink()
    size = warm(source)
    opened: list[Opened] = []
    row = Row(
        what=f"recover {size / 1e9:.1f} GB, {partitions} partitions",
        unit="s",
        other_name="Kafka",
        ratio_min=1.0,
    )
    for _ in range(turns):
        warm(source)
        row.turn(
            lambda: _ours(source, work / "ours", partitions, opened),
            (lambda: _kafkas(source, work, partitions, is_clean=False)) if kafka else None,
        )
    assert warm(source) == size, "a sound log is not cut"
    row.detail = {
        "bytes": size,
        "segments": len(list(source.glob(f"recover-*/*{LOG_SUFFIX}"))),
        "cpu_seconds": min(o.cpu_seconds for o in opened),
        "resident_bytes": max(o.resident_bytes for o in opened),
    }
    yield row
    shutil.rmtree(source)


def idle_rows() -> Iterator[Row]:
    """Measures the cost of the storage layer: its import."""
    row = Row(what="import cordwood.storage.log_manager", unit="ms")
    code = (
        "import sys, time; t = time.perf_counter(); import cordwood.storage.log_manager; "
        "print((time.perf_counter() - t) * 1e3); "
        f"print([m for m in {LARGE_MODULES} if m in sys.modules])"
    )
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
        took, large = done.stdout.decode().splitlines()
        assert large == "[]", f"importing the storage layer loads {large}"
        row.ours.append(float(took))
    yield row


# ---- the two sides


def _directory(work: Path, topics: dict[str, int], *, kafka: bool) -> Path:
    """A log directory with these topics, empty, as Kafka leaves it."""
    source = work / "source"
    if not kafka:
        return source
    allow_many_files()
    with jvm_flags(JVM_FLAGS), RealKafka(work / "maker", log_dirs=[source]) as broker:
        admin = broker.start_without_cleaning()
        for topic, count in topics.items():  # Kafka refuses to make very many partitions at once
            wanted = NewTopic(topic, num_partitions=count, replication_factor=1)
            for made in admin.create_topics([wanted], request_timeout=120).values():
                made.result()
        names = {f"{topic}-{n}" for topic, count in topics.items() for n in range(count)}
        poll_until(
            lambda: all((source / name / PARTITION_METADATA).exists() for name in names),
            timeout_s=_MAKE_SECONDS_MAX,
            what="Kafka makes the partitions",
            interval_s=2,
        )
        broker.kill()  # a clean stop would take minutes, and our logs close cleanly after this
    shutil.rmtree(work / "maker")
    return source


class _TerseKafka(RealKafka):
    """One that logs what Kafka's own configuration has it log, and no more."""

    def programs(self) -> tuple[Path, Path]:
        jars, resources = super().programs()
        own = self.root / "log4j"
        own.mkdir(exist_ok=True)
        for config in resources.glob("*.xml"):
            lines = config.read_text().splitlines(keepends=True)
            (own / config.name).write_text("".join(x for x in lines if 'level="DEBUG"' not in x))
        return jars, own

    def serving(self) -> AdminClient | None:
        """Does not wait until every partition has a leader."""
        if not self.is_running:
            return super().serving()
        time.sleep(_LOOK_SECONDS)
        return self.admin() if _LOADED.search(self.log_since_start) else None


def _our_manager(directory: Path, defaults: LogConfig | None = None) -> LogManager:
    """One without fsyncs, to write what is to be measured."""
    context = LogContext(resources=ResourceCache(UnsyncedFileSystem()))
    manager = LogManager([directory], defaults=defaults, context=context)
    manager.load()
    return manager


def _ours(source: Path, copy: Path, logs: int, opened: list[Opened]) -> float:
    """Opens a copy in a fresh process; the seconds that this took, without the process's start."""
    clone(source, copy)
    done = subprocess.run(
        [sys.executable, str(_OPENER), str(copy)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_OURS_SECONDS_MAX,
    )
    answer = Opened(**json.loads(done.stdout.splitlines()[-1]))
    assert answer.logs == logs, f"{answer.logs} logs were found"
    opened.append(answer)
    shutil.rmtree(copy)
    return answer.seconds


def _kafkas(source: Path, work: Path, logs: int, *, is_clean: bool) -> float:
    """Starts Kafka on a copy; the seconds that it says it took to load the logs."""
    copy, root = work / "kafka", work / "kafka-root"
    clone(source, copy)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        stack.callback(shutil.rmtree, copy, ignore_errors=True)
        stack.enter_context(jvm_flags(JVM_FLAGS))
        broker = stack.enter_context(_TerseKafka(root, log_dirs=[copy]))
        broker.start_without_cleaning()
        found = _LOADED.search(broker.log_since_start)
        assert found is not None, "Kafka says how long it took"
        assert int(found[1]) == logs, found[0]
        assert (found[3] is None) == is_clean, found[0]
        broker.kill()
    return int(found[2]) / 1e3
