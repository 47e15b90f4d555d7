"""Logs opened after clean stops, kills and damage: what is left, and what is made anew.

Scenarios and numbers of LogLoaderTest, and of UnifiedLogTest where it opens logs.
"""

from __future__ import annotations

import logging
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.compression import Codec
from cordwood.format.file_names import LOG_SUFFIX, segment_file_name
from cordwood.format.legacy import build_legacy_message, build_legacy_wrapper
from cordwood.format.offset_index import parse_offset_index
from cordwood.format.record_batch import Record
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.errors import CorruptError, ImpossibleOffsetError
from cordwood.model.kafka_errors import InconsistentTopicIdError
from cordwood.model.uuids import parse_uuid, uuid_text
from cordwood.storage.log.leader_epochs import EpochEntry
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.log.truncation import truncate_to
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)
from support.stored_log import (
    StoredLog,
    Transactions,
    batch_of,
    batches_in,
    end_transaction,
    files_of,
    keys_in,
    put,
    records_in,
)

INT_MAX = (1 << 31) - 1
DAY_MS = 86_400_000


def snapshots_in(stored: StoredLog) -> list[int]:
    return sorted(int(name[:20]) for name in stored.files() if name.endswith(".snapshot"))


def bases(log: PartitionLog) -> list[int]:
    return list(log.segments.base_offsets)


def producers(log: PartitionLog) -> dict[int, int]:
    """The last sequence of each producer."""
    return {e.producer_id: e.last_sequence for e in log.producer_state.entries()}


def aborted_in(log: PartitionLog) -> list[AbortedTransaction]:
    return [found for s in log.segments for found in s.indexes.transactions.all_aborted()]


def first_batch_read(log: PartitionLog, offset: int) -> int:
    """The last offset of the first batch that a read at `offset` gives."""
    data = log.reader.read(offset, 100, isolation=Isolation.LOG_END, min_one=True).read()
    return int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big")


def filled(
    stored: StoredLog, count: int, *, value_bytes: int = 4, step_ms: int = 0
) -> PartitionLog:
    """A new log of that many batches of one record each."""
    log = stored.open(clean=True)
    rng = random.Random(7)
    start = stored.clock.now_ms()
    for n in range(count):
        put(log, rng.randbytes(value_bytes), timestamp=start + n * step_ms)
    return log


# ---- producer snapshots after an unclean stop


def after_a_hundred_and_one_records(tmp_path: Path) -> tuple[StoredLog, list[int]]:
    """A log of many segments of 640 bytes, closed, and the base offsets of these."""
    fs = SimulatedFileSystem()
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=640), fs=fs)
    log = stored.open(clean=True)
    assert log.producer_state.snapshots.oldest is None
    for n in range(101):
        put(log, str(n).encode())
    assert len(log.segments) >= 5
    log.close()
    return stored, bases(log)


def opened_and_watched(
    stored: StoredLog, recovery_point: int, caplog: pytest.LogCaptureFixture
) -> tuple[set[int], list[int]]:
    """Base offsets of segments that were read from, and of those recovered, in an opening."""
    fs = stored.fs
    assert isinstance(fs, SimulatedFileSystem)
    read: set[int] = set()

    def watch(operation: FileOperation) -> None:
        if operation.kind is FileOperationKind.READ and operation.path.suffix == LOG_SUFFIX:
            read.add(int(operation.path.stem))

    caplog.clear()
    caplog.set_level(logging.INFO)
    fs.fail = watch
    stored.open(recovery_point=recovery_point)
    fs.fail = None
    found = re.findall(r"Recovering unflushed segment (\d+)", caplog.text)
    recovered = [int(base) for base in found]
    return read, recovered


def test_after_an_unclean_stop_snapshots_are_rebuilt_though_only_the_last_two_are_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored, offsets = after_a_hundred_and_one_records(tmp_path)
    stored.log.producer_state.snapshots.remove_before(offsets[-2])
    read, recovered = opened_and_watched(stored, offsets[-4], caplog)
    # The producers at the recovery point are to be had from the log's start only.
    assert read == set(offsets)
    assert recovered == offsets[-4:]
    assert snapshots_in(stored) == [*offsets[-4:], 101]
    stored.require_settled(recovery_point=offsets[-4])


def test_after_an_unclean_stop_segments_below_the_recovery_point_are_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored, offsets = after_a_hundred_and_one_records(tmp_path)
    stored.log.producer_state.snapshots.remove_before(offsets[-4])
    recovery_point = offsets[-4] + 1
    assert recovery_point < offsets[-3]
    read, recovered = opened_and_watched(stored, recovery_point, caplog)
    assert read == set(offsets[-4:])
    assert recovered == offsets[-4:]
    assert snapshots_in(stored) == [*offsets[-4:], 101]
    assert stored.log.offsets.recovery_point == recovery_point
    stored.require_settled(recovery_point=recovery_point)


