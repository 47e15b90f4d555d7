"""Roll of a log to another segment: its time and its base offset (UnifiedLogTest, LocalLogTest)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cordwood.format.batch_header import LOG_APPEND_TIME
from cordwood.model.errors import NoSpaceError
from cordwood.model.kafka_errors import OutOfOrderSequenceError, StorageError
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_offsets import LogPosition
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)
from support.log_under_test import (
    FixedRng,
    Producer,
    bases,
    batches_read,
    catch_up,
    fetch,
    follow,
    names_with,
    new_log,
    offsets_read,
    snapshot_offsets,
    state_of,
)
from support.stored_log import batch_of, put, records_in

HOUR_MS = 3_600_000
SEGMENT_MS = 3_600
INT_MAX = (1 << 31) - 1


# ---- by time


def test_time_rolls_by_the_clock_for_records_without_timestamps(tmp_path: Path) -> None:
    clock = ManualClock()
    log = new_log(tmp_path, clock=clock, segment_ms=SEGMENT_MS)
    clock.advance(SEGMENT_MS + 1)
    put(log, b"test", timestamp=-1)
    assert len(log.segments) == 1, "a roll would leave an empty segment"
    put(log, b"test", timestamp=-1)
    assert len(log.segments) == 2, "the segment was made too long ago"
    for expected in (3, 4):
        clock.advance(SEGMENT_MS + 1)
        put(log, b"test", timestamp=-1)
        assert len(log.segments) == expected

    # The first record of the segment has no timestamp: the clock still counts.
    ahead = clock.now_ms() + SEGMENT_MS + 1
    put(log, b"test", timestamp=ahead)
    assert len(log.segments) == 4
    clock.advance(SEGMENT_MS + 1)
    put(log, b"test", timestamp=ahead)
    assert len(log.segments) == 5

    # Now the first record has one: the clock does not count any more.
    clock.advance(SEGMENT_MS + 1)
    put(log, b"test", timestamp=ahead)
    assert len(log.segments) == 5, "the same timestamp again"
    put(log, b"test", timestamp=clock.now_ms())
    assert len(log.segments) == 6

    clock.advance(SEGMENT_MS + 1)
    log.append_as_leader(b"")
    assert len(log.segments) == 6, "no records, no roll"


def test_a_record_far_in_the_future_rolls_once(tmp_path: Path) -> None:
    clock = ManualClock()
    log = new_log(tmp_path, clock=clock, segment_ms=SEGMENT_MS)
    now = clock.now_ms()
    put(log, b"v", timestamp=now)
    put(log, b"v", timestamp=now + HOUR_MS)
    assert bases(log) == (0, 1)
    put(log, b"v", timestamp=now + HOUR_MS)
    assert bases(log) == (0, 1)
    put(log, b"v", timestamp=now)
    assert bases(log) == (0, 1), "back in time is no wait"


@pytest.mark.parametrize(("waited", "segments"), [(SEGMENT_MS, 1), (SEGMENT_MS + 1, 2)])
def test_a_segment_rolls_when_more_than_segment_ms_lies_between_its_first_record_and_the_next(
    tmp_path: Path, waited: int, segments: int
) -> None:
    clock = ManualClock()
    log = new_log(tmp_path, clock=clock, segment_ms=SEGMENT_MS)
    put(log, b"v", timestamp=clock.now_ms())
    put(log, b"v", timestamp=clock.now_ms() + waited)
    assert len(log.segments) == segments


def test_with_log_append_time_segments_roll_by_the_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    log = new_log(
        tmp_path, clock=clock, segment_ms=SEGMENT_MS, message_timestamp_type=LOG_APPEND_TIME
    )
    put(log, b"v", timestamp=1)
    put(log, b"v", timestamp=1 + HOUR_MS)
    assert len(log.segments) == 1, "the producer's time does not count"
    clock.advance(SEGMENT_MS + 1)
    put(log, b"v", timestamp=1)
    assert len(log.segments) == 2


def test_jitter_makes_a_segment_roll_earlier_and_not_before_that(tmp_path: Path) -> None:
    max_jitter, jitter = 1200, 700
    clock = ManualClock()
    context = LogContext(clock=clock, rng=FixedRng(jitter))
    log = new_log(tmp_path, context=context, segment_ms=SEGMENT_MS, segment_jitter_ms=max_jitter)
    assert log.active.roll_jitter_ms == jitter
    put(log, b"test")
    clock.advance(SEGMENT_MS - max_jitter)
    put(log, b"test")
    assert len(log.segments) == 1, "earlier than any jitter"
    clock.advance(max_jitter - jitter)
    put(log, b"test")
    assert len(log.segments) == 1, "just when it is due"
    clock.advance(1)
    put(log, b"test")
    assert len(log.segments) == 2


def test_jitter_is_bounded_by_segment_ms(tmp_path: Path) -> None:
    context = LogContext(clock=ManualClock(), rng=FixedRng(10 * SEGMENT_MS))
    log = new_log(
        tmp_path, context=context, segment_ms=SEGMENT_MS, segment_jitter_ms=100 * SEGMENT_MS
    )
    assert log.active.roll_jitter_ms == SEGMENT_MS - 1


def test_a_compacted_log_rolls_after_max_compaction_lag_ms(tmp_path: Path) -> None:
    clock = ManualClock()
    log = new_log(
        tmp_path,
        clock=clock,
        cleanup_policy="compact",
        segment_ms=HOUR_MS,
        max_compaction_lag_ms=SEGMENT_MS,
    )
    put(log, b"v", key=b"k")
    clock.advance(SEGMENT_MS)
    put(log, b"v", key=b"k")
    assert len(log.segments) == 1
    clock.advance(1)
    put(log, b"v", key=b"k")
    assert len(log.segments) == 2


# ---- by size, index and offset


def test_ten_batches_fill_a_segment_and_the_eleventh_rolls(tmp_path: Path) -> None:
    size = len(batch_of(b"test"))
    log = new_log(tmp_path, segment_bytes=10 * size)
    for _ in range(10):
        put(log, b"test")
    assert bases(log) == (0,)
    put(log, b"test")
    assert bases(log) == (0, 10)
    assert [segment.size_bytes for segment in log.segments] == [10 * size, size]


def test_a_log_of_many_segments_reads_as_one(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=100)
    now = log.context.clock.now_ms()
    for number in range(100):
        put(log, b"%d" % number, timestamp=now)
    log.flush(force_active=False)
    assert len(log.segments) == 100
    offset = 0
    for number in range(100):
        (batch, *_) = batches_read(fetch(log, offset))
        assert batch.last_offset == offset
        (record,) = batch.records()
        assert (record.key, record.value, record.timestamp) == (None, b"%d" % number, now)
        offset = batch.next_offset
    assert fetch(log, 100).read() == b""
    log.context.scheduler.run_due()
    assert log.offsets.recovery_point >= log.active.base_offset, "a roll flushes what is behind it"


def test_a_full_offset_index_rolls(tmp_path: Path) -> None:
    # 48 bytes: six entries of 8; the first batch of a segment has none.
    log = new_log(tmp_path, segment_index_bytes=48, index_interval_bytes=0)
    now = log.context.clock.now_ms()
    for _ in range(20):
        put(log, b"v", timestamp=now)
    assert bases(log) == (0, 7, 14)
    assert [segment.offset_index.entries for segment in log.segments] == [6, 6, 5]


def test_a_full_time_index_rolls_with_a_slot_left_for_the_last_entry(tmp_path: Path) -> None:
    # 48 bytes: six entries of the offset index, four of the time index, one of them kept.
    log = new_log(tmp_path, segment_index_bytes=48, index_interval_bytes=0)
    now = log.context.clock.now_ms()
    for number in range(9):
        put(log, b"v", timestamp=now + number)
    assert bases(log) == (0, 4, 8)
    first = log.segments.first
    assert first.offset_index.entries == 3
    assert first.time_index.entries == 3
    log.close()


def test_an_index_without_room_makes_an_empty_active_segment_anew_in_place(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_ms=SEGMENT_MS)
    log.roll(0)
    assert bases(log) == (0,), "an empty segment at the same offset is made anew"
    follow(log, batch_of(b"v1", key=b"k1", leader_epoch=0))
    assert bases(log) == (0,)
    follow(log, batch_of(b"v2", key=b"k2", base_offset=1, leader_epoch=0))
    assert log.log_end_offset == 2
    assert offsets_read(fetch(log, 0, 1)) == [0]
    assert offsets_read(fetch(log, 1, 1)) == [1]

    log.roll()
    assert bases(log) == (0, 2)
    log.active.offset_index.resize(0)
    follow(log, batch_of(b"v3", key=b"k3", base_offset=2, leader_epoch=0))
    assert log.active.offset_index.max_entries > 1
    assert offsets_read(fetch(log, 2, 1)) == [2]
    assert bases(log) == (0, 2)


def test_an_offset_out_of_reach_of_the_base_rolls(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for offset in (0, INT_MAX, INT_MAX + 1):
        follow(log, batch_of(b"v", base_offset=offset, leader_epoch=0))
    assert bases(log) == (0, INT_MAX + 1)
    assert [s.read_next_offset() for s in log.segments] == [INT_MAX + 1, INT_MAX + 2]
    for offset in (0, INT_MAX, INT_MAX + 1):
        assert offsets_read(fetch(log, offset, 1)) == [offset]


def test_a_followers_segment_begins_where_its_first_batch_does(tmp_path: Path) -> None:
    batch = batch_of(b"v", leader_epoch=0)
    log = new_log(tmp_path, segment_bytes=len(batch))
    for offset in (0, 10, 25):
        follow(log, batch_of(b"v", base_offset=offset, leader_epoch=0))
    assert bases(log) == (0, 10, 25)


# ---- as it is told to


def test_a_roll_of_an_empty_log_makes_its_segment_anew_over_the_same_files(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    old = log.active
    new = log.roll()
    assert (new.base_offset, bases(log), log.log_end_offset) == (0, (0,), 0)
    assert log.active is new
    assert new is not old
    assert new.path == old.path  # Kafka renames the files of the old one first
    assert new.path.exists()
    put(log, b"v")
    assert offsets_read(fetch(log, 0)) == [0]


def test_a_roll_begins_at_the_logs_end_whatever_lower_offset_is_given(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"v1", key=b"k1")
    assert log.roll().base_offset == 1
    assert (len(log.segments), log.log_end_offset) == (2, 1)
    put(log, b"v2", key=b"k2")
    assert log.roll(1).base_offset == 2
    assert (len(log.segments), log.log_end_offset) == (3, 2)


def test_a_roll_below_the_active_segment_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"v1", b"v2", b"v3")
    log.roll()
    assert log.active.base_offset == 3
    put(log, b"v4")
    log.offsets.end = LogPosition(1)  # what cannot be
    with pytest.raises(StorageError, match="lower than start offset of the active segment"):
        log.roll()
    assert bases(log) == (0, 3)


def test_files_left_over_where_a_new_segment_begins_are_replaced(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"v")
    for suffix in ("log", "index", "timeindex", "txnindex"):
        (log.directory / f"{1:020d}.{suffix}").write_bytes(b"what a crash has left")
    log.roll()
    put(log, b"w")
    assert [value for _, _, _, value in records_in(log)] == [b"v", b"w"]
    log.close()
    assert names_with(log.directory, "index") == [
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000001.index",
        "00000000000000000001.timeindex",
    ]


def test_a_roll_leaves_a_snapshot_of_producers_at_the_new_base(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    producer = Producer(log, 1, transactional=False)
    for expected in ([1], [1, 2], [1, 2, 3]):
        producer.append()
        log.roll()
        assert snapshot_offsets(log.directory) == expected
    producer.append()
    log.flusher.flush_up_to(4)
    assert snapshot_offsets(log.directory) == [1, 2, 3], "a flush takes none and removes none"


def test_an_old_segment_is_left_exactly_as_long_as_it_need_be(tmp_path: Path) -> None:
    log = new_log(tmp_path, preallocate=True, segment_bytes=4096, index_interval_bytes=0)
    now = log.context.clock.now_ms()
    for number in range(3):
        put(log, b"v", timestamp=now + number)
    first = log.active
    assert first.path.stat().st_size == 4096
    log.roll()
    assert first.path.stat().st_size == first.size_bytes
    assert first.path.with_suffix(".index").stat().st_size == 2 * 8
    assert first.path.with_suffix(".timeindex").stat().st_size == 2 * 12
    assert log.active.path.stat().st_size == 4096


def test_a_batch_that_is_refused_for_its_sequence_may_have_rolled_the_log(tmp_path: Path) -> None:
    # Kafka's order of steps: the roll comes before the producer's state is asked.
    log = new_log(tmp_path, segment_bytes=100)
    producer = Producer(log, 1, transactional=False)
    producer.append()
    producer.sequence = 5
    with pytest.raises(OutOfOrderSequenceError):
        producer.append()
    assert (bases(log), log.log_end_offset) == ((0, 1), 1)
    producer.sequence = 1
    assert producer.append().first_offset == 1


def test_a_directory_lists_the_indexes_of_a_segment_from_the_roll_on(tmp_path: Path) -> None:
    """As in Kafka, before anything is appended or flushed."""
    log = new_log(tmp_path)
    put(log, b"test")
    log.roll()
    for suffix in (".log", ".index", ".timeindex"):
        assert names_with(log.directory, suffix) == [f"{base:020}{suffix}" for base in (0, 1)]


# ---- when the disk refuses


class RefusingFileSystem(SimulatedFileSystem):
    """Has no room, while it is `armed`, for one kind of work on some files."""

    def __init__(self, kind: FileOperationKind, suffix: str) -> None:
        super().__init__()
        self.armed = False

        def fail(operation: FileOperation) -> OSError | None:
            if self.armed and operation.kind is kind and operation.path.name.endswith(suffix):
                return OSError(errno.ENOSPC, "no space left")
            return None

        self.fail = fail


@pytest.mark.parametrize(
    ("kind", "suffix", "records"),
    [
        (FileOperationKind.CREATE, ".log", 0),
        (FileOperationKind.CREATE, ".log", 1),
        (FileOperationKind.CREATE, ".index", 1),
        (FileOperationKind.CREATE, ".timeindex", 1),
        (FileOperationKind.CREATE, ".snapshot", 1),
        (FileOperationKind.WRITE, ".snapshot", 1),
        (FileOperationKind.WRITE, ".timeindex", 1),
        (FileOperationKind.WRITE, ".index", 2),
    ],
)
def test_a_roll_that_finds_no_room_leaves_the_log_as_it_was(
    kind: FileOperationKind, suffix: str, records: int
) -> None:
    fs = RefusingFileSystem(kind, suffix)
    log = new_log(Path("/logs"), fs=fs, index_interval_bytes=0, file_delete_delay_ms=0)
    producer = Producer(log, 1, transactional=False)
    for _ in range(records):
        producer.append()
    catch_up(log)
    before = state_of(log)
    fs.armed = True
    with pytest.raises(StorageError) as refused:
        log.roll()
    assert isinstance(refused.value.__cause__, NoSpaceError)
    assert state_of(log) == before
    fs.armed = False
    log.context.scheduler.run_due()
    assert not log.context.failures.offline
    # It goes on, and what it has is what a restart finds.
    producer.append()
    log.roll()
    producer.append()
    log.context.scheduler.run_due()
    expected = records_in(log)
    assert [offset for offset, *_ in expected] == list(range(records + 2))
    log.close()
    assert records_in(new_log(Path("/logs"), fs=fs)) == expected
