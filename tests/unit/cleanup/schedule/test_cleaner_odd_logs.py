"""Running logs of odd content, and what a cleaning tells of what is left (LogCleanerTest)."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.schedule.cleaner import OnlineCleaner
from cordwood.cleanup.schedule.cleaning_states import Aborted, Paused
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec, compress
from cordwood.format.file_names import segment_file_name
from cordwood.format.legacy import build_legacy_message
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.format.time_index import parse_time_index
from cordwood.model.topic_partition import TopicPartition
from cordwood.testing.manual_clock import ManualClock
from support.in_process_engine import CompiledEngine
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.running_logs import RunningLogs, newest, read_records
from support.stored_log import batch_of

INT_MAX = (1 << 31) - 1
T0 = TopicPartition("t", 0)
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)


def of_inner_magic_0(offset: int, key: bytes, value: bytes) -> bytes:
    """A compressed set as old cleaners left it: magic 1 outside, magic 0 within."""
    inner = build_legacy_message(offset=offset, magic=0, key=key, value=value)
    return build_legacy_message(
        offset=offset,
        magic=1,
        key=None,
        value=compress(Codec.GZIP, inner, magic=1),
        timestamp=-1,
        attributes=int(Codec.GZIP),
    )


def test_sets_of_magic_1_that_hold_magic_0_are_cleaned(tmp_path: Path) -> None:
    builder = LogBuilder("t-0")
    for offset in range(10):
        builder.append(of_inner_magic_0(offset, b"%d" % (offset % 4), b"%d" % offset))
    builder.roll()
    write_log_dir(tmp_path / "logs-0", [builder])
    logs = RunningLogs(tmp_path, {"t": COMPACT}, clock=ManualClock(NOW_MS))
    log = logs.log()
    assert logs.cleaner.clean_once(), logs.cleaning.uncleanable_partitions(log.log_dir)
    data = log.segments[0].path.read_bytes()
    assert all(isinstance(batch, RecordBatch) for _, batch in iter_batches(data))
    assert newest(read_records(log)) == {b"%d" % (n % 4): (b"%d" % n, n) for n in range(6, 10)}


def test_a_segment_that_has_overflowed_is_left_to_the_recovery_that_splits_it(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "logs-0" / "t-0"
    directory.mkdir(parents=True)
    data = b"".join(
        batch_of(b"v", key=key, base_offset=offset, leader_epoch=0)
        for offset, key in ((0, b"a"), (1, b"b"), (INT_MAX + 5, b"a"), (INT_MAX + 6, b"c"))
    )
    path = directory / segment_file_name(0, ".log")
    path.write_bytes(data)
    path.with_suffix(".index").touch()
    # The active segment is read to its end when a log is opened, and would be split then.
    active = directory / segment_file_name(INT_MAX + 7, ".log")
    active.write_bytes(batch_of(b"v", key=b"d", base_offset=INT_MAX + 7, leader_epoch=0))
    active.with_suffix(".index").touch()
    mark = directory.parent / ".kafka_cleanshutdown"
    mark.write_text('{"version":0,"brokerEpoch":1}')
    logs = RunningLogs(tmp_path, {"t": replace(COMPACT, index_interval_bytes=1)})
    log = logs.log()
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    assert not logs.cleaner.clean_once()
    assert "2147483652" in logs.cleaning.uncleanable_partitions(log.log_dir)[T0]
    assert path.read_bytes() == data
    logs.manager.shutdown()
    mark.unlink()
    (directory.parent / "recovery-point-offset-checkpoint").unlink()
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    log = logs.log()
    assert log.segments.base_offsets == (0, INT_MAX + 5, INT_MAX + 7, INT_MAX + 8)
    log.update_high_watermark(log.log_end_offset)
    assert logs.cleaner.clean_once()
    found = [record.offset for record in read_records(log)]
    assert found == [1, INT_MAX + 5, INT_MAX + 6, INT_MAX + 7]


def test_a_cleaned_segments_time_index_names_the_last_offset_of_the_newest_batch(
    tmp_path: Path,
) -> None:
    logs = RunningLogs(tmp_path, {"t": COMPACT})
    log = logs.log()
    for stamps in ((10,), (11, 12), (13, 20, 15), (16,)):
        first = log.log_end_offset
        gone = {0, 2, 3}
        records = [
            Record(n, stamp, b"gone" if first + n in gone else b"%d" % (first + n), b"v")
            for n, stamp in enumerate(stamps)
        ]
        log.append_as_leader(build_batch(records, base_offset=0))
    logs.put(log, (b"gone", b"v"), timestamp=1)
    log.roll()
    log.update_high_watermark(log.log_end_offset)
    assert logs.cleaner.clean_once()
    cleaned = log.segments[0]
    assert [r.offset for r in read_records(log)] == [1, 4, 5, 6, 7]
    times = parse_time_index(cleaned.path.with_suffix(".timeindex").read_bytes(), 0)
    assert times[-1] == (20, 5)
    assert (cleaned.max_timestamp_so_far, cleaned.offset_of_max_timestamp) == (20, 5)


@pytest.mark.parametrize("how", ["abort", "pause"])
def test_a_round_that_is_stopped_before_its_first_group_changes_nothing(
    tmp_path: Path, how: str
) -> None:
    logs = RunningLogs(tmp_path, {"t": replace(COMPACT, segment_bytes=900)})
    log = logs.log()
    for number in range(40):
        logs.put(log, (b"%d" % (number % 3), b"v"))
    before = {path.name: path.read_bytes() for path in log.directory.glob("*.log")}
    threads: list[threading.Thread] = []

    class Stopping(CompiledEngine):
        def run(self, committers: Sequence[CompactionCommitter]) -> None:
            stop = {
                "abort": logs.cleaning.states.abort_cleaning,
                "pause": logs.cleaning.states.abort_and_pause,
            }
            threads.append(threading.Thread(target=stop[how], args=(T0,), daemon=True))
            threads[0].start()
            while not isinstance(logs.cleaning.states.of(T0), Aborted):
                assert threads[0].is_alive(), "it waits for the cleaner"
            super().run(committers)

    OnlineCleaner(logs.cleaning, Stopping()).clean_once()
    threads[0].join(120)
    assert logs.cleaning.states.of(T0) == (Paused(1) if how == "pause" else None)
    assert {path.name: path.read_bytes() for path in log.directory.glob("*.log")} == before
    assert not list(log.directory.glob("*.staged"))
    assert logs.checkpoint() in {None, 0}
    assert not logs.cleaning.uncleanable_partitions(log.log_dir)