def test_each_recovered_segment_is_told_of_with_its_number(tmp_path: Path) -> None:
    stored, offsets = after_a_hundred_and_one_records(tmp_path)
    heard: list[tuple[int, int]] = []
    stored.open(recovery_point=offsets[-3], on_segment=lambda n, of: heard.append((n, of)))
    assert heard == [(0, 3), (1, 3), (2, 3)]


def test_a_clean_stop_of_a_log_without_snapshots_has_them_written_and_no_batch_read(
    tmp_path: Path,
) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=640))
    log = stored.open(clean=True)
    for n in range(30):
        put(log, b"v", producer=(1, 0, n))
    offsets = bases(log)
    log.close()
    for path in stored.directory.glob("*.snapshot"):
        path.unlink()
    reopened = stored.open(clean=True)
    assert snapshots_in(stored) == [*offsets[-2:], 30]
    assert producers(reopened) == {}
    assert reopened.producer_state.map_end_offset == 30
    stored.require_settled(clean=True)


def test_a_stray_snapshot_at_42_is_removed_by_a_clean_load(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=640))
    filled(stored, 101).close()
    kept = snapshots_in(stored)
    assert 42 not in kept
    (stored.directory / segment_file_name(42, ".snapshot")).write_bytes(b"")
    stored.open(clean=True)
    assert snapshots_in(stored) == kept
    stored.require_settled(clean=True)


def test_a_stray_snapshot_within_the_log_is_removed_and_the_largest_kept(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=10_240, retention_bytes=0))
    log = stored.open(clean=True)
    for n in range(2):
        put(log, b"v", producer=(1, 0, n))
        log.roll()
    for n in range(2, 4):
        put(log, b"v", producer=(1, 0, n))
    log.close()
    assert len(log.segments) == 3
    assert snapshots_in(stored) == [1, 2, 4]
    (stored.directory / segment_file_name(3, ".snapshot")).write_bytes(b"")
    stored.open()
    assert snapshots_in(stored) == [1, 2, 4]
    assert producers(stored.log) == {1: 3}
    stored.require_settled()


def test_an_empty_log_gets_no_snapshot_and_a_truncation_keeps_its_producers_empty(
    tmp_path: Path,
) -> None:
    stored = StoredLog(tmp_path)
    log = stored.open()
    assert snapshots_in(stored) == []
    put(log, b"a")
    put(log, b"b")
    assert log.producer_state.map_end_offset == 2
    truncate_to(log, 1)
    assert log.producer_state.map_end_offset == 1
    assert log.producer_state.is_empty
    assert snapshots_in(stored) == [1]


def test_a_marker_whose_coordinator_epoch_goes_back_is_recovered(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=5 << 20))
    log = stored.open(clean=True)
    end_transaction(log, 1, commit=False, coordinator_epoch=5)
    stored.clock.advance(DAY_MS)
    log.remove_expired_producers()
    assert log.producer_state.last_entry(1) is None
    second = stored.clock.now_ms()
    end_transaction(log, 1, commit=False, coordinator_epoch=4)
    log.close()
    reopened = stored.open()
    entry = reopened.producer_state.last_entry(1)
    assert entry is not None
    assert entry.last_timestamp == second
    assert entry.coordinator_epoch == 4
    stored.require_settled()


# ---- producers after DeleteRecords


def test_records_deleted_inside_a_segment_leave_both_its_producers_known_after_a_reload(
    tmp_path: Path,
) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=10_240))
    log = stored.open(clean=True)
    put(log, b"a", producer=(1, 0, 0))
    put(log, b"b", producer=(2, 0, 0))
    log.update_high_watermark(log.log_end_offset)
    log.delete_records(1)
    assert producers(log) == {1: 0, 2: 0}
    log.close()
    reopened = stored.open(log_start_offset=1)
    assert producers(reopened) == {1: 0, 2: 0}
    assert reopened.log_start_offset == 1
    stored.require_settled(log_start_offset=1)


def test_records_deleted_up_to_a_segment_leave_one_producer_known_after_a_reload(
    tmp_path: Path,
) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=10_240))
    log = stored.open(clean=True)
    put(log, b"a", producer=(1, 0, 0))
    log.roll()
    put(log, b"b", producer=(2, 0, 0))
    assert len(log.segments) == 2
    log.update_high_watermark(log.log_end_offset)
    log.delete_records(1)
    assert delete_segments(log, 1, reason="log start offset 1 breach") == 1
    assert bases(log) == [1]
    assert producers(log) == {1: 0, 2: 0}
    log.close()
    reopened = stored.open(log_start_offset=1)
    assert producers(reopened) == {2: 0}
    stored.require_settled(log_start_offset=1)


# ---- offsets and indexes


def described(log: PartitionLog) -> dict[str, object]:
    """The entries of the active segment's indexes."""
    active = log.active
    time_index = active.time_index
    return {
        "end": log.log_end_offset,
        "last offset": active.offset_index.last_offset,
        "entries": active.offset_index.entries,
        "last time": time_index.last_entry,
        "time entries": time_index.entries,
    }


