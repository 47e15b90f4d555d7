"""Truncation of a log (UnifiedLogTest, LocalLogTest)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from cordwood.format.leader_epoch_checkpoint import parse_leader_epoch_checkpoint
from cordwood.model.kafka_errors import StorageError
from cordwood.storage.log.log_reader import MAX_TIMESTAMP, Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from cordwood.testing.manual_clock import ManualClock
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)
from support.log_under_test import (
    Producer,
    bases,
    catch_up,
    fetch,
    first_unstable,
    follow,
    names_with,
    new_log,
    offsets_read,
    records_read,
    state_of,
)
from support.stored_log import batch_of, put, records_in


def filled(root: Path, clock: ManualClock | None = None) -> tuple[PartitionLog, int]:
    """A log of ten batches, as many as a segment holds, and the bytes of one."""
    size = len(batch_of(b"test"))
    log = new_log(root, clock=clock, segment_bytes=10 * size)
    fill(log)
    assert (bases(log), log.log_end_offset) == ((0,), 10)
    return log, size


def fill(log: PartitionLog) -> None:
    for _ in range(10):
        put(log, b"test")


def threes(root: Path) -> PartitionLog:
    """Twelve records, three to a segment, and an empty segment behind them."""
    log = new_log(root)
    for number in range(12):
        put(log, b"%d" % number)
        if number % 3 == 2:
            log.roll()
    assert bases(log) == (0, 3, 6, 9, 12)
    return log


# ---- to an offset


@pytest.mark.parametrize("beyond", [0, 1, 100])
def test_a_truncation_to_the_end_or_beyond_changes_nothing(tmp_path: Path, beyond: int) -> None:
    log, _ = filled(tmp_path)
    before = state_of(log)
    assert not truncate_to(log, 10 + beyond)
    assert state_of(log) == before


def test_a_truncation_to_the_middle_and_then_to_0(tmp_path: Path) -> None:
    log, size = filled(tmp_path)
    assert truncate_to(log, 5)
    assert (log.log_end_offset, log.size_bytes) == (5, 5 * size)
    assert offsets_read(fetch(log, 0)) == [0, 1, 2, 3, 4]
    assert truncate_to(log, 0)
    assert (log.log_end_offset, log.size_bytes) == (0, 0)
    fill(log)
    assert (log.log_end_offset, log.size_bytes) == (10, 10 * size)


def test_a_log_that_begins_anew_at_1_is_filled_again_and_cut_to_0(tmp_path: Path) -> None:
    log, size = filled(tmp_path)
    truncate_fully_and_start_at(log, 10 - 9)
    assert (log.log_end_offset, log.size_bytes) == (1, 0)
    fill(log)
    assert (log.log_end_offset, log.size_bytes) == (11, 10 * size)
    truncate_to(log, 0)  # below the first offset there is
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (0, 0, 0)
    assert bases(log) == (0,)


def test_a_truncation_to_7_removes_segments_9_and_12_and_leaves_three(tmp_path: Path) -> None:
    log = threes(tmp_path)
    truncate_to(log, 7)
    assert (bases(log), log.log_end_offset, log.offsets.recovery_point) == ((0, 3, 6), 7, 0)
    assert [record.value for record in records_read(fetch(log, 6))] == [b"6"]
    assert put(log, b"again").first_offset == 7
    assert log.log_end_offset == 8


@pytest.mark.parametrize(
    ("offset", "left"),
    [(12, (0, 3, 6, 9, 12)), (9, (0, 3, 6, 9)), (3, (0, 3)), (1, (0,)), (0, (0,))],
)
def test_a_truncation_to_the_base_of_a_segment_leaves_it_empty(
    tmp_path: Path, offset: int, left: tuple[int, ...]
) -> None:
    log = threes(tmp_path)
    truncate_to(log, offset)
    assert (bases(log), log.log_end_offset) == (left, offset)
    assert [number for number, *_ in records_in(log)] == list(range(offset))
    assert log.active.size_bytes == sum(
        len(batch_of(b"%d" % n)) for n in range(log.active.base_offset, offset)
    )
    assert put(log, b"again").first_offset == offset


def test_a_batch_that_holds_the_offset_goes_wholly(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"0", b"1", b"2")
    put(log, b"3", b"4", b"5")
    truncate_to(log, 4)
    assert [number for number, *_ in records_in(log)] == [0, 1, 2]
    assert log.log_end_offset == 4, "the gap is the leader's to fill"
    follow(log, batch_of(b"4", base_offset=4, leader_epoch=0))
    assert [number for number, *_ in records_in(log)] == [0, 1, 2, 4]
    assert offsets_read(fetch(log, 3)) == [4]


def test_a_negative_offset_is_refused(tmp_path: Path) -> None:
    log = threes(tmp_path)
    before = state_of(log)
    with pytest.raises(ValueError, match="negative offset"):
        truncate_to(log, -1)
    assert state_of(log) == before


def test_the_recovery_point_goes_back_with_the_log(tmp_path: Path) -> None:
    log = threes(tmp_path)
    log.flush()
    assert log.offsets.recovery_point == 12
    truncate_to(log, 7)
    assert log.offsets.recovery_point == 7
    put(log, b"again")
    assert log.offsets.recovery_point == 7


def test_the_log_start_goes_back_with_the_log(tmp_path: Path) -> None:
    log = threes(tmp_path)
    catch_up(log)
    log.delete_records(8)
    truncate_to(log, 7)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (7, 7, 7)


def test_files_of_segments_behind_the_offset_are_removed_after_their_delay(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    log = new_log(tmp_path, clock=clock)
    for number in range(6):
        put(log, b"%d" % number)
        if number % 2:
            log.roll()
    truncate_to(log, 3)
    assert bases(log) == (0, 2)
    clock.advance(log.config.file_delete_delay_ms + 1)
    log.context.scheduler.run_due()
    assert names_with(log.directory, ".deleted") == []
    assert names_with(log.directory, ".log") == [f"{base:020d}.log" for base in (0, 2)]


def test_what_was_cut_off_does_not_come_back_after_a_restart(tmp_path: Path) -> None:
    for clean in (True, False):
        log = threes(tmp_path / str(clean))
        truncate_to(log, 7)
        if clean:
            log.close()
        else:
            log.close_handlers()
        log = new_log(tmp_path / str(clean), clean=clean)
        assert (bases(log), log.log_end_offset) == ((0, 3, 6), 7)
        assert [number for number, *_ in records_in(log)] == list(range(7))


# ---- fully


def test_a_log_begins_anew_with_one_segment_at_10(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(13):
        put(log, b"a")
        if number in {1, 3, 5, 7}:
            log.roll()
    assert len(log.segments) == 5
    assert log.active.base_offset != 10
    truncate_fully_and_start_at(log, 10)
    assert (bases(log), log.log_end_offset, log.offsets.recovery_point) == ((10,), 10, 0)
    assert (log.log_start_offset, log.high_watermark) == (10, 10)
    assert fetch(log, 10).read() == b""
    assert log.leader_epochs.epoch_entries == ()


def test_a_log_begins_anew_at_2_with_its_start_at_1_and_forgets_an_open_transaction(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    put(log, b"0", b"1", b"2")
    Producer(log, 17, epoch=10).append(2)
    assert first_unstable(log) == 3
    log.close()
    log = new_log(tmp_path)
    assert log.producer_state.first_unstable_offset == 3
    truncate_fully_and_start_at(log, 2, log_start_offset=1)
    assert first_unstable(log) is None
    assert not log.producer_state.active_producers
    assert (log.log_start_offset, log.log_end_offset) == (1, 2)


@pytest.mark.parametrize("offset", [0, 5, 10, 20])
def test_a_log_may_begin_anew_at_any_offset_also_at_that_of_a_segment(
    tmp_path: Path, offset: int
) -> None:
    clock = ManualClock()
    log = new_log(tmp_path, clock=clock)
    for number in range(10):
        put(log, b"%d" % number)
        if number == 4:
            log.roll()
    truncate_fully_and_start_at(log, offset)
    assert (bases(log), log.log_end_offset) == ((offset,), offset)
    put(log, b"again")
    clock.advance(log.config.file_delete_delay_ms)
    log.context.scheduler.run_due()
    assert [record.value for record in records_read(fetch(log, offset))] == [b"again"]
    log.close()
    assert [offset] == [number for number, *_ in records_in(new_log(tmp_path))]
    assert names_with(log.directory, ".deleted") == []


# ---- indexes


def test_indexes_have_all_their_room_again_after_a_truncation(tmp_path: Path) -> None:
    clock = ManualClock()
    size = len(batch_of(b"test"))
    log = new_log(tmp_path, clock=clock, segment_bytes=10 * size, index_interval_bytes=size - 1)

    def ten() -> None:
        for number in range(1, 11):
            put(log, b"test", timestamp=clock.now_ms() + number)

    ten()
    assert len(log.segments) == 1
    clock.advance(10)
    ten()
    assert len(log.segments) == 2
    first = log.segments.first
    assert (first.offset_index.entries, first.time_index.entries) == (9, 9)
    assert (first.offset_index.max_entries, first.time_index.max_entries) == (9, 9)

    truncate_to(log, 0)
    assert len(log.segments) == 1
    first = log.segments.first
    room = log.config.segment_index_bytes
    assert (first.offset_index.max_entries, first.time_index.max_entries) == (room // 8, room // 12)
    clock.advance(10)
    ten()
    assert len(log.segments) == 1


def test_lookups_by_time_forget_what_was_cut_off(tmp_path: Path) -> None:
    log = new_log(tmp_path, index_interval_bytes=0)
    for number in range(10):
        put(log, b"v", timestamp=1000 + number)
    truncate_to(log, 4)
    found = log.reader.list_offset(MAX_TIMESTAMP, isolation=Isolation.LOG_END)
    assert found is not None
    assert (found.timestamp, found.offset) == (1003, 3)
    assert log.reader.list_offset(1004, isolation=Isolation.LOG_END) is None
    put(log, b"v", timestamp=2000)
    found = log.reader.list_offset(1004, isolation=Isolation.LOG_END)
    assert found is not None
    assert (found.timestamp, found.offset) == (2000, 4)


# ---- leader epochs


@pytest.mark.parametrize(("epoch", "beyond"), [(20, 0), (24, 1)])
def test_a_truncation_to_the_end_or_beyond_drops_epochs_that_begin_there(
    tmp_path: Path, epoch: int, beyond: int
) -> None:
    log = new_log(tmp_path)
    follow(log, batch_of(b"a", b"b", base_offset=27, leader_epoch=19))
    assert log.leader_epochs.latest_entry == (19, 27)
    assert log.log_end_offset == 29
    log.assign_epoch(epoch)
    assert log.leader_epochs.latest_entry == (epoch, 29)
    truncate_to(log, 29 + beyond)
    assert log.leader_epochs.latest_entry == (19, 27)
    assert log.log_end_offset == 29


def test_truncations_to_20_11_10_and_0_leave_3_2_1_and_0_epochs_on_disk_too(
    tmp_path: Path,
) -> None:
    size = len(batch_of(b"value"))
    log = new_log(tmp_path, segment_bytes=10 * size)
    for epoch, first, count in ((0, 0, 10), (1, 10, 6), (2, 16, 4)):
        for offset in range(first, first + count):
            follow(log, batch_of(b"value", base_offset=offset, leader_epoch=epoch))
    assert (len(log.segments), log.log_end_offset) == (2, 20)
    for offset, left in ((20, 3), (11, 2), (10, 1), (0, 0)):
        truncate_to(log, offset)
        entries = log.leader_epochs.epoch_entries
        assert len(entries) == left
        checkpoint = (log.directory / "leader-epoch-checkpoint").read_bytes()
        assert tuple(parse_leader_epoch_checkpoint(checkpoint)) == entries


# ---- when the disk refuses


class Full(SimulatedFileSystem):
    """Has no room, while it is `armed`, for new files of some name."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.armed = False

        def fail(operation: FileOperation) -> OSError | None:
            if (
                self.armed
                and operation.kind is FileOperationKind.CREATE
                and name in operation.path.name
            ):
                return OSError(errno.ENOSPC, "no space left")
            return None

        self.fail = fail


