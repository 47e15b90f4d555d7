"""Retention of a running log, and a running log as planners see it: UnifiedLogTest."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from cordwood.cleanup.access.capture import SegmentInUse, capture, view_of
from cordwood.cleanup.schedule.retention_pass import retain
from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.kafka_errors import OffsetOutOfRangeError, StorageError
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from support.running_logs import RunningLogs

DAY_MS = 86_400_000


def running(
    tmp_path: Path,
    count: int,
    *,
    each: int = 5,
    policy: str = "delete",
    timestamp: int | None = None,
    key: bytes | None = b"k",
    **settings: int,
) -> tuple[RunningLogs, PartitionLog]:
    """A log of `count` batches of a record of the same size, so many to a segment."""
    config = LogConfig(cleanup_policy=frozenset(policy.split(",")) - {""}, **settings)  # type: ignore[arg-type]
    logs = RunningLogs(tmp_path, {"t": config})
    log = logs.log()
    for number in range(count):
        if number and number % each == 0:
            log.roll()
        logs.put(log, (key, b"value"), timestamp=timestamp)
    return logs, log


def shape(log: PartitionLog) -> tuple[int, int, int]:
    """(segments, log start offset, log end offset)."""
    return len(log.segments), log.log_start_offset, log.log_end_offset


def collect(logs: RunningLogs, log: PartitionLog) -> int:
    return retain(log, logs.clock.now_ms())


def batch_bytes(log: PartitionLog) -> int:
    return log.size_bytes // log.log_end_offset


# ---- what goes


@pytest.mark.parametrize("count", [0, 1, 25])
def test_when_all_is_expired_one_empty_segment_is_left_at_the_end(
    tmp_path: Path, count: int
) -> None:
    logs, log = running(tmp_path, count, timestamp=10, retention_ms=0)
    before = len(log.segments) if count else 0
    assert collect(logs, log) == before
    assert shape(log) == (1, count, count)
    assert log.active.size_bytes == 0
    assert collect(logs, log) == 0, "a second pass finds nothing"
    assert logs.put(log, (b"k", b"v")) == count


@pytest.mark.parametrize("high_watermark", [24, 25, 26, 30, 99, 100])
def test_segments_at_or_above_the_high_watermark_stay(tmp_path: Path, high_watermark: int) -> None:
    logs, log = running(tmp_path, 100, timestamp=10, retention_ms=0)
    log.update_high_watermark(high_watermark)
    whole = high_watermark // 5
    assert collect(logs, log) == whole
    assert shape(log) == (max(1, 20 - whole), 5 * whole, 100)


def test_the_log_start_follows_a_high_watermark_that_rises_record_by_record(
    tmp_path: Path,
) -> None:
    logs, log = running(tmp_path, 100, timestamp=10, retention_ms=0)
    for high_watermark in range(101):
        log.update_high_watermark(high_watermark)
        collect(logs, log)
        assert log.log_start_offset == high_watermark // 5 * 5
    assert shape(log) == (1, 100, 100)
    assert log.active.size_bytes == 0


@pytest.mark.parametrize(("batches", "left"), [(10, 2), (15, 3)])
def test_size_keeps_the_newest_segments_that_reach_it(
    tmp_path: Path, batches: int, left: int
) -> None:
    logs, log = running(tmp_path, 15, retention_ms=-1)
    log.update_config(LogConfig(retention_ms=-1, retention_bytes=batches * batch_bytes(log)))
    assert collect(logs, log) == 3 - left
    assert shape(log) == (left, 15 - 5 * left, 15)


@pytest.mark.parametrize(("timestamp", "left"), [(10, 1), (None, 3)])
def test_time_goes_by_the_records(tmp_path: Path, timestamp: int | None, left: int) -> None:
    logs, log = running(tmp_path, 15, timestamp=timestamp, retention_ms=10_000)
    collect(logs, log)
    assert len(log.segments) == left


def test_without_timestamps_time_goes_by_the_files(tmp_path: Path) -> None:
    logs, log = running(tmp_path, 15, timestamp=-1, retention_ms=10_000)
    now = logs.clock.now_ms()
    ages = {0: 20_000, 5: 10_000, 10: 0}
    for segment in log.segments:
        age = ages[segment.base_offset]
        os.utime(segment.path, ns=((now - age) * 1_000_000,) * 2)
    assert collect(logs, log) == 1
    assert shape(log) == (2, 5, 15)


def test_a_record_from_the_future_keeps_its_segment_and_all_behind_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs, log = running(tmp_path, 15, timestamp=10, retention_ms=10_000)
    log.roll()
    logs.put(log, (b"k", b"v"), timestamp=logs.clock.now_ms() + DAY_MS // 24)
    log.roll()
    logs.put(log, (b"k", b"v"), timestamp=10)
    assert collect(logs, log) == 3
    assert shape(log) == (2, 15, 17)
    assert "contains future timestamp(s), making it ineligible to be deleted" in caplog.text


@pytest.mark.parametrize(("policy", "left"), [("compact", 3), ("", 3), ("compact,delete", 1)])
def test_size_and_time_need_the_delete_policy(tmp_path: Path, policy: str, left: int) -> None:
    logs, log = running(
        tmp_path, 15, policy=policy, timestamp=10, retention_ms=10_000, retention_bytes=0
    )
    collect(logs, log)
    assert len(log.segments) == left


@pytest.mark.parametrize("policy", ["compact", "delete", "compact,delete", ""])
def test_segments_below_the_log_start_go_under_any_policy(tmp_path: Path, policy: str) -> None:
    logs, log = running(tmp_path, 15, policy=policy, retention_ms=-1)
    for log_start, left in ((1, 3), (6, 2), (15, 1)):
        log.maybe_increment_log_start_offset(log_start, "test")
        collect(logs, log)
        assert (len(log.segments), log.log_start_offset) == (left, log_start)


def test_the_log_start_cannot_be_raised_above_the_high_watermark(tmp_path: Path) -> None:
    logs, log = running(tmp_path, 30)
    log.update_high_watermark(25)
    with pytest.raises(OffsetOutOfRangeError):
        log.maybe_increment_log_start_offset(26, "test")
    assert collect(logs, log) == 0


def test_the_three_rules_run_one_after_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    logs, log = running(tmp_path, 0)
    for number, timestamp in enumerate([1, 1, 10, 10, 0, 0]):
        if number % 2 == 0 and number:
            log.roll()
        logs.put(log, (b"k", b"value"), timestamp=timestamp or logs.clock.now_ms())
    log.roll()
    logs.put(log, (b"k", b"value"))
    log.maybe_increment_log_start_offset(2, "test")
    size = log.segments[0].size_bytes
    log.update_config(LogConfig(retention_ms=DAY_MS, retention_bytes=log.size_bytes - 2 * size))
    names = [str(segment) for segment in log.segments]
    # Without the size rule the second would go by its age.
    assert collect(logs, log) == 2
    prefix = f"[UnifiedLog partition=t-0, dir={log.log_dir}]"
    assert f"{prefix} Deleting segments due to log start offset 2 breach: {names[0]}" in caplog.text
    assert (
        f"{prefix} Deleting segment {names[1]} due to log retention size "
        f"{log.config.retention_bytes} breach. Log size after deletion will be "
        f"{log.config.retention_bytes}." in caplog.text
    )
    assert "Incremented log start offset to 4 due to segment deletion" in caplog.text
    assert shape(log) == (2, 4, 7)


def test_the_reason_of_a_deletion_by_time_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    logs, log = running(tmp_path, 10, timestamp=10, retention_ms=10_000)
    name = str(log.segments[1])
    assert collect(logs, log) == 2
    assert any(
        message.endswith(
            f"Deleting segment {name} due to log retention time 10000ms breach based on the "
            "largest record timestamp in the segment"
        )
        for message in caplog.messages
    )


# ---- what a deletion leaves behind


def test_files_are_renamed_at_once_and_removed_after_their_delay(tmp_path: Path) -> None:
    logs, log = running(tmp_path, 10, timestamp=10, retention_ms=0, file_delete_delay_ms=1_000)
    collect(logs, log)
    doomed = {path.name for path in log.directory.glob("*.deleted")}
    assert {f"{base:020d}{s}.deleted" for base in (0, 5) for s in (".log", ".index")} <= doomed
    logs.clock.advance(999)
    logs.manager.context.scheduler.run_due()
    assert {path.name for path in log.directory.glob("*.deleted")} == doomed
    logs.clock.advance(1)
    logs.manager.context.scheduler.run_due()
    assert not list(log.directory.glob("*.deleted"))
    assert [path.name for path in log.directory.glob("*.log")] == [f"{10:020d}.log"]


def test_a_reader_goes_on_through_segments_that_are_deleted(tmp_path: Path) -> None:
    logs, log = running(tmp_path, 10, timestamp=10, retention_ms=0, file_delete_delay_ms=0)
    fetched = log.reader.read(0, 1 << 20, isolation=Isolation.LOG_END)
    expected = log.segments[0].path.read_bytes()
    collect(logs, log)
    logs.manager.context.scheduler.run_due()
    assert not list(log.directory.glob("*.deleted"))
    assert fetched.read() == expected
    with pytest.raises(OffsetOutOfRangeError):
        log.reader.read(0, 1 << 20, isolation=Isolation.LOG_END)


def test_a_deletion_takes_leader_epochs_and_producer_snapshots_with_it(tmp_path: Path) -> None:
    logs, log = running(tmp_path, 0, retention_ms=-1)
    for number in range(15):
        if number and number % 5 == 0:
            log.roll()
        log.append_as_leader(
            build_batch(
                [Record(0, 10, b"k", b"v")],
                base_offset=0,
                producer_id=1,
                producer_epoch=0,
                base_sequence=number,
            ),
            leader_epoch=number // 5,
        )
    log.update_high_watermark(15)
    assert [p.name for p in sorted(log.directory.glob("*.snapshot"))] == [
        f"{5:020d}.snapshot",
        f"{10:020d}.snapshot",
    ]
    log.maybe_increment_log_start_offset(6, "test")
    assert collect(logs, log) == 1
    assert [tuple(entry) for entry in log.leader_epochs.epoch_entries] == [(1, 6), (2, 10)]
    log.maybe_increment_log_start_offset(10, "test")
    assert collect(logs, log) == 1
    assert [p.name for p in log.directory.glob("*.snapshot")] == [f"{10:020d}.snapshot"]
    assert [tuple(entry) for entry in log.leader_epochs.epoch_entries] == [(2, 10)]


def test_what_was_deleted_stays_deleted_after_a_restart(tmp_path: Path) -> None:
    logs, log = running(tmp_path, 25, timestamp=10, retention_ms=0)
    log.update_high_watermark(12)
    collect(logs, log)
    logs.restart()
    assert shape(logs.log()) == (3, 10, 25)


# ---- a pass where nothing goes


def test_a_pass_where_nothing_goes_looks_at_the_oldest_segment_alone(tmp_path: Path) -> None:
    logs, log = running(tmp_path, 25, retention_ms=DAY_MS)
    logs.restart()
    log = logs.log()
    for segment in list(log.segments)[1:]:
        for path in log.directory.glob(f"{segment.base_offset:020d}.*"):
            path.unlink()
    assert collect(logs, log) == 0


def test_a_closed_log_loses_nothing(tmp_path: Path) -> None:
    logs, log = running(tmp_path, 10, timestamp=10, retention_ms=0)
    log.close()
    with pytest.raises(StorageError):
        collect(logs, log)
    assert len(list(log.directory.glob("*.log"))) == 2


# ---- the view


def test_a_view_says_what_the_log_says(tmp_path: Path) -> None:
    _, log = running(tmp_path, 12, timestamp=77)
    log.update_high_watermark(11)
    log.maybe_increment_log_start_offset(3, "test")
    view = view_of(log, 4)
    assert [(s.base_offset, s.size_bytes) for s in view.segments] == [
        (s.base_offset, s.size_bytes) for s in log.segments
    ]
    assert (view.log_start_offset, view.log_end_offset) == (3, 12)
    assert (view.high_watermark, view.last_stable_offset, view.cleaner_checkpoint) == (11, 11, 4)
    assert view.size_bytes == log.size_bytes
    first = view.segments[0]
    assert first.largest_timestamp == first.largest_record_timestamp == 77
    assert first.first_batch_timestamp == 77
    assert first.modified_ms == log.segments[0].path.stat().st_mtime_ns // 1_000_000


def test_a_view_stays_as_it_was_while_the_log_grows(tmp_path: Path) -> None:
    logs, log = running(tmp_path, 12)
    view = view_of(log, None)
    before = view.size_bytes, view.log_end_offset, len(view.segments)
    for _ in range(10):
        logs.put(log, (b"k", b"v"))
        log.roll()
    assert (view.size_bytes, view.log_end_offset, len(view.segments)) == before


def test_an_empty_segment_has_no_first_batch(tmp_path: Path) -> None:
    _, log = running(tmp_path, 0)
    empty = SegmentInUse(log.active)
    assert (empty.size_bytes, empty.first_batch_timestamp) == (0, LONG_MAX)
    assert empty.largest_record_timestamp == -1


def test_a_capture_holds_the_segments_of_the_round_alone(tmp_path: Path) -> None:
    _, log = running(tmp_path, 15)
    captured = capture(log, end=10)
    assert [source.base_offset for source in captured.sources] == [0, 5]
    assert captured.segments == (log.segments[0], log.segments[1])
    assert len(captured.view.segments) == 3
    for source, segment in zip(captured.sources, captured.segments, strict=True):
        assert source.path == str(segment.path)
        assert source.size_bytes == segment.size_bytes
        assert source.modified_ns == segment.path.stat().st_mtime_ns


def test_a_closed_log_is_not_captured(tmp_path: Path) -> None:
    _, log = running(tmp_path, 15)
    log.close()
    with pytest.raises(StorageError):
        capture(log, end=10)