def test_a_hundred_records_reopened_with_and_without_recovery_have_the_same_indexes(
    tmp_path: Path,
) -> None:
    config = LogConfig(segment_bytes=700, index_interval_bytes=300, segment_index_bytes=4096)
    stored = StoredLog(tmp_path, config)
    log = filled(stored, 100, value_bytes=100, step_ms=10)
    assert log.log_end_offset == 100
    entries = log.active.offset_index.entries
    last_offset = log.active.offset_index.last_offset
    largest = log.active.largest_timestamp
    log.close()
    expected = described(log)
    assert expected["entries"] == entries
    assert expected["last offset"] == last_offset
    # Once it is closed, a segment's last entry names its largest timestamp and last offset.
    assert expected["last time"] == (largest, 99)
    files = stored.files()

    flushed = stored.open(recovery_point=100)
    assert described(flushed) == expected
    assert flushed.offsets.recovery_point == 100
    flushed.close()

    recovered = stored.open(recovery_point=10)
    assert described(recovered) == expected
    # Nothing has been flushed yet that was not.
    assert recovered.offsets.recovery_point == 10
    stored.require_settled(recovery_point=10)
    stored.log.flush(force_active=False)
    assert stored.log.offsets.recovery_point == 100
    stored.log.close()
    assert described(stored.log) == expected
    assert {n: b for n, b in stored.files().items() if n.endswith(LOG_SUFFIX)} == {
        n: b for n, b in files.items() if n.endswith(LOG_SUFFIX)
    }


def remove(path: Path) -> None:
    path.unlink()


def overwrite_with_two_blanks(path: Path) -> None:
    path.write_bytes(b"  ")


@pytest.mark.parametrize("damage", [remove, overwrite_with_two_blanks])
@pytest.mark.parametrize("clean", [True, False])
def test_indexes_that_are_gone_or_overwritten_are_rebuilt(
    tmp_path: Path, damage: Callable[[Path], None], *, clean: bool
) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=200, index_interval_bytes=1))
    start = stored.clock.now_ms()
    filled(stored, 200, value_bytes=10, step_ms=10).close()
    indexes = [
        path for path in stored.directory.iterdir() if path.suffix in {".index", ".timeindex"}
    ]
    assert len(indexes) >= 200
    before = stored.files()
    for path in indexes:
        damage(path)
    log = stored.open(clean=clean)
    assert log.log_end_offset == 200
    assert log.segments.first.offset_index.entries > 0
    assert log.segments.first.time_index.entries > 0
    for n in range(200):
        assert first_batch_read(log, n) == n
        found = log.reader.list_offset(start + n * 10, isolation=Isolation.LOG_END)
        assert found is not None
        assert found.offset == n
    stored.require_settled(clean=clean)
    stored.log.close()
    assert stored.files() == before


def test_a_transaction_index_that_is_damaged_has_its_segment_recovered(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    log = stored.open(clean=True)
    put(log, b"v", producer=(1, 0, 0), transactional=True)
    end_transaction(log, 1, commit=False)
    log.close()
    expected = aborted_in(log)
    assert len(expected) == 1
    before = stored.files()
    (stored.directory / segment_file_name(0, ".txnindex")).write_bytes(b"\xff" * 34)
    assert aborted_in(stored.open(clean=True)) == expected
    assert stored.files() == before
    stored.require_settled(clean=True)


def test_indexes_without_their_log_are_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = StoredLog(tmp_path)
    stored.directory.mkdir()
    orphans = [
        stored.directory / segment_file_name(5, suffix)
        for suffix in (".index", ".timeindex", ".txnindex")
    ]
    for path in orphans:
        path.write_bytes(b"")
    log = stored.open(clean=True)
    assert bases(log) == [0]
    assert not [path for path in orphans if path.exists()]
    assert caplog.text.count("Found an orphaned index file") == 3
    stored.require_settled(clean=True)
    log = stored.log
    for _ in range(10):
        put(log, b"test")
    assert log.log_end_offset == 10


def test_an_index_of_the_new_first_segment_is_made_over(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, LogConfig(index_interval_bytes=1))
    stored.directory.mkdir()
    for suffix in (".index", ".timeindex"):
        (stored.directory / segment_file_name(0, suffix)).write_bytes(b"\x01" * 24)
    log = stored.open(clean=True)
    for _ in range(3):
        put(log, b"test")
    log.close()
    data = (stored.directory / segment_file_name(0, ".index")).read_bytes()
    assert [entry[0] for entry in parse_offset_index(data, 0)] == [1, 2]


def test_a_reopened_log_is_truncated_to_three(tmp_path: Path) -> None:
    size = len(batch_of(b"test"))
    config = LogConfig(segment_bytes=size * 5, segment_index_bytes=1000, index_interval_bytes=10000)
    stored = StoredLog(tmp_path, config)
    filled(stored, 100).close()
    log = stored.open()
    truncate_to(log, 3)
    assert len(log.segments) == 1
    assert log.log_end_offset == 3
    assert [offset for offset, *_ in records_in(log)] == [0, 1, 2]
    log.close()
    stored.open(clean=True)
    assert bases(stored.log) == [0]
    assert [name for name in stored.files() if name.endswith(".deleted")] == []
    stored.require_settled(clean=True)


def test_deleted_files_are_gone_after_an_opening(tmp_path: Path) -> None:
    size = len(batch_of(b"test"))
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=size * 5, segment_index_bytes=1000))
    log = filled(stored, 100)
    log.update_high_watermark(100)
    count = len(log.segments)
    assert delete_segments(log, count, reason="retention time 999ms breach") == count
    log.close()
    deleted = [name for name in stored.files() if name.endswith(".deleted")]
    assert len([name for name in deleted if name.endswith(".log.deleted")]) == count
    assert any(name.endswith(".snapshot.deleted") for name in deleted)
    reopened = stored.open()
    assert bases(reopened) == [100]
    assert [name for name in stored.files() if name.endswith(".deleted")] == []
    stored.require_settled()


