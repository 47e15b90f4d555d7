"""Costs that grow with the number of segments: look-ups, append, roll, open; and retention."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.retention_pass import retention_pass
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.append import record_walk
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log_manager import LogManager
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.manual_clock import ManualClock
from log_data import (
    EPOCH_MS,
    Batches,
    TimedBatches,
    UnsyncedFileSystem,
    fill_by_segments,
    open_log,
)
from log_rows import Row

BATCH_RECORDS = 15  # 4 KB of them
BATCHES_A_SEGMENT = 32

_LOOKUP_MICROSECONDS_MAX = 20.0
_FETCH_BYTES = 1 << 20
_APPENDS = 500
_ROLLS = 50
_DAY_MS = 86_400_000
_LOGS_A_RETENTION = 100


def segment_rows(
    work: Path, *, segments: int, lookups: int, turns: int, has_target: bool
) -> Iterator[Row]:
    """One log of that many segments: opened, asked, appended to, rolled.

    Args:
        work: an empty directory.
        segments: how many.
        lookups: how many of each kind a turn makes.
        turns: how often.
        has_target: these look-ups are the ones with a target.
    """
    record_walk.prepare()
    directory = work / "log-0"
    log = open_log(directory, fs=UnsyncedFileSystem())
    records = fill_by_segments(
        log, segments=segments, batches=BATCHES_A_SEGMENT, records=BATCH_RECORDS
    )
    log.close()
    where = f"{segments:,} segments"

    row = Row(what=f"{where}: open", unit="ms")
    for _ in range(turns):
        row.turn(lambda: _open_ms(directory))
    yield row

    log = open_log(directory, fs=UnsyncedFileSystem())
    log.update_high_watermark(log.log_end_offset)
    rng = random.Random(segments)

    def by_offset(number: int) -> None:
        log.reader.read(number, _FETCH_BYTES, isolation=Isolation.HIGH_WATERMARK)

    def by_timestamp(number: int) -> None:
        found = log.reader.list_offset(EPOCH_MS + number)
        assert found is not None, "every millisecond has its record"
        assert found.offset == number, "the records are a millisecond apart"

    for what, look_up in (("offset", by_offset), ("timestamp", by_timestamp)):
        yield from _lookup_rows(
            f"{where}: look up {what}", look_up, rng, records, lookups, turns, has_target
        )
    batch = Batches(16 << 10).raw[0]
    row = Row(what=f"{where}: append 16 KiB", unit="us")
    for _ in range(turns):
        row.turn(lambda: _median_us(lambda: log.append_as_leader(batch), _APPENDS))
    yield row
    row = Row(what=f"{where}: roll", unit="us")
    for _ in range(turns):
        row.turn(lambda: _median_roll_us(log.roll, lambda: log.append_as_leader(batch)))
    yield row
    log.close_handlers()
    shutil.rmtree(directory)


def _open_ms(directory: Path) -> float:
    begun = time.perf_counter()
    log = open_log(directory)
    seconds = time.perf_counter() - begun
    log.close_handlers()
    return seconds * 1e3


def _lookup_rows(
    what: str,
    look_up: Callable[[int], None],
    rng: random.Random,
    records: int,
    lookups: int,
    turns: int,
    has_target: bool,
) -> Iterator[Row]:
    middle = Row(
        what=f"{what}, median",
        unit="us",
        at_most=_LOOKUP_MICROSECONDS_MAX if has_target else None,
    )
    slowest = Row(what=f"{what}, p99", unit="us")
    for _ in range(turns):
        took: list[int] = []

        def one_turn() -> float:
            clock = time.perf_counter_ns
            for number in [rng.randrange(records) for _ in range(lookups)]:
                begun = clock()
                look_up(number)
                took.append(clock() - begun)  # noqa: B023
            took.sort()  # noqa: B023
            return took[len(took) // 2] / 1e3  # noqa: B023

        middle.turn(one_turn)
        slowest.ours.append(took[len(took) * 99 // 100] / 1e3)
    slowest.others_cores = middle.others_cores
    yield middle
    yield slowest


def _median_us(run: Callable[[], object], count: int) -> float:
    took = []
    for _ in range(count):
        begun = time.perf_counter_ns()
        run()
        took.append(time.perf_counter_ns() - begun)
    return median(took) / 1e3


def _median_roll_us(roll: Callable[[], object], append: Callable[[], object]) -> float:
    took = []
    for _ in range(_ROLLS):
        append()
        begun = time.perf_counter_ns()
        roll()
        took.append(time.perf_counter_ns() - begun)
    return median(took) / 1e3


def retention_rows(work: Path, *, segments: int, turns: int) -> Iterator[Row]:
    """Retention over many segments in a hundred logs: nothing goes, then half, then the files.

    Args:
        work: an empty directory.
        segments: of all logs together.
        turns: how often the pass is run that deletes nothing.
    """
    record_walk.prepare()
    each = max(2, segments // _LOGS_A_RETENTION)
    clock = ManualClock(EPOCH_MS + 30 * _DAY_MS)
    config = LogConfig(retention_ms=7 * _DAY_MS, segment_ms=365 * _DAY_MS)
    manager = LogManager(
        [work / "logs"],
        defaults=config,
        context=LogContext(clock=clock, resources=ResourceCache(UnsyncedFileSystem())),
    )
    manager.load()
    timed = TimedBatches(4)
    old, new = timed.at(EPOCH_MS), timed.at(EPOCH_MS + 29 * _DAY_MS)
    for number in range(_LOGS_A_RETENTION):
        log = manager.get_or_create(TopicPartition("log", number))
        for segment in range(each):
            log.append_as_leader(old if segment < each // 2 else new)
            if segment < each - 1:
                log.roll()
        log.update_high_watermark(log.log_end_offset)
        log.context.scheduler.run_due()
    manager.shutdown()
    # From here on with the machine's own file system, fsyncs and all.
    manager = LogManager([work / "logs"], defaults=config, context=LogContext(clock=clock))
    manager.load()
    for log in manager.logs():
        log.update_high_watermark(log.log_end_offset)
    cleaning = CleanerManager(manager)
    total = each * _LOGS_A_RETENTION
    yield from _retention_rows(manager, cleaning, config, total, turns, clock)
    manager.shutdown()
    shutil.rmtree(work / "logs")


def _retention_rows(
    manager: LogManager,
    cleaning: CleanerManager,
    config: LogConfig,
    total: int,
    turns: int,
    clock: ManualClock,
) -> Iterator[Row]:
    def run(gone: int) -> float:
        begun = time.perf_counter()
        count = retention_pass(cleaning)
        seconds = time.perf_counter() - begun
        assert count == gone, f"{count} segments went"
        return seconds

    where = f"{total:,} segments in {_LOGS_A_RETENTION} logs"
    size = max(log.size_bytes for log in manager.logs())
    for what, changed in (
        ("by time", config),
        ("by size too", replace(config, retention_bytes=size + 1)),
    ):
        for log in manager.logs():
            log.update_config(replace(changed, retention_ms=10**15))
        row = Row(what=f"retention, {where}: none go, {what}", unit="s")
        for _ in range(turns):
            row.turn(lambda: run(0))
        yield row
    for log in manager.logs():
        log.update_config(config)
    row = Row(what=f"retention, {where}: half go", unit="s")
    row.turn(lambda: run(total // 2))
    yield row

    def remove() -> float:
        clock.advance(config.file_delete_delay_ms)
        begun = time.perf_counter()
        manager.context.scheduler.run_due()
        return time.perf_counter() - begun

    row = Row(what=f"retention, {where}: their files", unit="s")
    row.turn(remove)
    yield row
