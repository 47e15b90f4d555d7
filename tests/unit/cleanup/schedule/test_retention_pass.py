"""Retention of a running log: the scenarios of UnifiedLogTest, and the worked examples.

`tests/unit/cleanup/access/test_capture.py` has retention beside readers, restarts and what is
logged.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.capture import view_of
from cordwood.cleanup.rules.retention import plan_retention
from cordwood.cleanup.schedule.retention_pass import retain
from cordwood.configs.log_config import LogConfig
from cordwood.model.kafka_errors import OffsetOutOfRangeError
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.testing.manual_clock import ManualClock
from support.log_under_test import (
    Producer,
    bases,
    catch_up,
    last_sequences,
    names_with,
    new_log,
    sized_batch,
    snapshot_offsets,
)
from support.running_logs import RunningLogs
from support.segments import set_last_modified
from support.stored_log import batch_of, put

TEST_BYTES = len(batch_of(b"test"))


def filled(
    root: Path,
    count: int,
    *,
    clock: ManualClock | None = None,
    age_ms: int | None = None,
    timestamp: int | None = None,
    key: bytes | None = None,
    high_watermark: int | None = None,
    **settings: int | str,
) -> PartitionLog:
    """A log of `count` records of one size, five to a segment; the high watermark is at the end."""
    clock = clock or ManualClock()
    size = len(batch_of(b"test", key=key))
    if timestamp is None:
        timestamp = -1 if age_ms is None else clock.now_ms() - age_ms
    log = new_log(root, clock=clock, **{"segment_bytes": 5 * size, **settings})  # type: ignore[arg-type]
    for _ in range(count):
        put(log, b"test", key=key, timestamp=timestamp)
    log.update_high_watermark(count if high_watermark is None else high_watermark)
    return log


def collect(log: PartitionLog) -> int:
    return retain(log, log.context.clock.now_ms())


def after_the_delay(log: PartitionLog) -> None:
    clock = log.context.clock
    assert isinstance(clock, ManualClock)
    clock.advance(log.config.file_delete_delay_ms + 1)
    log.context.scheduler.run_due()


# ---- all of it


@pytest.mark.parametrize("count", [0, 1, 25])
def test_retention_of_0_ms_leaves_one_empty_segment_and_the_end_where_it_was(
    tmp_path: Path, count: int
) -> None:
    log = filled(tmp_path, count, age_ms=10, segment_bytes=100, retention_ms=0)
    segments = len(log.segments)
    assert segments == max(1, count)
    assert collect(log) == (segments if count else 0)
    assert (log.log_end_offset, bases(log), log.size_bytes) == (count, (count,), 0)
    assert collect(log) == 0, "there is nothing left to delete"
    assert log.log_end_offset == count
    assert put(log, b"hello").first_offset == count


def test_the_old_segments_unblocked_by_the_log_start_go_and_a_second_pass_finds_nothing(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    log = new_log(tmp_path, clock=clock, retention_ms=900, file_delete_delay_ms=0)
    for ahead in (100, 0, 100):
        put(log, b"a", timestamp=clock.now_ms() + ahead)
        if len(log.segments) < 3:
            log.roll()
    clock.advance(901)
    catch_up(log)
    assert plan_retention(view_of(log, None), now_ms=clock.now_ms()).expired == ()
    log.delete_records(1)
    assert collect(log) == 2
    assert collect(log) == 0
    assert bases(log) == (2,)


# ---- the high watermark


def test_segments_go_only_below_a_high_watermark_of_25_to_30_and_then_all(
    tmp_path: Path,
) -> None:
    log = filled(tmp_path, 100, age_ms=1000, high_watermark=0, retention_ms=999)
    log.assign_epoch(0, 40)
    log.assign_epoch(1, 90)
    segments = len(log.segments)
    assert collect(log) == 0
    assert (len(log.segments), log.log_start_offset) == (segments, 0)

    for high_watermark in range(25, 31):
        log.update_high_watermark(high_watermark)
        collect(log)
        assert log.log_start_offset <= high_watermark
        assert all(s.read_next_offset() - 1 >= high_watermark for s in log.segments)

    catch_up(log)
    collect(log)
    assert len(log.segments) == 1
    assert log.leader_epochs.epoch_entries == ((1, 100),)
    log.delete()
    assert not log.directory.exists()


def test_the_log_start_follows_a_high_watermark_from_0_to_100(tmp_path: Path) -> None:
    clock = ManualClock()
    log = new_log(
        tmp_path, clock=clock, segment_bytes=512, segment_index_bytes=1000, retention_ms=999
    )
    for number in range(100):
        put(log, b"test%d" % number, timestamp=clock.now_ms() - 1000)
    assert len(log.segments) > 5
    assert (log.high_watermark, log.log_start_offset, log.log_end_offset) == (0, 0, 100)
    for high_watermark in range(101):
        log.update_high_watermark(high_watermark)
        collect(log)
        assert log.log_start_offset <= high_watermark
        first, *others = bases(log)
        assert log.log_start_offset <= first <= high_watermark
        assert all(base > high_watermark for base in others)
    assert (log.log_start_offset, bases(log), log.active.size_bytes) == (100, (100,), 0)


def test_a_high_watermark_known_before_any_record_came_lets_segments_go(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, age_ms=1000, retention_ms=999)
    assert log.update_high_watermark(25) == 25
    before = len(log.segments)
    assert collect(log) == 5
    assert len(log.segments) == before - 5
    assert log.log_start_offset == 25


def test_bases_0_10_and_20_with_a_high_watermark_of_19_lose_the_first_alone(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, segment_bytes=10 * TEST_BYTES, retention_ms=1)
    for _ in range(25):
        put(log, b"test", timestamp=1)
    for high_watermark, left in ((9, (0, 10, 20)), (19, (10, 20)), (24, (20,)), (25, (25,))):
        log.update_high_watermark(high_watermark)
        collect(log)
        assert bases(log) == left


# ---- size


@pytest.mark.parametrize(("batches", "left"), [(10, (5, 10)), (15, (0, 5, 10)), (0, (15,))])
def test_of_15_records_a_size_of_10_leaves_two_segments_and_of_15_all_three(
    tmp_path: Path, batches: int, left: tuple[int, ...]
) -> None:
    log = filled(tmp_path, 15, retention_bytes=batches * TEST_BYTES)
    collect(log)
    assert bases(log) == left


@pytest.mark.parametrize(
    ("retention", "left"),
    [(2200, (1, 2, 3)), (3500, (0, 1, 2, 3)), (3490, (0, 1, 2, 3)), (0, (4,)), (-1, (0, 1, 2, 3))],
)
def test_three_segments_of_1000_and_500_active_bytes_shrink_to_what_still_reaches_the_size(
    tmp_path: Path, retention: int, left: tuple[int, ...]
) -> None:
    log = new_log(tmp_path, segment_bytes=1000, retention_bytes=retention)
    for size in (1000, 1000, 1000, 500):
        log.append_as_leader(sized_batch(size))
    catch_up(log)
    assert [segment.size_bytes for segment in log.segments] == [1000, 1000, 1000, 500]
    collect(log)
    assert bases(log) == left
    assert log.log_start_offset == left[0]


# ---- time


def test_records_of_long_ago_leave_one_segment_and_recent_ones_all_three(tmp_path: Path) -> None:
    old = filled(tmp_path / "old", 15, timestamp=10, retention_ms=10_000)
    collect(old)
    assert len(old.segments) == 1
    recent = filled(tmp_path / "recent", 15, age_ms=0, retention_ms=10_000_000)
    collect(recent)
    assert len(recent.segments) == 3


def test_the_scan_stops_at_the_first_segment_that_has_not_expired(tmp_path: Path) -> None:
    clock = ManualClock(10_000)
    log = new_log(tmp_path, clock=clock, retention_ms=1000)
    for timestamp in (8000, 9000, 8500, 9500):
        put(log, b"v", timestamp=timestamp)
        if timestamp < 9500:
            log.roll()
    catch_up(log)
    assert collect(log) == 1
    assert bases(log) == (1, 2, 3), "9000 is just 1000 ms old; 8500 behind it has expired"
    clock.advance(1)
    assert collect(log) == 2
    assert bases(log) == (3,)


def test_without_timestamps_segments_expire_by_the_time_of_their_files(tmp_path: Path) -> None:
    log = filled(tmp_path, 15, timestamp=-1, retention_ms=10_000)
    now = log.context.clock.now_ms()
    for segment, age_ms in zip(log.segments, (20_000, 10_000, 0), strict=True):
        os.utime(segment.path, ns=((now - age_ms) * 1_000_000,) * 2)
    assert collect(log) == 1
    assert bases(log) == (5, 10)


# ---- policies


def test_a_compacted_log_keeps_expired_segments(tmp_path: Path) -> None:
    log = filled(
        tmp_path, 15, timestamp=10, key=b"test", retention_ms=10_000, cleanup_policy="compact"
    )
    set_last_modified(log.segments.first, log.context.clock.now_ms() - 20_000)
    assert collect(log) == 0
    assert len(log.segments) == 3


def test_a_log_that_is_compacted_and_deleted_from_loses_expired_segments(tmp_path: Path) -> None:
    policy = "compact,delete"
    log = filled(
        tmp_path, 15, timestamp=10, key=b"test", retention_ms=10_000, cleanup_policy=policy
    )
    collect(log)
    assert len(log.segments) == 1


def test_a_compacted_log_loses_segments_below_its_start(tmp_path: Path) -> None:
    log = filled(
        tmp_path, 15, timestamp=10, key=b"test", retention_ms=10_000, cleanup_policy="compact"
    )
    log.delete_records(5)
    collect(log)
    assert len(log.segments) == 2
    first, *others = bases(log)
    assert first <= log.log_start_offset
    assert all(base > log.log_start_offset for base in others)


# ---- the log start


def test_a_log_start_of_1_leaves_three_segments_of_6_two_and_of_15_one(tmp_path: Path) -> None:
    log = filled(tmp_path, 15)
    assert (len(log.segments), log.log_start_offset) == (3, 0)
    for start, left in ((1, 3), (6, 2), (15, 1)):
        log.delete_records(start)
        collect(log)
        assert (len(log.segments), log.log_start_offset) == (left, start)
    assert bases(log) == (10,), "the active segment never goes for the log start's sake"


def test_a_log_start_of_26_above_a_high_watermark_of_25_is_out_of_range(tmp_path: Path) -> None:
    log = filled(tmp_path, 100, high_watermark=25)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(26)
    assert log.log_start_offset == 0


@pytest.mark.parametrize(("start", "left"), [(9, (0, 10, 20)), (10, (10, 20)), (25, (20,))])
def test_bases_0_10_and_20_lose_what_ends_at_or_below_the_log_start(
    tmp_path: Path, start: int, left: tuple[int, ...]
) -> None:
    log = new_log(tmp_path, segment_bytes=10 * TEST_BYTES)
    for _ in range(25):
        put(log, b"test")
    catch_up(log)
    log.delete_records(start)
    collect(log)
    assert (bases(log), log.log_start_offset) == (left, start)


# ---- what goes with segments


@pytest.mark.parametrize(
    ("epochs", "left"),
    [
        (((0, 0), (1, 5), (2, 10)), ((1, 5), (2, 10))),
        (((0, 0), (1, 7), (2, 10)), ((0, 5), (1, 7), (2, 10))),
    ],
    ids=["the first wholly", "the first in part"],
)
def test_leader_epochs_go_with_their_segments(
    tmp_path: Path, epochs: tuple[tuple[int, int], ...], left: tuple[tuple[int, int], ...]
) -> None:
    log = filled(tmp_path, 15, retention_bytes=10 * TEST_BYTES)
    for epoch, start in epochs:
        log.assign_epoch(epoch, start)
    collect(log)
    assert log.leader_epochs.epoch_entries == left


@pytest.mark.parametrize("empty_active", [True, False])
def test_producer_snapshots_go_with_their_segments_and_one_is_left(
    tmp_path: Path, empty_active: bool
) -> None:
    clock = ManualClock()
    log = new_log(
        tmp_path, clock=clock, retention_bytes=0, retention_ms=60_000, file_delete_delay_ms=0
    )
    producer = Producer(log, 1, transactional=False)
    for number in range(3):
        producer.append()
        if number < 2 or empty_active:
            log.roll()
    catch_up(log)
    assert len(snapshot_offsets(log.directory)) == (3 if empty_active else 2)
    clock.advance(60_001)
    collect(log)
    after_the_delay(log)
    assert snapshot_offsets(log.directory) == [3]
    assert log.log_start_offset == 3


def test_producer_snapshots_below_a_raised_log_start_go(tmp_path: Path) -> None:
    log = new_log(tmp_path, file_delete_delay_ms=0)
    producer = Producer(log, 1, transactional=False)
    for number in range(3):
        producer.append()
        if number < 2:
            log.roll()
    catch_up(log)
    assert snapshot_offsets(log.directory) == [1, 2]
    log.delete_records(log.log_end_offset - 1)
    collect(log)
    after_the_delay(log)
    assert snapshot_offsets(log.directory) == [2]


def test_a_compaction_takes_the_producer_snapshots_of_segments_that_are_no_more(
    tmp_path: Path,
) -> None:
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}),
        min_cleanable_dirty_ratio=0.01,
        file_delete_delay_ms=0,
    )
    logs = RunningLogs(tmp_path, {"t": config})
    log = logs.log()
    for sequence, value in enumerate((b"a", b"b", b"c")):
        put(log, value, key=b"a", producer=(1, 0, sequence))
        if sequence < 2:
            log.roll()
    catch_up(log)
    assert snapshot_offsets(log.directory) == [1, 2] == list(bases(log)[1:])
    assert logs.cleaner.clean_once()
    after_the_delay(log)
    assert snapshot_offsets(log.directory) == list(bases(log)[1:]) == [2]
    assert last_sequences(log) == {1: 2}


def test_producers_outlive_their_deleted_segments(tmp_path: Path) -> None:
    size = len(batch_of(b"foo", producer=(1, 0, 0)))
    log = new_log(tmp_path, segment_bytes=size, retention_bytes=2 * size)
    put(log, b"foo", producer=(1, 0, 0))
    log.producer_state.take_snapshot()
    put(log, b"bar", producer=(2, 0, 0))
    put(log, b"baz", producer=(2, 0, 1))
    log.producer_state.take_snapshot()
    assert len(log.segments) == 3
    assert last_sequences(log) == {1: 0, 2: 1}
    catch_up(log)
    collect(log)
    assert len(log.segments) == 2
    assert last_sequences(log) == {1: 0, 2: 1}


def test_snapshots_go_after_the_delay_when_records_are_deleted_and_producers_stay(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    for producer_id in (1, 2):
        Producer(log, producer_id, transactional=False).append()
        log.roll()
    assert snapshot_offsets(log.directory) == [1, 2]
    catch_up(log)
    log.delete_records(2)
    collect(log)
    after_the_delay(log)
    assert last_sequences(log) == {1: 0, 2: 0}
    assert snapshot_offsets(log.directory) == [2]


# ---- files


def test_files_are_there_as_deleted_for_1000_ms_and_then_gone(tmp_path: Path) -> None:
    clock = ManualClock()
    log = filled(
        tmp_path,
        100,
        clock=clock,
        age_ms=1000,
        segment_index_bytes=1000,
        index_interval_bytes=10_000,
        retention_ms=999,
        file_delete_delay_ms=1000,
    )
    old = list(log.segments)
    log.flush()
    paths = [s.path for s in old] + [s.offset_index.path for s in old]
    assert all(path.exists() for path in paths)
    collect(log)
    assert len(log.segments) == 1
    assert not any(path.exists() for path in paths)
    renamed = [path.with_name(path.name + ".deleted") for path in paths]
    assert all(path.exists() for path in renamed)
    assert [s.path for s in old] + [s.offset_index.path for s in old] == renamed
    clock.advance(999)
    log.context.scheduler.run_due()
    assert all(path.exists() for path in renamed)
    clock.advance(2)
    log.context.scheduler.run_due()
    assert names_with(log.directory, ".deleted") == []
    assert names_with(log.directory, ".log") == [f"{100:020d}.log"]


# ---- which segments may go at all


def test_segments_may_go_from_the_oldest_on_but_for_an_empty_active_one(tmp_path: Path) -> None:
    clock = ManualClock()
    log = new_log(tmp_path, clock=clock, retention_ms=1)
    for _ in range(9):
        put(log, b"a")
        log.roll()
    catch_up(log)
    assert len(log.segments) == 10
    clock.advance(10)

    def may_go() -> list[int]:
        return [
            e.base_offset for e in plan_retention(view_of(log, None), now_ms=clock.now_ms()).expired
        ]

    assert may_go() == list(range(9))
    put(log, b"a")
    catch_up(log)
    assert may_go() == list(range(9)), "the newest has not expired"
    clock.advance(10)
    assert may_go() == list(range(10))
    assert len(log.segments) == 10, "a plan changes nothing"


# ---- records of the future

DAY_MS = 86_400_000


@pytest.mark.parametrize("restarted", [False, True])
def test_with_append_time_a_record_ten_years_ahead_goes_when_its_append_is_too_old(
    tmp_path: Path, *, restarted: bool
) -> None:
    clock = ManualClock()
    config = LogConfig(
        retention_ms=DAY_MS,
        message_timestamp_after_max_ms=1 << 62,
        cordwood_timestamp_future_policy="append-time",
    )
    logs = RunningLogs(tmp_path, {"t": config, "k": LogConfig(retention_ms=DAY_MS)}, clock=clock)
    ahead_ms = clock.now_ms() + 3650 * DAY_MS
    for name in ("t-0", "k-0"):
        log = logs.log(name)
        log.update_config(replace(log.config, message_timestamp_after_max_ms=1 << 62))
        logs.put(log, (None, b"a"), timestamp=ahead_ms)
        set_last_modified(log.active, clock.now_ms())  # the machine's time is another
        log.roll()
        logs.put(log, (None, b"b"))
        set_last_modified(log.active, clock.now_ms())
    if restarted:
        logs.restart()
    log, kafkas = logs.log("t-0"), logs.log("k-0")
    clock.advance(DAY_MS)
    assert retain(log, clock.now_ms()) == 0
    clock.advance(1)
    assert retain(log, clock.now_ms()) == 2
    assert log.log_start_offset == log.log_end_offset == 2
    assert retain(kafkas, clock.now_ms()) == 0
    assert kafkas.log_start_offset == 0


def test_append_time_is_by_the_logs_clock_even_where_the_machines_is_behind(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    config = LogConfig(retention_ms=DAY_MS, cordwood_timestamp_future_policy="append-time")
    logs = RunningLogs(tmp_path, {"t": config}, clock=clock)
    log = logs.log()
    logs.put(log, (None, b"a"))
    set_last_modified(log.active, 0)
    assert retain(log, clock.now_ms() + DAY_MS) == 0
    assert retain(log, clock.now_ms() + DAY_MS + 1) == 1