def test_a_clean_stop_is_believed_although_the_recovery_point_is_zero(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=1000, index_interval_bytes=1))
    filled(stored, 100).close()
    caplog.set_level(logging.INFO)
    log = stored.open(clean=True, recovery_point=0)
    assert log.log_end_offset == 100
    assert log.offsets.recovery_point == 100
    assert "Recovering unflushed segment" not in caplog.text


def test_an_empty_active_segment_without_an_index_is_given_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = LogConfig(segment_bytes=700, index_interval_bytes=300, segment_index_bytes=4096)
    stored = StoredLog(tmp_path, config)
    log = filled(stored, 100, value_bytes=100, step_ms=10)
    log.roll()
    log.flush(force_active=False)
    index = segment_file_name(100, ".index")
    (log.directory / index).unlink()
    with pytest.raises(FileNotFoundError):
        log.active.indexes.files.sanity_check()
    stored.abandon()
    log = stored.open(recovery_point=100)
    assert "Could not find offset index" not in caplog.text
    assert log.offsets.recovery_point == 100
    assert log.log_end_offset == 100
    assert log.active.time_index.entries == 0
    log.active.indexes.files.sanity_check()

    for n in range(100):
        put(log, b"v" * 100, timestamp=stored.clock.now_ms() + n * 10)
    log.roll()
    log.active.indexes.files.sanity_check()
    log.flush(force_active=True)
    log.active.indexes.files.sanity_check()
    stored.abandon()
    log = stored.open(recovery_point=200)
    assert log.offsets.recovery_point == 200
    assert log.log_end_offset == 200
    assert log.active.time_index.entries == 0
    log.active.indexes.files.sanity_check()
    stored.require_settled(recovery_point=200)


def test_a_missing_index_below_the_recovery_point_is_complained_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=700, index_interval_bytes=1))
    filled(stored, 20, value_bytes=100).close()
    (stored.directory / segment_file_name(0, ".index")).unlink()
    stored.open(recovery_point=20)
    assert "Could not find offset index file corresponding to log file" in caplog.text
    stored.require_settled(recovery_point=20)


# ---- damage


@pytest.mark.parametrize("round_number", range(10))
def test_garbage_behind_the_log_and_its_index_is_cut_off(tmp_path: Path, round_number: int) -> None:
    rng = random.Random(round_number)
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=1000, index_interval_bytes=1))
    count = 50 + rng.randrange(50)
    log = filled(stored, count)
    expected = records_in(log)
    log.close()
    for path in (log.active.path, log.active.path.with_suffix(".index")):
        with path.open("ab") as file:
            file.write(rng.randbytes(rng.randrange(1024) + 1))
    reopened = stored.open(recovery_point=50)
    assert reopened.log_end_offset == count
    assert records_in(reopened) == expected
    assert reopened.offsets.recovery_point == 50
    stored.require_settled(recovery_point=50)
    put(stored.log, b"next")
    assert records_in(stored.log)[-1][0] == count


def test_a_negative_position_at_the_end_of_an_index_does_not_take_the_directory_offline(
    tmp_path: Path,
) -> None:
    stored = StoredLog(tmp_path, LogConfig(index_interval_bytes=1))
    log = filled(stored, 20)
    expected = records_in(log)
    log.close()
    path = log.active.path.with_suffix(".index")
    with path.open("ab") as file:
        file.write(struct.pack(">ii", 1_000, -5))
    reopened = stored.open(clean=True, recovery_point=20)
    assert records_in(reopened) == expected
    assert not reopened.context.failures.offline
    assert reopened.log_end_offset == 20


