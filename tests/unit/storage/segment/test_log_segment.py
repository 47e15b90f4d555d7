"""Scenarios of LogSegmentTest, and what a segment writes.

Offsets, timestamps and index intervals are those of Kafka's test where it has them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.format.offset_index import build_offset_index, parse_offset_index
from cordwood.format.time_index import parse_time_index
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.model.kafka_errors import SegmentOffsetOverflowError
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.resources import ResourceCache
from cordwood.storage.segment.segment_indexes import AppendedBatch
from cordwood.testing.simulated_filesystem import (
    FileOperation,
    FileOperationKind,
    SimulatedFileSystem,
)
from support.segments import (
    Segments,
    batch,
    bytes_of,
    described,
    last_offsets,
    put,
)

LONG_MAX = (1 << 63) - 1
INT_MAX = (1 << 31) - 1


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    return Segments(directory=tmp_path)


def offset_entries(segment: LogSegment) -> list[tuple[int, int]]:
    index = segment.offset_index
    return [(*index.entry(i),) for i in range(index.entries)]


def time_entries(segment: LogSegment) -> list[tuple[int, int]]:
    index = segment.time_index
    return [(*index.entry(i),) for i in range(index.entries)]


def read_offsets(segment: LogSegment, start: int, max_bytes: int = 1 << 20) -> list[int] | None:
    found = segment.read(start, max_bytes)
    return None if found is None else last_offsets(found[0])


def files_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


# ---- append


@pytest.mark.parametrize(
    ("base", "largest"),
    [
        (0, -(1 << 31)),
        (0, 1 << 31),
        (1, 0),
        (100, 10),
        (1 << 31, 0),
        (1 << 31, 1 << 32),
    ],
)
def test_an_append_whose_largest_offset_is_out_of_reach_of_the_base_overflows(
    segments: Segments, base: int, largest: int
) -> None:
    segment = segments.create(base)
    data = batch(0, "hello")
    with pytest.raises(
        SegmentOffsetOverflowError, match=f"at offset {largest} in segment Log"
    ) as e:
        segment.append([data], [AppendedBatch(len(data), largest, 1000)], 0)
    assert e.value.base_offset == base
    assert segment.size_bytes == 0
    assert bytes_of(segment) == b""


def test_the_largest_offset_in_reach_is_appended(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, batch(INT_MAX, "hello"))
    assert segment.read_next_offset() == INT_MAX + 1


def test_parts_of_a_batch_are_written_one_behind_the_other(segments: Segments) -> None:
    segment = segments.create(0)
    first, second = batch(0, "a", "b"), batch(2, "c")
    segment.append(
        [first[:61], memoryview(first)[61:], second], [*described(first), *described(second)], 0
    )
    assert bytes_of(segment) == first + second
    assert segment.size_bytes == len(first + second)
    assert read_offsets(segment, 0) == [1, 2]


def test_an_append_of_nothing_changes_nothing(segments: Segments) -> None:
    segment = segments.create(0)
    segment.append([], [], 0)
    assert segment.size_bytes == 0


def test_a_file_does_not_grow_beyond_what_positions_can_say(segments: Segments) -> None:
    segment = segments.create(0)
    segment.size_bytes = INT_MAX - 10
    with pytest.raises(ValueError, match="too large for segment with current file position"):
        put(segment, batch(0, "a"))


def sized(first: int, count: int, size: int, timestamp: int) -> bytes:
    """A batch of `count` records that takes `size` bytes."""
    values = ["x"] * (count - 1)
    made = b""
    while len(made) != size:
        values[0] += "y" * max(1, (size - len(made)) // 2 if made else 1)
        made = batch(first, *values, "x", timestamps=timestamp)
    return made


@pytest.mark.parametrize("per_append", [1, 3, 20])
def test_entries_every_five_batches_of_1000_bytes_with_an_interval_of_4096(
    segments: Segments, per_append: int
) -> None:
    segments.index_interval_bytes = 4096
    segment = segments.create(0)
    batches = [sized(i * 10, 10, 1000, 1000 + i) for i in range(20)]
    for start in range(0, 20, per_append):
        put(segment, *batches[start : start + per_append])
    assert offset_entries(segment) == [(59, 5000), (109, 10_000), (159, 15_000)]
    assert time_entries(segment) == [(1005, 59), (1010, 109), (1015, 159)]
    assert segment.offset_index.lookup(57) == (0, 0)
    assert segment.offset_index.lookup(59).position == 5000
    assert segment.offset_index.lookup(60).position == 5000
    assert [segment.translate_offset(o).position for o in (57, 59, 60)] == [5000, 5000, 6000]  # type: ignore[union-attr]


def test_an_interval_of_zero_gives_every_batch_but_the_first_an_entry(segments: Segments) -> None:
    segments.index_interval_bytes = 0
    segment = segments.create(0)
    sizes = []
    for i in range(4):
        sizes.append(segment.size_bytes)
        put(segment, batch(i, "a", timestamps=i))
    assert offset_entries(segment) == [(i, sizes[i]) for i in range(1, 4)]


def test_the_time_index_gets_the_largest_timestamp_so_far_and_its_batch(
    segments: Segments,
) -> None:
    segments.index_interval_bytes = 0
    segment = segments.create(0)
    put(segment, *[batch(i, "a", timestamps=t) for i, t in enumerate([5, 9, 3, 9, 12])])
    assert time_entries(segment) == [(9, 1), (12, 4)]
    assert segment.max_timestamp_so_far == 12
    assert segment.offset_of_max_timestamp == 4
    assert (
        offset_entries(segment)
        == [(o, p) for o, p in zip(range(1, 5), range(68, 400, 68), strict=False)]
        or len(offset_entries(segment)) == 4
    )


def test_100_batches_with_an_interval_of_1_give_99_time_index_entries(segments: Segments) -> None:
    segments.index_interval_bytes = 1
    segments.segment_index_bytes = 10_000
    segment = segments.create(0)
    for i in range(100):
        put(segment, batch(i, f"message{i}", timestamps=1000 + i))
    assert segment.time_index.entries == 99
    assert segment.time_index.last_entry == (1099, 99)


def test_more_batches_in_one_append_than_an_index_holds_are_all_found(segments: Segments) -> None:
    segments.index_interval_bytes = 0
    segments.segment_index_bytes = 5 * 12
    segment = segments.create(0)
    put(segment, *[batch(i, "a", timestamps=i) for i in range(30)])
    assert segment.offset_index.entries == 4
    assert [segment.translate_offset(i).base_offset for i in range(30)] == list(range(30))  # type: ignore[union-attr]
    assert segment.time_index.is_full


def test_a_disk_that_fills_up_in_an_append_leaves_the_segment_as_it_was() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(Path("/log"))
    segment = Segments(directory=Path("/log"), fs=fs).create(0)
    put(segment, batch(0, "a", timestamps=7))
    before, size = fs.read_bytes(segment.path), segment.size_bytes
    fs.capacity_bytes = size + 30
    with pytest.raises(NoSpaceError):
        put(segment, batch(1, "b", timestamps=9))
    assert fs.read_bytes(segment.path) == before
    assert segment.size_bytes == size
    assert segment.max_timestamp_so_far == 7
    assert read_offsets(segment, 0) == [0]
    fs.capacity_bytes = None
    put(segment, batch(1, "b", timestamps=9))
    assert read_offsets(segment, 0) == [0, 1]


def test_a_disk_that_refuses_a_write_leaves_the_segment_as_it_was() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(Path("/log"))
    segment = Segments(directory=Path("/log"), fs=fs).create(0)
    put(segment, batch(0, "a"))

    def fail(operation: FileOperation) -> OSError | None:
        return (
            OSError(5, "Input/output error") if operation.kind is FileOperationKind.WRITE else None
        )

    fs.fail = fail
    with pytest.raises(OSError, match="Input/output"):
        put(segment, batch(1, "b"))
    fs.fail = None
    put(segment, batch(1, "b"))
    assert read_offsets(segment, 0) == [0, 1]


# ---- roll


class Roll(NamedTuple):
    size: int = 1024
    timestamp: int = -1
    offset: int = 100
    now: int = 0


def rolls(segment: LogSegment, roll: Roll, **settings: int) -> bool:
    values = {"segment_bytes": INT_MAX, "segment_ms": 300_000, **settings}
    return segment.should_roll(
        append_bytes=roll.size,
        max_timestamp=roll.timestamp,
        max_offset=roll.offset,
        now_ms=roll.now,
        config=LogConfig(**values),  # type: ignore[arg-type]
    )


def test_an_empty_segment_that_was_truncated_is_never_rolled_by_time(segments: Segments) -> None:
    segment = segments.create(0)
    segment.close()
    reopened = segments.open(0)
    assert segment.time_index.size_bytes == 0
    assert segment.offset_index.size_bytes == 0
    reopened.truncate_to(57, now_ms=500)
    assert reopened.time_waited_for_roll(500, -1) == 0
    assert not reopened.time_index.is_full
    assert not reopened.offset_index.is_full
    assert not rolls(reopened, Roll(now=500))
    assert reopened.time_waited_for_roll(300_501, -1) == 300_001
    assert not rolls(reopened, Roll(now=300_501))


def test_an_offset_out_of_reach_rolls_even_an_empty_segment(segments: Segments) -> None:
    assert rolls(segments.create(0), Roll(offset=INT_MAX + 200))
    assert not rolls(segments.create(0), Roll(offset=INT_MAX))


def test_time_waited_is_from_the_first_batch_to_the_next_by_their_timestamps(
    segments: Segments,
) -> None:
    segment = segments.create(0, now_ms=7)
    put(segment, batch(0, "a", "b", timestamps=[900, 1000]), batch(2, "c", timestamps=500))
    assert segment.time_waited_for_roll(123_456, 1800) == 800
    assert segment.time_waited_for_roll(123_456, 200) == -800
    segment.close()
    assert segments.open(0).time_waited_for_roll(123_456, 1800) == 800


def test_time_waited_without_timestamps_is_from_creation_to_now(segments: Segments) -> None:
    segment = segments.create(0, now_ms=7)
    put(segment, batch(0, "a"))
    assert segment.time_waited_for_roll(107, 999_999) == 100


def test_a_segment_rolls_when_it_waited_longer_than_segment_ms_less_jitter(
    segments: Segments,
) -> None:
    segment = segments.create(0, roll_jitter_ms=100)
    put(segment, batch(0, "a", timestamps=1000))
    assert not rolls(segment, Roll(timestamp=1000 + 900), segment_ms=1000)
    assert rolls(segment, Roll(timestamp=1000 + 901), segment_ms=1000)
    assert not rolls(segment, Roll(timestamp=10), segment_ms=1000)


def test_a_segment_rolls_when_the_append_would_not_fit(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "a"))
    size = segment.size_bytes
    assert not rolls(segment, Roll(size=100), segment_bytes=size + 100)
    assert rolls(segment, Roll(size=101), segment_bytes=size + 100)


def test_a_segment_with_a_full_index_rolls(segments: Segments) -> None:
    segment = segments.create(0)
    segment.indexes.files.resize(0)
    assert rolls(segment, Roll())
    segment.indexes.files.resize(24)
    assert not rolls(segment, Roll())
    segment.indexes.files.resize(12)
    assert rolls(segment, Roll()), "one slot of the time index is kept for the roll"


def test_the_first_batch_timestamp_of_an_empty_segment_is_the_largest_long(
    segments: Segments,
) -> None:
    segment = segments.create(1)
    assert segment.first_batch_timestamp() == LONG_MAX
    put(segment, batch(1, "one", timestamps=1000))
    assert segment.first_batch_timestamp() == 1000


def test_the_first_batch_timestamp_without_timestamps_is_the_largest_long(
    segments: Segments,
) -> None:
    segment = segments.create(1)
    put(segment, batch(1, "one"))
    assert segment.first_batch_timestamp() == LONG_MAX


# ---- truncate


def test_truncating_in_a_loop_leaves_what_was_before(segments: Segments) -> None:
    segment = segments.create(40)
    for offset in range(40, 70):
        first, second = batch(offset, "hello"), batch(offset + 1, "hello")
        put(segment, first)
        put(segment, second)
        assert read_offsets(segment, offset) == [offset, offset + 1]
        assert segment.truncate_to(offset + 1) == len(second)
        assert read_offsets(segment, offset) == [offset]
    assert segment.read_next_offset() == 70
    assert segments.warnings == []


def test_truncating_to_the_base_resets_the_rolling_start_time(segments: Segments) -> None:
    segment = segments.create(40, now_ms=0)
    put(segment, batch(40, "hello", "there"))
    assert segment.time_waited_for_roll(500, -1) == 500
    assert segment.truncate_to(0, now_ms=500) > 0
    assert segment.time_waited_for_roll(500, -1) == 0
    assert not segment.time_index.is_full
    assert not segment.offset_index.is_full
    assert segment.read(0, 1024) is None
    put(segment, batch(40, "hello", "there"))
    assert read_offsets(segment, 40) == [41]


def test_truncating_between_timestamps_resets_the_first_batch_timestamp(
    segments: Segments,
) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "a", timestamps=1000))
    assert segment.first_batch_timestamp() == 1000
    segment.truncate_to(0)
    assert segment.first_batch_timestamp() == LONG_MAX
    put(segment, batch(0, "a", timestamps=2000))
    assert segment.first_batch_timestamp() == 2000


def test_truncating_to_a_gap_removes_what_is_behind_it(segments: Segments) -> None:
    segment = segments.create(40)
    put(segment, batch(40, "first message"))
    put(segment, batch(43, "message after gap"))
    segment.truncate_to(41)
    assert read_offsets(segment, 40) == [40]


def test_a_batch_that_holds_the_offset_goes_wholly(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "a", "b"), batch(2, "c", "d", "e"))
    segment.truncate_to(3)
    assert read_offsets(segment, 0) == [1]
    assert segment.read_next_offset() == 2


def test_truncating_beyond_the_end_removes_nothing(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "a", "b"))
    assert segment.truncate_to(2) == 0
    assert read_offsets(segment, 0) == [1]


def test_largest_timestamp_and_next_offset_are_reloaded_after_a_truncation(
    segments: Segments,
) -> None:
    hello = batch(0, "hello", timestamps=0)
    segments.index_interval_bytes = 2 * len(hello) - 1
    segment = segments.create(40)
    for offset in range(40, 70):
        put(segment, batch(offset, "hello", timestamps=offset * 10))
    assert segment.read_next_offset() == 70
    assert segment.time_index.entries == 14
    segment.truncate_to(41)
    assert segment.time_index.entries == 0
    assert segment.largest_timestamp == 400
    assert segment.offset_of_max_timestamp == 40
    assert segment.read_next_offset() == 41


def test_a_truncation_removes_index_entries_at_and_above_the_offset(segments: Segments) -> None:
    segments.index_interval_bytes = 0
    segment = segments.create(0)
    put(segment, *[batch(i, "a", timestamps=100 + i) for i in range(10)])
    segment.truncate_to(5)
    assert [offset for offset, _ in offset_entries(segment)] == [1, 2, 3, 4]
    assert time_entries(segment) == [(101, 1), (102, 2), (103, 3), (104, 4)]
    assert segment.max_timestamp_so_far == 104
    put(segment, *[batch(i, "b", timestamps=200 + i) for i in range(5, 8)])
    assert read_offsets(segment, 0) == list(range(8))
    segment.close()
    assert parse_time_index((segment.path.with_suffix(".timeindex")).read_bytes(), 0)[-1] == (
        207,
        7,
    )
    assert segments.warnings == []


def test_a_truncation_removes_aborted_transactions_whose_marker_goes(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, *[batch(i, "a") for i in range(20)])
    for last in (5, 15):
        segment.indexes.note_completed(Completed(1, last - 2, last, is_aborted=True), last + 1)
    segment.truncate_to(10)
    assert [entry.last_offset for entry in segment.indexes.transactions.all_aborted()] == [5]


def test_a_truncation_of_a_reopened_segment_makes_it_writable_again(segments: Segments) -> None:
    segments.index_interval_bytes = 0
    segment = segments.create(0)
    put(segment, *[batch(i, "a", timestamps=i) for i in range(10)])
    segment.on_become_inactive()
    assert segment.offset_index.is_full
    reopened = segments.open(0)
    reopened.truncate_to(6)
    assert not reopened.offset_index.is_full
    assert reopened.offset_index.max_entries == 1000 // 8
    assert reopened.time_index.max_entries == 1000 // 12
    put(reopened, batch(6, "b", timestamps=50))
    reopened.close()
    assert read_offsets(segments.open(0), 0) == list(range(7))
    assert segments.warnings == []


# ---- files


def files_of_new(base_offset: int, suffix: str = "") -> list[str]:
    """The names of the files that a new segment has, sorted."""
    return [f"{base_offset:020d}{kind}{suffix}" for kind in (".index", ".log", ".timeindex")]


def test_a_new_segment_has_a_log_and_both_indexes_before_it_is_flushed(segments: Segments) -> None:
    segment = segments.create(40)
    assert files_in(segments.directory) == files_of_new(40)
    segment.flush()
    assert files_in(segments.directory) == files_of_new(40)


def test_a_new_segment_replaces_files_left_of_the_same_name(segments: Segments) -> None:
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        (segments.directory / f"{5:020d}{suffix}").write_bytes(b"left over")
    segment = segments.create(5)
    assert bytes_of(segment) == b""
    assert segment.indexes.transactions.is_empty
    assert files_in(segments.directory) == files_of_new(5)
    assert not any(bytes_in for bytes_in in map(Path.read_bytes, segments.directory.iterdir()))


def test_a_suffix_is_changed_on_the_log_and_all_indexes_together(segments: Segments) -> None:
    segment = segments.create(40)
    put(segment, *[batch(40 + i, "a", timestamps=i) for i in range(5)])
    segment.indexes.note_completed(Completed(1, 40, 44, is_aborted=True), 45)
    segment.flush()
    names = files_in(segments.directory)
    assert len(names) == 4
    renamed = segment.change_suffix("", ".deleted")
    assert files_in(segments.directory) == [f"{name}.deleted" for name in names]
    assert sorted(path.name for path in renamed) == [f"{name}.deleted" for name in names]
    assert segment.path.name == "00000000000000000040.log.deleted"
    assert segment.offset_index.path.name == "00000000000000000040.index.deleted"
    assert segment.time_index.path.name == "00000000000000000040.timeindex.deleted"
    assert segment.indexes.transactions.path.name == "00000000000000000040.txnindex.deleted"
    assert read_offsets(segment, 40) == [40, 41, 42, 43, 44]


def test_changing_the_suffix_makes_no_index_that_is_not_there(segments: Segments) -> None:
    segment = segments.create(40)
    for name in files_of_new(40)[::2]:
        (segments.directory / name).unlink()
    renamed = segment.change_suffix("", ".deleted")
    assert [path.name for path in renamed] == ["00000000000000000040.log.deleted"]
    assert files_in(segments.directory) == ["00000000000000000040.log.deleted"]


def test_a_suffix_is_changed_only_where_the_old_one_is_there(segments: Segments) -> None:
    segment = segments.create(40)
    segment.change_suffix("", ".deleted")
    assert segment.change_suffix("", ".deleted") == []
    segment.change_suffix(".deleted", ".swap")
    segment.change_suffix(".swap", "")
    assert files_in(segments.directory) == files_of_new(40)


def test_deleting_removes_every_file_and_can_be_repeated(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "a"))
    segment.indexes.note_completed(Completed(1, 0, 0, is_aborted=True), 1)
    segment.flush()
    assert len(files_in(segments.directory)) == 4
    segment.delete_if_exists()
    segment.delete_if_exists()
    assert files_in(segments.directory) == []
    assert segments.resources.files_open == 0


def test_deleting_goes_on_where_one_file_cannot_be_removed() -> None:
    fs = SimulatedFileSystem()
    directory = Path("/log")
    fs.make_directory(directory)
    segment = Segments(directory=directory, fs=fs).create(0)
    put(segment, batch(0, "a"))
    segment.flush()

    def fail(operation: FileOperation) -> OSError | None:
        is_log = operation.kind is FileOperationKind.REMOVE and operation.path.suffix == ".log"
        return OSError(5, "Input/output error") if is_log else None

    fs.fail = fail
    with pytest.raises(OSError, match="Input/output"):
        segment.delete_if_exists()
    assert fs.names_in(directory) == [f"{0:020d}.log"]


def test_sanity_check_needs_the_offset_index_file(segments: Segments) -> None:
    segment = segments.create(0)
    segment.indexes.files.sanity_check()
    (segments.directory / "00000000000000000000.index").unlink()
    with pytest.raises(FileNotFoundError, match=r"Offset index file .* does not exist"):
        segment.indexes.files.sanity_check()


def test_sanity_check_makes_an_empty_time_index_where_there_was_none(segments: Segments) -> None:
    segment = segments.create(0)
    put(segment, batch(0, "a", timestamps=5))
    segment.close()
    path = segment.path.with_suffix(".timeindex")
    path.unlink()
    reopened = segments.open(0)
    reopened.indexes.files.sanity_check(time_index_newly_created=True)
    assert path.read_bytes() == b""
    assert reopened.time_index.entries == 0


def test_sanity_check_refuses_a_damaged_transaction_index(segments: Segments) -> None:
    segment = segments.create(0)
    segment.close()
    segment.path.with_suffix(".txnindex").write_bytes(b"damaged")
    with pytest.raises(CorruptError, match="txnindex"):
        segments.open(0).indexes.files.sanity_check()


def test_sanity_check_does_not_look_at_the_entries_of_offset_and_time_index(
    segments: Segments,
) -> None:
    segments.create(0).close()
    for suffix in (".index", ".timeindex"):
        (segments.directory / f"{0:020d}{suffix}").write_bytes(b"xx")
    segments.open(0).indexes.files.sanity_check(has_transaction_index=False)


class Completed(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


def test_an_aborted_transaction_is_noted_and_a_committed_one_is_not(segments: Segments) -> None:
    segment = segments.create(0)
    segment.indexes.note_completed(Completed(1, 2, 5, is_aborted=False), 6)
    assert segment.indexes.transactions.is_empty
    segment.indexes.note_completed(Completed(3, 4, 8, is_aborted=True), 7)
    assert segment.indexes.transactions.all_aborted() == [
        AbortedTransaction(producer_id=3, first_offset=4, last_offset=8, last_stable_offset=7)
    ]


# ---- preallocated


def test_a_preallocated_segment_takes_and_gives_batches(segments: Segments) -> None:
    segments.settings = {"preallocate": True, "segment_bytes": 512 << 20}
    segment = segments.create(40)
    put(segment, batch(50, "hello", "there"))
    put(segment, batch(60, "alpha", "beta"))
    assert read_offsets(segment, 55) == [61]
    assert segment.path.stat().st_size == 512 << 20


def test_a_preallocated_segment_is_trimmed_when_it_is_closed(segments: Segments) -> None:
    segments.settings = {"preallocate": True, "segment_bytes": 512 << 20}
    segment = segments.create(40)
    data = batch(50, "hello", "there") + batch(60, "alpha", "beta")
    put(segment, data)
    segment.close()
    assert bytes_of(segment) == data
    reopened = segments.open(40)
    assert reopened.size_bytes == len(data)
    assert read_offsets(reopened, 55) == [61]
    put(reopened, batch(70, "more"))
    assert bytes_of(reopened) == data + batch(70, "more")


def test_a_preallocated_segment_is_trimmed_when_it_becomes_inactive(segments: Segments) -> None:
    segments.settings = {"preallocate": True, "segment_bytes": 1 << 20}
    segment = segments.create(0)
    put(segment, batch(0, "a"))
    segment.on_become_inactive()
    assert segment.path.stat().st_size == segment.size_bytes


def test_the_zeros_of_a_preallocated_segment_are_cut_off_after_a_crash(segments: Segments) -> None:
    segments.settings = {"preallocate": True, "segment_bytes": 1 << 20}
    segment = segments.create(0)
    put(segment, batch(0, "a"), batch(1, "b"))
    reopened = segments.open(0)
    assert reopened.size_bytes == 1 << 20
    assert reopened.valid_bytes() == segment.size_bytes
    assert reopened.recover() == (1 << 20) - segment.size_bytes
    assert read_offsets(reopened, 0) == [0, 1]


# ---- inactive, closed, flushed


@pytest.fixture
def filled(segments: Segments) -> LogSegment:
    segments.index_interval_bytes = 100
    segment = segments.create(0)
    put(segment, *[batch(i, "a" * 30, timestamps=t) for i, t in enumerate([5, 7, 9, 4, 8, 12])])
    return segment


def test_becoming_inactive_adds_the_last_time_entry_and_trims_both_indexes(
    filled: LogSegment,
) -> None:
    before = time_entries(filled)
    assert before[-1] != (12, 5)
    filled.on_become_inactive()
    index, time_index = (filled.path.with_suffix(s) for s in (".index", ".timeindex"))
    assert index.read_bytes() == build_offset_index(offset_entries(filled), 0)
    assert parse_time_index(time_index.read_bytes(), 0) == [*before, (12, 5)]
    assert index.stat().st_size == 8 * filled.offset_index.entries


def test_closing_leaves_the_same_files_as_becoming_inactive(
    filled: LogSegment, segments: Segments
) -> None:
    filled.on_become_inactive()
    inactive = {
        name: (segments.directory / name).read_bytes() for name in files_in(segments.directory)
    }
    filled.close()
    assert {name: (segments.directory / name).read_bytes() for name in inactive} == inactive
    again = segments.create(0)
    put(again, inactive[f"{0:020d}.log"])
    again.close()
    assert {name: (segments.directory / name).read_bytes() for name in inactive} == inactive


def test_the_last_time_entry_takes_the_slot_that_is_kept_for_it(segments: Segments) -> None:
    segments.index_interval_bytes = 0
    segments.segment_index_bytes = 36
    segment = segments.create(0)
    put(segment, *[batch(i, "a", timestamps=i * 10) for i in range(6)])
    assert segment.time_index.is_full
    segment.on_become_inactive()
    assert time_entries(segment) == [(10, 1), (20, 2), (50, 5)]


def test_closing_a_segment_that_was_only_read_writes_nothing(
    filled: LogSegment, segments: Segments
) -> None:
    filled.close()
    reopened = segments.open(0)
    assert read_offsets(reopened, 3) == [3, 4, 5]
    assert reopened.max_timestamp_so_far == 12
    before = {
        name: (segments.directory / name).stat().st_mtime_ns
        for name in files_in(segments.directory)
    }
    reopened.close()
    assert before == {
        name: (segments.directory / name).stat().st_mtime_ns
        for name in files_in(segments.directory)
    }


def test_a_closed_segment_can_still_be_read_and_flushed(filled: LogSegment) -> None:
    filled.close()
    assert read_offsets(filled, 3) == [3, 4, 5]
    filled.flush()


def test_handlers_closed_writes_nothing_and_opens_the_files_no_more(
    filled: LogSegment, segments: Segments
) -> None:
    filled.close_handlers()
    assert files_in(segments.directory) == files_of_new(0)
    for name in files_of_new(0)[::2]:
        assert not (segments.directory / name).read_bytes()
    assert segments.resources.files_open == 0


def test_opening_a_segment_looks_at_one_file_and_reads_none() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(Path("/log"))
    segments = Segments(directory=Path("/log"), fs=fs)
    segment = segments.create(0)
    put(segment, batch(0, "a", timestamps=4))
    segment.close()
    seen: list[FileOperation] = []

    def note(operation: FileOperation) -> None:
        seen.append(operation)

    fs.fail = note
    reopened = segments.open(0)
    assert [operation.kind for operation in seen] == [FileOperationKind.LOOK]
    facts = fs.facts_of(reopened.path)
    seen.clear()
    LogSegment.open(
        Path("/log"), 0, config=segments.config, resources=ResourceCache(fs), now_ms=0, facts=facts
    )
    assert seen == []


def test_opening_a_segment_that_is_not_there_fails(segments: Segments) -> None:
    with pytest.raises(FileNotFoundError):
        segments.open(0)


def test_what_was_flushed_lasts_through_a_power_loss() -> None:
    fs = SimulatedFileSystem()
    directory = Path("/log")
    fs.make_directory(directory)
    fs.sync_directory(Path("/"))
    segments = Segments(directory=directory, fs=fs)
    segment = segments.create(0)
    put(segment, *[batch(i, "a" * 50, timestamps=i) for i in range(10)])
    segment.indexes.note_completed(Completed(1, 0, 9, is_aborted=True), 10)
    segment.flush()
    fs.sync_directory(directory)
    expected = fs.read_bytes(segment.path)
    entries = offset_entries(segment)
    put(segment, batch(10, "lost"))
    for image in fs.crash_images(8, random.Random(2)):
        assert image.read_bytes(segment.path)[: len(expected)] == expected
        found = image.read_bytes(segment.path.with_suffix(".index"))
        assert parse_offset_index(found, 0)[: len(entries)] == entries
        assert len(image.read_bytes(segment.path.with_suffix(".txnindex"))) == 34


def test_a_flush_that_failed_is_done_again() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(Path("/log"))
    segment = Segments(directory=Path("/log"), fs=fs).create(0)
    put(segment, batch(0, "a"))
    syncs: list[FileOperation] = []

    def fail(operation: FileOperation) -> OSError | None:
        if operation.kind is not FileOperationKind.SYNC:
            return None
        syncs.append(operation)
        return OSError(5, "Input/output error") if len(syncs) == 1 else None

    fs.fail = fail
    with pytest.raises(OSError, match="Input/output"):
        segment.flush()
    segment.flush()
    assert [operation.path.suffix for operation in syncs] == [
        ".log",
        ".log",
        ".index",
        ".timeindex",
    ]
    segment.flush()
    assert len(syncs) == 4, "nothing was written since"


@pytest.mark.parametrize(
    "change", [LogSegment.on_become_inactive, LogSegment.close, LogSegment.flush]
)
def test_a_full_disk_while_indexes_are_written_loses_nothing(
    change: Callable[[LogSegment], None],
) -> None:
    fs = SimulatedFileSystem()
    fs.make_directory(Path("/log"))
    segments = Segments(directory=Path("/log"), fs=fs)
    segment = segments.create(0)
    put(segment, *[batch(i, "a", timestamps=i) for i in range(10)])
    fs.capacity_bytes = segment.size_bytes + 4
    with pytest.raises(NoSpaceError):
        change(segment)
    fs.capacity_bytes = None
    change(segment)
    segment.close()
    assert read_offsets(segments.open(0), 5) == [5, 6, 7, 8, 9]
    assert segments.warnings == []