def nine(fs: SimulatedFileSystem) -> PartitionLog:
    """Three segments of three records, each of a producer and a leader epoch of its own."""
    log = new_log(Path("/logs"), fs=fs, file_delete_delay_ms=0)
    for number in range(9):
        producer = (number // 3, 0, number % 3)
        put(log, b"%d" % number, producer=producer, leader_epoch=number // 3)
        if number % 3 == 2:
            log.roll()
    catch_up(log)
    log.context.scheduler.run_due()
    return log


@pytest.mark.parametrize("name", [".log", "leader-epoch-checkpoint", ".snapshot"])
@pytest.mark.parametrize("fully", [False, True])
def test_a_truncation_needs_no_room_but_for_the_file_of_a_log_that_begins_anew(
    name: str, fully: bool
) -> None:
    fs = Full(name)
    log = nine(fs)
    records = records_in(log)
    fs.armed = True
    if fully and name == ".log":
        with pytest.raises(StorageError):
            truncate_fully_and_start_at(log, 4)
        log.context.scheduler.run_due()
        assert (bases(log), log.log_end_offset) == ((0, 3, 6, 9), 9)
        assert records_in(log) == records
        fs.armed = False
    if fully:
        truncate_fully_and_start_at(log, 4)
    else:
        truncate_to(log, 4)
    fs.armed = False
    assert (log.high_watermark, log.log_end_offset) == (4, 4)
    assert log.producer_state.map_end_offset == 4
    assert set(log.producer_state.active_producers) == (set() if fully else {0, 1})
    assert log.leader_epochs.epoch_entries == (() if fully else ((0, 0), (1, 3)))
    assert put(log, b"again", leader_epoch=9).first_offset == 4
    expected = [] if fully else [b"%d" % number for number in range(4)]
    assert [value for _, _, _, value in records_in(log)] == [*expected, b"again"]
    assert not log.context.failures.offline


def test_a_removal_that_is_due_leaves_newer_files_of_the_same_names(tmp_path: Path) -> None:
    """The log is truncated, filled and truncated again within file.delete.delay.ms."""
    clock = ManualClock()
    log = new_log(tmp_path, clock=clock, file_delete_delay_ms=1000)
    for number in range(9):
        if number == 6:
            log.roll()
        put(log, b"%d" % number)
    truncate_to(log, 4)
    clock.advance(600)
    for number in range(4, 9):
        if number == 6:
            log.roll()
        put(log, b"again %d" % number)
    truncate_to(log, 4)
    newer = log.directory / "00000000000000000006.log.deleted"
    content = newer.read_bytes()
    assert b"again 6" in content
    clock.advance(500)
    log.context.scheduler.run_due()
    assert newer.read_bytes() == content, "its own delay is not over"
    clock.advance(500)
    log.context.scheduler.run_due()
    assert not list(log.directory.glob("*.deleted"))