def test_a_damaged_offset_of_the_last_batch_is_refused_and_costs_nothing(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, LogConfig())
    log = filled(stored, 20)
    log.close()
    data = bytearray(log.active.path.read_bytes())
    data[-len(data) // 20] ^= 0x80  # the sign of its base offset
    log.active.path.write_bytes(data)
    with pytest.raises(ImpossibleOffsetError, match="do not follow 18"):
        stored.open(clean=True, recovery_point=20)
    assert log.active.path.read_bytes() == data


def test_recovery_stops_at_the_first_corrupt_batch_and_later_segments_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = len(batch_of(b"test"))
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=size * 5, index_interval_bytes=1))
    filled(stored, 25).close()
    assert bases(stored.log) == [0, 5, 10, 15, 20]
    path = stored.directory / segment_file_name(10, LOG_SUFFIX)
    data = bytearray(path.read_bytes())
    data[2 * size + HEADER_BYTES] ^= 1  # a byte of the third batch's records
    path.write_bytes(data)
    log = stored.open()
    assert bases(log) == [0, 5, 10]
    assert log.log_end_offset == 12
    assert log.active.size_bytes == path.stat().st_size == 2 * size
    assert f"Found invalid messages in log segment {path} at byte offset {2 * size}" in caplog.text
    assert "Corruption found in segment 10, truncating to offset 12" in caplog.text
    left = {int(name[:20]) for name in stored.files() if name[:1] == "0"}
    assert left == {0, 5, 10, 12}
    stored.require_settled()


def test_corruption_below_the_recovery_point_is_not_looked_for(tmp_path: Path) -> None:
    size = len(batch_of(b"test"))
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=size * 5, index_interval_bytes=1))
    filled(stored, 15).close()
    path = stored.directory / segment_file_name(0, LOG_SUFFIX)
    data = bytearray(path.read_bytes())
    data[HEADER_BYTES] ^= 1
    path.write_bytes(data)
    log = stored.open(recovery_point=12)
    assert bases(log) == [0, 5, 10]
    assert log.log_end_offset == 15


def test_offsets_that_do_not_ascend_are_refused_and_nothing_is_cut_off(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, LogConfig(index_interval_bytes=1))
    stored.directory.mkdir()
    data = b"".join(batch_of(b"v", base_offset=offset) for offset in (0, 1, 2))
    (stored.directory / segment_file_name(0, LOG_SUFFIX)).write_bytes(data)
    wrong = b"".join(batch_of(b"v", base_offset=offset) for offset in (3, 4, 9, 7, 8))
    (stored.directory / segment_file_name(3, LOG_SUFFIX)).write_bytes(wrong)
    for base in (0, 3):
        (stored.directory / segment_file_name(base, ".index")).write_bytes(b"")
    (stored.directory / segment_file_name(10, LOG_SUFFIX)).write_bytes(
        batch_of(b"v", base_offset=10)
    )
    (stored.directory / segment_file_name(10, ".index")).write_bytes(b"")
    before = {path.name: path.read_bytes() for path in stored.directory.glob("*.log")}
    with pytest.raises(ImpossibleOffsetError, match="offsets 7 to 7 do not follow 9"):
        stored.open()  # Kafka empties the segment
    assert {path.name: path.read_bytes() for path in stored.directory.glob("*.log")} == before


def test_a_torn_end_after_a_clean_stop_is_cut_off_before_anything_is_appended(
    tmp_path: Path,
) -> None:
    stored = StoredLog(tmp_path)
    log = filled(stored, 10)
    log.close()
    with log.active.path.open("ab") as file:
        file.write(batch_of(b"torn", base_offset=10)[:-3])
    stored.open(clean=True)
    assert stored.log.log_end_offset == 10
    stored.require_settled(clean=True)
    put(stored.log, b"next")
    assert [offset for offset, *_ in records_in(stored.log)] == list(range(11))


# ---- log start and log end


def rolled_after_each_of(stored: StoredLog, count: int) -> PartitionLog:
    """A log with a segment for each record, and an empty one."""
    log = stored.open(clean=True)
    for n in range(count):
        put(log, str(n).encode())
        log.roll()
    return log


