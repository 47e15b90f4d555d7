"""Scenarios of TimeIndexTest: base 45, room for 30 entries, unless a test says otherwise."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from cordwood.format.time_index import build_time_index, lookup_timestamp, parse_time_index
from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import InvalidOffsetError, SegmentOffsetOverflowError
from cordwood.storage.segment.time_index import TimeIndex, TimestampOffset

BASE = 45
ROOM = 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000045.timeindex"


@pytest.fixture
def index(path: Path) -> TimeIndex:
    return TimeIndex(path, BASE, max_index_bytes=ROOM * 12)


def fill(index: TimeIndex, count: int = ROOM - 1) -> TimeIndex:
    for i in range(1, count + 1):
        index.maybe_append(i * 10, i * 10 + BASE)
    return index


# ---- lookup


def test_lookup_in_an_empty_index_gives_no_timestamp_and_the_base(index: TimeIndex) -> None:
    assert index.lookup(100) == (-1, 45)


def test_lookup_below_the_first_timestamp_gives_no_timestamp_and_the_base(
    index: TimeIndex,
) -> None:
    assert fill(index).lookup(9) == (-1, 45)


def test_lookup_between_two_entries_gives_the_earlier(index: TimeIndex) -> None:
    assert fill(index).lookup(25) == (20, 65)


def test_lookup_of_an_entrys_own_timestamp_gives_it(index: TimeIndex) -> None:
    assert fill(index).lookup(30) == (30, 75)


def test_lookup_agrees_with_a_search_through_all_entries(index: TimeIndex) -> None:
    rng = random.Random(5)
    times = sorted(rng.sample(range(1000), ROOM - 1))
    offsets = sorted(rng.choices(range(BASE, BASE + 100), k=ROOM - 1))
    entries = list(zip(times, offsets, strict=True))
    for entry in entries:
        index.maybe_append(*entry)
    for target in range(-1, 1001):
        assert index.lookup(target) == lookup_timestamp(entries, target, BASE)


# ---- entries


def test_entries_are_given_by_number(index: TimeIndex) -> None:
    fill(index)
    found = [index.entry(i) for i in range(4)]
    assert found == [(10, 55), (20, 65), (30, 75), (40, 85)]


def test_entry_zero_of_an_empty_index_is_an_illegal_argument(index: TimeIndex) -> None:
    with pytest.raises(ValueError, match="Attempt to fetch the 0th entry from time index"):
        index.entry(0)


def test_the_last_entry_is_the_one_appended_last_and_none_is_the_base(index: TimeIndex) -> None:
    assert index.last_entry == TimestampOffset(-1, 45)
    index.maybe_append(1, 1 + BASE)
    assert index.last_entry == (1, 46)


def test_an_entry_takes_12_bytes(index: TimeIndex, path: Path) -> None:
    fill(index, 3).trim()
    assert path.stat().st_size == 36


# ---- append


def test_append_to_a_full_index_is_an_illegal_argument(index: TimeIndex) -> None:
    fill(index)
    with pytest.raises(ValueError, match=r"full time index \(size = 29\)"):
        index.maybe_append(10_000, 1000)


def test_the_last_slot_is_taken_when_the_full_check_is_skipped(index: TimeIndex) -> None:
    fill(index)
    index.maybe_append(10_000, 1000, skip_full_check=True)
    assert index.entries == ROOM
    assert index.last_entry == (10_000, 1000)


def test_append_of_a_lower_offset_is_an_invalid_offset(index: TimeIndex) -> None:
    fill(index)
    with pytest.raises(InvalidOffsetError, match="no larger than the last offset appended"):
        index.maybe_append(10_000, (ROOM - 2) * 10, skip_full_check=True)
    assert index.entries == ROOM - 1


def test_append_of_a_lower_timestamp_is_an_illegal_state(index: TimeIndex) -> None:
    fill(index, 5)
    with pytest.raises(ValueError, match="no larger than the last timestamp appended"):
        index.maybe_append(49, 1000)
    assert index.entries == 5


def test_append_of_an_equal_timestamp_is_silently_ignored(index: TimeIndex) -> None:
    fill(index, 5)
    index.maybe_append(50, 1000)
    assert index.last_entry == (50, 95)


def test_append_of_no_timestamp_to_an_empty_index_adds_nothing(index: TimeIndex) -> None:
    index.maybe_append(-1, 50)
    assert index.entries == 0


def test_two_timestamps_may_have_the_same_offset(index: TimeIndex, path: Path) -> None:
    index.maybe_append(1, 50)
    index.maybe_append(2, 50)
    index.trim()
    assert TimeIndex(path, BASE).entries == 2


def test_append_of_an_offset_out_of_reach_of_the_base_overflows(index: TimeIndex) -> None:
    with pytest.raises(SegmentOffsetOverflowError):
        index.maybe_append(1, BASE + (1 << 31))
    assert index.entries == 0


# ---- full, resize, truncate


def test_an_index_is_full_when_only_the_slot_for_the_roll_is_left(index: TimeIndex) -> None:
    assert not index.is_full
    fill(index, ROOM - 2)
    assert not index.is_full
    index.maybe_append(10_000, 1000)
    assert index.is_full


def test_resizing_to_the_same_size_changes_nothing(index: TimeIndex) -> None:
    index.maybe_append(1, BASE)
    assert index.max_entries == ROOM
    assert not index.resize(ROOM * 12)


def test_resizing_to_another_size_is_a_change(index: TimeIndex) -> None:
    assert index.resize(ROOM // 2 * 12)
    assert index.max_entries == 15
    assert index.resize(ROOM * 2 * 12 + 11)
    assert index.max_entries == 60


def test_truncate_to_the_first_offset_leaves_no_entry(index: TimeIndex) -> None:
    fill(index).truncate_to(55)
    assert index.entries == 0
    assert index.last_entry == (-1, 45)


def test_truncate_removes_entries_with_an_offset_at_or_above(index: TimeIndex) -> None:
    fill(index).truncate_to(75)
    assert index.last_entry == (20, 65)


def test_truncate_between_offsets_keeps_the_one_below(index: TimeIndex) -> None:
    fill(index).truncate_to(70)
    assert index.last_entry == (20, 65)


def test_truncate_all_leaves_no_entry_and_room_for_as_many(index: TimeIndex) -> None:
    fill(index).truncate()
    assert index.entries == 0
    assert fill(index).entries == ROOM - 1


def test_a_reset_index_is_empty_and_has_room_again(index: TimeIndex, path: Path) -> None:
    fill(index).trim()
    index.reset()
    assert index.entries == 0
    assert index.max_entries == ROOM
    index.trim()
    assert path.read_bytes() == b""


# ---- sanity


def test_sanity_check_passes_on_an_empty_index_and_on_a_good_one(index: TimeIndex) -> None:
    index.sanity_check()
    fill(index, 5)
    index.sanity_check()
    index.trim()
    index.sanity_check()


def write(path: Path, *entries: tuple[int, int]) -> None:
    path.write_bytes(b"".join(struct.pack(">qi", *entry) for entry in entries))


def test_sanity_check_rejects_a_last_timestamp_below_the_first(path: Path) -> None:
    write(path, (10, 10), (20, 20), (9, 30))
    with pytest.raises(CorruptError, match="do not ascend"):
        TimeIndex(path, BASE).sanity_check()


def test_sanity_check_rejects_a_last_offset_below_the_base(path: Path) -> None:
    write(path, (10, -1))
    with pytest.raises(CorruptError, match="below"):
        TimeIndex(path, BASE).sanity_check()


def test_sanity_check_rejects_a_size_that_is_no_multiple_of_12(
    index: TimeIndex, path: Path
) -> None:
    fill(index, 5).trim()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptError, match="found 59 bytes"):
        index.sanity_check()


def test_sanity_check_rejects_offsets_that_descend(path: Path) -> None:
    write(path, (10, 10), (20, 9))
    with pytest.raises(CorruptError, match="do not ascend"):
        TimeIndex(path, BASE).sanity_check()


def test_any_bytes_give_an_index_or_a_typed_error(path: Path) -> None:
    rng = random.Random(3)
    good = build_time_index([(i * 10, BASE + i) for i in range(1, 6)], BASE)
    for _ in range(300):
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data[: rng.randrange(len(data) + 1)])
        index = TimeIndex(path, BASE)
        try:
            index.last_entry_on_disk()
            found = [index.entry(i) for i in range(index.entries)]
        except CorruptError:
            continue
        assert found == parse_time_index(path.read_bytes(), BASE)


# ---- the file


def test_the_file_of_a_trimmed_index_is_its_entries(index: TimeIndex, path: Path) -> None:
    fill(index, 3).trim()
    assert path.read_bytes() == build_time_index([(10, 55), (20, 65), (30, 75)], BASE)


def test_the_last_entry_is_found_on_disk_without_reading_the_index(path: Path) -> None:
    path.write_bytes(build_time_index([(i, BASE + i) for i in range(1, 1000)], BASE))
    index = TimeIndex(path, BASE)
    assert index.last_entry_on_disk() == (999, 1044)
    assert not index.is_loaded


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_the_last_entry_on_disk_is_that_before_padding(path: Path, count: int) -> None:
    entries = [(i * 10, BASE + i) for i in range(1, count + 1)]
    path.write_bytes(build_time_index(entries, BASE) + bytes(24))
    expected = entries[-1] if entries else (-1, BASE)
    assert TimeIndex(path, BASE).last_entry_on_disk() == expected


def test_the_last_entry_on_disk_of_no_file_is_the_base(path: Path) -> None:
    assert TimeIndex(path, BASE).last_entry_on_disk() == (-1, BASE)


def test_a_single_record_at_the_epoch_is_an_entry_though_it_is_all_zeros(path: Path) -> None:
    index = TimeIndex(path, BASE, max_index_bytes=120, is_new=True)
    index.maybe_append(0, BASE)
    index.trim()
    assert path.read_bytes() == bytes(12)
    assert TimeIndex(path, BASE).last_entry_on_disk() == (0, BASE)