def test_a_log_that_ends_below_its_start_begins_anew_as_one_empty_segment(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored = StoredLog(tmp_path)
    log = rolled_after_each_of(stored, 5)
    assert len(log.segments) == 6
    log.update_high_watermark(5)
    log.delete_records(4)
    log.segments[1].path.write_bytes(b"corruptRecord")
    log.close()
    log = stored.open(log_start_offset=4)
    assert (
        "Deleting all segments because logEndOffset (1) is smaller than logStartOffset 4"
        in caplog.text
    )
    stored.clock.advance(stored.config.file_delete_delay_ms)
    stored.context.scheduler.run_due()
    assert bases(log) == [4]
    assert log.log_start_offset == log.log_end_offset == log.high_watermark == 4
    assert log.leader_epochs.epoch_entries == ()
    assert sorted(stored.files()) == [
        *(segment_file_name(4, suffix) for suffix in (".index", LOG_SUFFIX, ".timeindex")),
        "leader-epoch-checkpoint",
    ]
    stored.require_settled(log_start_offset=4)
    put(stored.log, b"next")
    assert [offset for offset, *_ in records_in(stored.log)] == [4]


def test_a_log_that_began_anew_keeps_the_snapshots_that_it_takes_from_then_on(
    tmp_path: Path,
) -> None:
    stored = StoredLog(tmp_path)
    log = rolled_after_each_of(stored, 9)
    assert log.active.base_offset == log.log_end_offset == 9
    assert snapshots_in(stored) == list(range(1, 10))
    log.update_high_watermark(9)
    log.delete_records(4)
    log.segments[1].path.write_bytes(b"corruptRecord")
    log.close()
    log = stored.open(log_start_offset=4)
    assert bases(log) == [4]
    assert log.log_end_offset == 4
    assert snapshots_in(stored) == []
    assert log.producer_state.snapshots.offsets == []
    for n in range(5):
        put(log, str(n).encode())
        log.roll()
    assert log.active.base_offset == log.log_end_offset == 9
    assert snapshots_in(stored) == list(range(5, 10))
    stored.clock.advance(stored.config.file_delete_delay_ms)
    stored.context.scheduler.run_due()
    assert log.log_start_offset == 4
    assert log.log_end_offset == 9
    assert snapshots_in(stored) == log.producer_state.snapshots.offsets == list(range(5, 10))
    assert [name for name in stored.files() if name.endswith(".deleted")] == []


def test_the_first_segment_wins_over_a_log_start_checkpointed_below_it(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    log = rolled_after_each_of(stored, 9)
    log.update_high_watermark(9)
    delete_segments(log, 5, reason="log start offset 5 breach")
    assert log.segments.first.base_offset == 5
    log.close()
    assert stored.open(clean=True, log_start_offset=0).log_start_offset == 5
    stored.require_settled(clean=True)


def test_a_log_start_inside_a_segment_is_the_checkpointed_one(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    filled(stored, 10).close()
    log = stored.open(clean=True, log_start_offset=3)
    assert log.log_start_offset == 3
    assert log.high_watermark == 3
    assert log.leader_epochs.epoch_entries == ((0, 3),)


def test_a_new_log_begins_at_the_log_start_that_is_checkpointed(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    log = stored.open(log_start_offset=500)
    assert log.log_start_offset == log.log_end_offset == 500
    stored.require_settled(log_start_offset=500)
    assert put(stored.log, b"v").first_offset == 500


def test_a_recovery_point_beyond_the_log_is_its_end(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    filled(stored, 10).close()
    assert stored.open(recovery_point=11).offsets.recovery_point == 10


# ---- offsets too far apart for one segment


def check_over_compacted(stored: StoredLog, log: PartitionLog, expected: list[int]) -> None:
    """Checks the files of such a log once it has been closed."""
    assert bases(log) == expected
    for base in expected[1:]:
        assert segment_file_name(base, ".snapshot") in stored.files()
    log.close()
    indexes = {n: d for n, d in stored.files().items() if n.endswith(".index")}
    assert len(indexes) == len(expected)
    for name, data in indexes.items():
        base = int(name[:20])
        assert all(entry[0] >= base for entry in parse_offset_index(data, base))


@pytest.mark.parametrize(("count", "codec"), [(1, Codec.NONE), (2, Codec.GZIP)])
def test_offsets_out_of_reach_go_to_a_segment_of_their_own(
    tmp_path: Path, count: int, codec: Codec
) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=1, max_message_bytes=65536)
    stored = StoredLog(tmp_path, config)
    log = stored.open(clean=True)
    log.append_as_follower(batch_of(b"k1", key=b"v1"))
    assert log.active.base_offset == 0
    for n in range(3):
        offset = INT_MAX + 2 + n * count
        log.append_as_follower(batch_of(*[b"k"] * count, key=b"v", base_offset=offset, codec=codec))
        assert log.active.base_offset == 2147483649
    check_over_compacted(stored, log, [0, 2147483649])
    reopened = stored.open()
    assert bases(reopened) == [0, 2147483649]
    assert reopened.log_end_offset == INT_MAX + 2 + 3 * count
    stored.require_settled()


def test_sets_of_magic_1_out_of_reach_go_to_segments_of_their_own(tmp_path: Path) -> None:
    config = LogConfig(segment_bytes=1000, index_interval_bytes=1, max_message_bytes=65536)
    stored = StoredLog(tmp_path, config)
    log = stored.open(clean=True)
    log.append_as_follower(
        build_legacy_message(offset=0, magic=1, key=b"v1", value=b"k1", timestamp=-1)
    )
    assert log.active.base_offset == 0

    def wrapped(offset: int) -> bytes:
        inner = [Record(offset + n, -1, b"v", b"k") for n in range(2)]
        return build_legacy_wrapper(inner, codec=Codec.GZIP, magic=1)

    # A follower does not look into a compressed set of magic 1: it is known by its last offset.
    log.append_as_follower(wrapped(INT_MAX + 2))
    assert log.active.base_offset == 3
    log.append_as_follower(wrapped(INT_MAX + 4))
    assert log.active.base_offset == INT_MAX + 4
    log.append_as_follower(wrapped(INT_MAX + 6))
    check_over_compacted(stored, log, [0, 3, INT_MAX + 4])
    files = stored.files()
    reopened = stored.open()
    assert reopened.log_end_offset == INT_MAX + 8
    assert {n: d for n, d in stored.files().items() if n.endswith(LOG_SUFFIX)} == {
        n: d for n, d in files.items() if n.endswith(LOG_SUFFIX)
    }


# ---- leader epochs and transactions


def test_leader_epochs_are_rebuilt_from_batches(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    log = stored.open(clean=True)
    for offset, epoch in enumerate((1, 2, 2, 3)):
        log.append_as_follower(batch_of(b"random", base_offset=offset, leader_epoch=epoch))
    expected = [EpochEntry(1, 0), EpochEntry(2, 1), EpochEntry(3, 3)]
    assert list(log.leader_epochs.epoch_entries) == expected
    log.leader_epochs.truncate_from_end(2)
    assert list(log.leader_epochs.epoch_entries) == expected[:2]
    log.close()
    assert list(stored.open().leader_epochs.epoch_entries) == expected
    stored.require_settled()
    (stored.directory / "leader-epoch-checkpoint").unlink()
    assert list(stored.open().leader_epochs.epoch_entries) == expected
    stored.require_settled()


TWO_ABORTED = [
    AbortedTransaction(producer_id=1, first_offset=0, last_offset=29, last_stable_offset=8),
    AbortedTransaction(producer_id=2, first_offset=8, last_offset=74, last_stable_offset=36),
]


def with_two_aborted_transactions(stored: StoredLog) -> PartitionLog:
    """Four interleaved transactions, two of them aborted, and other records."""
    log = stored.open(clean=True)
    work = Transactions(log)
    work.write(1, 5)
    work.plain(3)
    work.write(2, 2)
    work.write(1, 4)
    work.write(3, 3)
    work.plain(2)
    work.write(1, 10)
    work.end(1, commit=False)
    work.write(2, 6)
    work.write(4, 3)
    work.plain(10)
    work.write(3, 9)
    work.end(3, commit=True)
    work.write(4, 8)
    work.write(2, 7)
    work.end(2, commit=False)
    work.plain(10)
    work.write(4, 4)
    work.end(4, commit=True)
    assert log.log_end_offset == 90
    assert aborted_in(log) == TWO_ABORTED
    assert len(log.segments) > 2
    return log


def delete_indexes(segments: list[LogSegment]) -> None:
    for segment in segments:
        for suffix in (".index", ".txnindex"):
            segment.path.with_suffix(suffix).unlink(missing_ok=True)


def test_the_transaction_index_of_every_segment_is_rebuilt(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=640))
    log = with_two_aborted_transactions(stored)
    log.close()
    before = stored.files()
    delete_indexes(list(log.segments))
    stored.config = LogConfig(segment_bytes=5120)
    assert aborted_in(stored.open()) == TWO_ABORTED
    stored.require_settled()
    after = {name: data for name, data in stored.files().items() if name.endswith(".txnindex")}
    assert after == {n: d for n, d in before.items() if n.endswith(".txnindex")}


def test_the_transaction_index_of_the_last_segment_alone_is_rebuilt(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=640))
    log = with_two_aborted_transactions(stored)
    recovery_point = log.active.base_offset
    log.close()
    delete_indexes([log.active])
    stored.config = LogConfig(segment_bytes=5120)
    assert aborted_in(stored.open(recovery_point=recovery_point)) == TWO_ABORTED
    stored.require_settled(recovery_point=recovery_point)


@pytest.mark.parametrize("segments", ["every segment", "the last segment"])
def test_the_transaction_index_is_rebuilt_although_there_are_no_snapshots(
    tmp_path: Path, segments: str
) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=640))
    log = with_two_aborted_transactions(stored)
    recovery_point = log.active.base_offset
    log.close()
    for path in stored.directory.glob("*.snapshot"):
        path.unlink()
    delete_indexes([log.active] if segments == "the last segment" else list(log.segments))
    stored.config = LogConfig(segment_bytes=5120)
    reopened = stored.open(recovery_point=recovery_point)
    assert aborted_in(reopened) == TWO_ABORTED
    assert producers(reopened) == producers(log)
    stored.require_settled(recovery_point=recovery_point)


def test_an_open_transaction_bounds_the_last_stable_offset_after_a_reload(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    log = stored.open(clean=True)
    work = Transactions(log)
    work.plain(2)
    work.write(1, 3)
    work.plain(4)
    stored.abandon()
    log = stored.open()
    log.update_high_watermark(9)
    assert log.offsets.first_unstable == 2
    assert log.last_stable_offset == 2
    end_transaction(log, 1, commit=False)
    log.update_high_watermark(10)
    assert log.last_stable_offset == 10
    assert [(a.first_offset, a.last_offset) for a in aborted_in(log)] == [(2, 9)]


# ---- flushes and partition.metadata


def test_an_empty_active_segment_has_its_indexes_before_it_is_flushed(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    log = stored.open(clean=True)
    put(log, b"v")
    log.roll()
    log.flush(force_active=False)
    assert log.offsets.recovery_point == 1
    names = {segment_file_name(1, ".index"), segment_file_name(1, ".timeindex")}
    assert names <= set(stored.files())
    log.flush(force_active=True)
    assert names <= set(stored.files())
    assert log.offsets.recovery_point == 1


def test_the_recovery_point_after_a_flush_is_the_log_end(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    log = stored.open(clean=True)
    for _ in range(3):
        put(log, b"v")
    assert log.offsets.recovery_point == 0
    stored.clock.advance(1000)
    log.flush(force_active=False)
    assert log.offsets.recovery_point == 3
    assert log.flusher.last_flush_ms == stored.clock.now_ms()


TOPIC_ID = parse_uuid("69O438ZkTSeqqclTtZO2KA")
OTHER_ID = parse_uuid("2Ik9_5-oRDOKpSXd2SuG5w")


def test_the_topic_id_is_written_with_the_first_append_and_read_again(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    log = stored.open(clean=True, topic_id=TOPIC_ID)
    put(log, b"v")
    assert (
        stored.files()["partition.metadata"]
        == f"version: 0\ntopic_id: {uuid_text(TOPIC_ID)}".encode()
    )
    stored.abandon()
    assert stored.open().topic_id == TOPIC_ID
    assert stored.open(topic_id=TOPIC_ID).topic_id == TOPIC_ID
    stored.require_settled()


def test_the_topic_id_of_a_log_without_records_is_written_soon(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    stored.open(clean=True, topic_id=TOPIC_ID)
    stored.context.scheduler.run_due()
    stored.abandon()
    assert stored.open().topic_id == TOPIC_ID


def test_the_topic_id_is_written_by_a_clean_stop_and_by_a_rename(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    stored.open(clean=True, topic_id=TOPIC_ID).close()
    assert stored.open().topic_id == TOPIC_ID
    other = StoredLog(tmp_path, name="u-0")
    log = other.open(clean=True, topic_id=TOPIC_ID)
    log.rename_directory(tmp_path / "v-0")
    assert "partition.metadata" in files_of(tmp_path / "v-0")


def test_a_directory_of_another_topic_of_that_name_is_not_opened(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    stored.open(clean=True, topic_id=TOPIC_ID).close()
    before = stored.files()
    with pytest.raises(
        InconsistentTopicIdError,
        match=f"Tried to assign topic ID {uuid_text(OTHER_ID)} to log for topic partition t-0, "
        f"but log already contained topic ID {uuid_text(TOPIC_ID)}",
    ):
        stored.open(clean=True, topic_id=OTHER_ID)
    assert stored.files() == before
    assert not stored.context.failures.offline


def test_a_damaged_partition_metadata_is_told_with_its_path(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path)
    stored.open(clean=True, topic_id=TOPIC_ID).close()
    (stored.directory / "partition.metadata").write_bytes(b"version: 0\ntopic_id: x")
    with pytest.raises(CorruptError, match=r"t-0/partition\.metadata"):
        stored.open(clean=True)


# ---- a clock of one's own


def test_producers_that_have_expired_are_not_loaded(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, clock=ManualClock())
    log = stored.open(clean=True)
    put(log, b"v", producer=(1, 0, 0))
    stored.clock.advance(DAY_MS - 1)
    put(log, b"v", producer=(2, 0, 0))
    log.close()
    stored.clock.advance(1)
    assert producers(stored.open(clean=True)) == {2: 0}


def test_batches_are_what_was_appended_after_any_number_of_openings(tmp_path: Path) -> None:
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=500))
    log = stored.open(clean=True)
    for n in range(20):
        put(log, b"%d" % n, key=b"k%d" % n)
    expected = batches_in(log)
    log.close()
    for clean in (True, False, True, False):
        log = stored.open(clean=clean)
        assert batches_in(log) == expected
        assert keys_in(log) == [b"k%d" % n for n in range(20)]
        log.close()


# ---- power that is lost after a roll


def without_the_end_of_its_first_segment(tmp_path: Path) -> StoredLog:
    """A log of three segments with five batches each; of the first the last two are lost."""
    stored = StoredLog(tmp_path, LogConfig(segment_bytes=5 * len(batch_of(b"0000"))))
    log = filled(stored, 15)
    assert bases(log) == [0, 5, 10]
    log.close()
    path = stored.directory / segment_file_name(0, LOG_SUFFIX)
    data = path.read_bytes()
    path.write_bytes(data[: 3 * len(data) // 5])
    return stored


def test_a_gap_between_segments_that_were_not_flushed_is_known(tmp_path: Path) -> None:
    stored = without_the_end_of_its_first_segment(tmp_path)
    log = stored.open(clean=False)
    assert log.log_end_offset == 15, "nothing is cut off that is still there"
    gaps = [log.offsets.gap]
    for offset in (4, 3):
        truncate_to(log, offset)
        gaps.append(log.offsets.gap)
    assert gaps == [3, 3, None]
    log.close()
    assert stored.open(clean=False).offsets.gap is None


@pytest.mark.parametrize(("clean", "recovery_point"), [(True, 0), (False, 6)])
def test_a_gap_in_what_was_flushed_is_that_of_a_cleaning(
    tmp_path: Path, clean: bool, recovery_point: int
) -> None:
    stored = without_the_end_of_its_first_segment(tmp_path)
    assert stored.open(clean=clean, recovery_point=recovery_point).offsets.gap is None
