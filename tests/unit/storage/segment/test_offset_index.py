"""Scenarios of OffsetIndexTest: base 45, room for 30 entries, unless a test says otherwise."""

from __future__ import annotations

import contextlib
import random
import struct
from pathlib import Path

import pytest

from cordwood.format.offset_index import build_offset_index, lookup_offset, parse_offset_index
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.model.kafka_errors import InvalidOffsetError, SegmentOffsetOverflowError
from cordwood.storage.filesystem import OS
from cordwood.storage.segment.offset_index import OffsetIndex, OffsetPosition
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.simulated_filesystem import SimulatedFileSystem

BASE = 45
ROOM = 30


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "00000000000000000045.index"


@pytest.fixture
def index(path: Path) -> OffsetIndex:
    return OffsetIndex(path, BASE, max_index_bytes=ROOM * 8)


def fill(index: OffsetIndex, *entries: tuple[int, int]) -> OffsetIndex:
    for entry in entries:
        index.append(*entry)
    return index


# ---- lookup


def test_lookup_in_an_empty_index_gives_base_offset_and_position_zero(index: OffsetIndex) -> None:
    assert index.lookup(BASE) == (45, 0)
    assert index.lookup(92) == (45, 0)


def test_lookup_below_the_first_entry_gives_base_offset_and_position_zero(
    index: OffsetIndex,
) -> None:
    fill(index, (50, 7))
    assert index.lookup(49) == (45, 0)
    assert index.lookup(10) == (45, 0)


def test_lookup_of_exact_offsets_gives_their_entries(index: OffsetIndex) -> None:
    entries = [(BASE + i + 1, i) for i in range(ROOM)]
    fill(index, *entries)
    assert [index.lookup(offset) for offset, _ in entries] == entries


def test_lookup_between_entries_gives_the_largest_at_or_below(index: OffsetIndex) -> None:
    fill(index, (50, 5), (60, 15), (70, 25))
    assert index.lookup(59) == (50, 5)
    assert index.lookup(61) == (60, 15)


def test_lookup_past_the_end_gives_the_last_entry(index: OffsetIndex) -> None:
    fill(index, (50, 5), (60, 15))
    assert index.lookup(1 << 40) == (60, 15)


def test_lookup_agrees_with_a_search_through_all_entries_in_memory_and_on_disk(path: Path) -> None:
    rng = random.Random(7)
    for _ in range(20):
        offsets = sorted(rng.sample(range(BASE, BASE + 500), ROOM))
        positions = sorted(rng.sample(range(1, 5000), ROOM))
        entries = list(zip(offsets, positions, strict=True))
        index = fill(OffsetIndex(path, BASE, max_index_bytes=ROOM * 8, is_new=True), *entries)
        index.trim()
        reopened = OffsetIndex(path, BASE)
        for target in range(BASE - 2, BASE + 502):
            expected = lookup_offset(entries, target, BASE)
            assert index.lookup(target) == expected
            assert reopened.lookup_on_disk(target) == expected
        assert not reopened.is_loaded


def test_lookup_on_disk_takes_padding_for_no_entries(path: Path) -> None:
    path.write_bytes(build_offset_index([(50, 5), (60, 15)], BASE) + bytes(80))
    assert OffsetIndex(path, BASE).lookup_on_disk(1 << 40) == (60, 15)


def test_lookup_on_disk_without_a_file_gives_base_offset_and_position_zero(path: Path) -> None:
    assert OffsetIndex(path, BASE).lookup_on_disk(50) == (45, 0)


# ---- entries


def test_entries_are_given_by_number(index: OffsetIndex) -> None:
    fill(index, *[(BASE + i, i) for i in range(ROOM)])
    assert [index.entry(i) for i in range(ROOM)] == [(BASE + i, i) for i in range(ROOM)]


def test_entry_zero_of_an_empty_index_is_an_illegal_argument(index: OffsetIndex) -> None:
    with pytest.raises(ValueError, match="Attempt to fetch the 0th entry"):
        index.entry(0)


def test_last_entry_and_last_offset_of_an_empty_index_are_the_base(index: OffsetIndex) -> None:
    assert index.last_entry == OffsetPosition(45, 0)
    assert index.last_offset == 45


# ---- append


def test_append_to_a_full_index_is_an_illegal_argument(index: OffsetIndex) -> None:
    fill(index, *[(BASE + i + 1, i) for i in range(ROOM)])
    assert index.is_full
    with pytest.raises(ValueError, match=r"Attempt to append to a full index \(size = 30\)"):
        index.append(BASE + ROOM + 1, 1000)
    assert index.entries == ROOM


def test_append_of_a_lower_offset_is_an_invalid_offset(index: OffsetIndex) -> None:
    fill(index, (51, 0))
    with pytest.raises(InvalidOffsetError, match="no larger than the last offset appended"):
        index.append(50, 1)
    assert index.entries == 1


def test_append_of_the_last_offset_again_is_an_invalid_offset(index: OffsetIndex) -> None:
    fill(index, (51, 0))
    with pytest.raises(InvalidOffsetError):
        index.append(51, 1)


@pytest.mark.parametrize("offset", [BASE - 1, BASE + (1 << 31)])
def test_append_of_an_offset_out_of_reach_of_the_base_overflows(
    index: OffsetIndex, offset: int
) -> None:
    with pytest.raises(SegmentOffsetOverflowError, match="Integer overflow for offset"):
        index.append(offset, 1)
    assert index.entries == 0


def test_the_farthest_offset_that_fits_is_taken(index: OffsetIndex) -> None:
    fill(index, (BASE + (1 << 31) - 1, 1))
    assert index.last_offset == BASE + (1 << 31) - 1


# ---- upper bound


def test_upper_bound_of_an_empty_index_is_none(index: OffsetIndex) -> None:
    assert index.fetch_upper_bound_offset(0, 5) is None


@pytest.mark.parametrize(
    ("start", "size", "expected"),
    [
        (0, 5, 1),
        (0, 10, 1),
        (0, 22, 2),
        (0, 23, 2),
        (10, 24, 3),
        (37, 1, None),
        (0, 200, None),
        (10, 200, None),
    ],
)
def test_upper_bound_is_the_first_entry_at_or_beyond_the_end_of_what_was_read(
    index: OffsetIndex, start: int, size: int, expected: int | None
) -> None:
    entries = [(BASE, 0), (BASE + 1, 10), (BASE + 2, 23), (BASE + 3, 37)]
    fill(index, *entries)
    found = index.fetch_upper_bound_offset(start, size)
    assert found == (None if expected is None else entries[expected])


# ---- reopen and resize


def test_a_reopened_index_has_its_entries(index: OffsetIndex, path: Path) -> None:
    fill(index, (51, 0), (52, 1)).trim()
    reopened = OffsetIndex(path, BASE)
    assert reopened.lookup(51) == (51, 0)
    assert reopened.lookup(52) == (52, 1)
    assert reopened.last_offset == 52
    assert reopened.entries == 2


def test_a_reopened_index_is_full_until_it_is_resized(index: OffsetIndex, path: Path) -> None:
    fill(index, (51, 0), (52, 1)).trim()
    reopened = OffsetIndex(path, BASE, max_index_bytes=ROOM * 8)
    assert reopened.is_full
    with pytest.raises(ValueError, match="full index"):
        reopened.append(53, 1)
    reopened.resize(ROOM * 8)
    reopened.append(53, 2)
    assert reopened.last_offset == 53
    assert reopened.max_entries == ROOM


def test_resizing_an_index_that_is_not_in_memory_reads_nothing(path: Path) -> None:
    path.write_bytes(b"no index at all")
    index = OffsetIndex(path, BASE)
    assert index.resize(80)
    assert not index.is_loaded


def test_an_index_resized_to_nothing_is_full(index: OffsetIndex) -> None:
    index.resize(0)
    assert index.is_full


# ---- truncate


@pytest.fixture
def ten(tmp_path: Path) -> OffsetIndex:
    index = OffsetIndex(tmp_path / "00000000000000000000.index", 0, max_index_bytes=10 * 8)
    return fill(index, *[(i, i) for i in range(1, 11)])


def test_truncate_beyond_the_last_entry_changes_nothing(ten: OffsetIndex) -> None:
    ten.truncate_to(12)
    assert ten.last_offset == 10
    assert ten.lookup(10) == (10, 10)


def test_truncate_to_the_last_entry_removes_it(ten: OffsetIndex) -> None:
    ten.truncate_to(10)
    assert ten.last_offset == 9
    assert ten.lookup(10) == (9, 9)
    ten.append(10, 10)
    assert ten.last_offset == 10


def test_truncate_to_9_leaves_8_as_the_last(ten: OffsetIndex) -> None:
    ten.truncate_to(9)
    assert ten.last_offset == 8


def test_truncate_to_5_leaves_4_as_the_last(ten: OffsetIndex) -> None:
    ten.truncate_to(5)
    assert ten.last_offset == 4
    assert ten.lookup(10) == (4, 4)
    ten.append(5, 5)
    assert ten.entries == 5


def test_truncate_between_entries_keeps_the_one_below(index: OffsetIndex) -> None:
    fill(index, (50, 5), (60, 15))
    index.truncate_to(55)
    assert index.last_offset == 50


def test_truncate_all_leaves_no_entry(ten: OffsetIndex) -> None:
    ten.truncate()
    assert ten.entries == 0
    ten.append(0, 0)
    assert ten.entry(0) == (0, 0)


def test_truncated_entries_are_gone_from_the_file_too(ten: OffsetIndex) -> None:
    ten.flush()
    ten.truncate_to(5)
    ten.append(7, 70)
    ten.flush()
    assert parse_offset_index(ten.path.read_bytes(), 0) == [(1, 1), (2, 2), (3, 3), (4, 4), (7, 70)]


# ---- sanity


def test_sanity_check_passes_when_the_last_offset_is_the_base(tmp_path: Path) -> None:
    index = OffsetIndex(tmp_path / "x.index", 20, max_index_bytes=80)
    index.append(20, 0)
    index.sanity_check()
    index.trim()
    OffsetIndex(tmp_path / "x.index", 20).sanity_check()


def test_sanity_check_fails_when_an_offset_is_below_the_base(path: Path) -> None:
    path.write_bytes(struct.pack(">ii", -3, 5))
    with pytest.raises(CorruptError, match="below") as raised:
        OffsetIndex(path, BASE).sanity_check()
    assert raised.value.path == str(path)


def test_sanity_check_fails_when_the_size_is_no_multiple_of_8(
    index: OffsetIndex, path: Path
) -> None:
    fill(index, (50, 5)).trim()
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(CorruptError, match="found 9 bytes"):
        index.sanity_check()
    with pytest.raises(CorruptError, match="found 9 bytes"):
        OffsetIndex(path, BASE).lookup(50)


@pytest.mark.parametrize(
    "entries",
    [[(5, 5), (5, 6)], [(6, 5), (5, 6)], [(5, 5), (6, 5)], [(5, 6), (6, 5)], [(1, -1)]],
    ids=["same offset", "lower offset", "same position", "lower position", "negative position"],
)
def test_entries_that_do_not_ascend_are_corrupt(path: Path, entries: list[tuple[int, int]]) -> None:
    path.write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    with pytest.raises(CorruptError, match=str(path)):
        OffsetIndex(path, BASE).lookup(50)


def test_a_file_larger_than_any_index_is_not_read(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CorruptError, match="1099511627776 bytes"):
        OffsetIndex(path, BASE).lookup(50)


def test_any_bytes_give_an_index_or_a_typed_error(path: Path) -> None:
    rng = random.Random(3)
    for _ in range(300):
        path.write_bytes(rng.randbytes(rng.randrange(60)))
        index = OffsetIndex(path, BASE)
        with contextlib.suppress(CorruptError):
            assert index.lookup_on_disk(60).position >= 0
        try:
            found = [index.entry(i) for i in range(index.entries)]
        except CorruptError:
            continue
        assert found == parse_offset_index(path.read_bytes(), BASE)


# ---- the file


def test_the_file_of_a_trimmed_index_is_its_entries(index: OffsetIndex, path: Path) -> None:
    fill(index, (50, 5), (60, 15))
    assert not path.exists()
    index.trim()
    assert path.read_bytes() == build_offset_index([(50, 5), (60, 15)], BASE)
    assert index.is_full


def test_zeros_behind_the_entries_are_no_entries_and_go_with_a_trim(path: Path) -> None:
    data = build_offset_index([(50, 5), (45 + 256, 256)], BASE)
    path.write_bytes(data + bytes(800))
    index = OffsetIndex(path, BASE)
    assert index.entries == 2
    assert index.max_entries == 102
    index.trim()
    assert path.read_bytes() == data


def test_a_file_of_zeros_is_empty(path: Path) -> None:
    path.write_bytes(bytes(80))
    assert OffsetIndex(path, BASE).entries == 0


def test_flush_writes_only_what_the_file_does_not_have(index: OffsetIndex, path: Path) -> None:
    fill(index, (50, 5)).flush()
    fill(index, (60, 15)).flush()
    assert parse_offset_index(path.read_bytes(), BASE) == [(50, 5), (60, 15)]
    before = path.stat().st_mtime_ns
    index.flush()
    index.trim()
    assert path.stat().st_mtime_ns == before


def test_flush_of_a_new_index_makes_its_file(path: Path) -> None:
    OffsetIndex(path, BASE, max_index_bytes=80, is_new=True).flush()
    assert path.read_bytes() == b""


def test_a_new_index_is_empty_whatever_the_file_holds(path: Path) -> None:
    path.write_bytes(build_offset_index([(50, 5), (60, 15)], BASE))
    index = OffsetIndex(path, BASE, max_index_bytes=80, is_new=True)
    assert index.entries == 0
    fill(index, (70, 1)).flush()
    assert parse_offset_index(path.read_bytes(), BASE) == [(70, 1)]


def test_an_index_whose_file_was_removed_is_written_whole_again(
    index: OffsetIndex, path: Path
) -> None:
    fill(index, (50, 5)).flush()
    path.unlink()
    fill(index, (60, 15)).flush()
    assert parse_offset_index(path.read_bytes(), BASE) == [(50, 5), (60, 15)]


def test_a_released_index_is_read_again_when_it_is_asked(index: OffsetIndex) -> None:
    fill(index, (50, 5))
    assert not index.release(), "a writer holds it"
    index.trim()
    assert index.release()
    assert not index.is_loaded
    assert index.lookup(50) == (50, 5)


def test_an_index_with_entries_not_yet_written_is_not_released(path: Path) -> None:
    path.write_bytes(build_offset_index([(50, 5)], BASE))
    index = OffsetIndex(path, BASE)
    index.resize(80)
    assert index.entries == 1
    index.append(60, 15)
    assert not index.release()
    assert index.lookup(60) == (60, 15)


def test_handlers_closed_forgets_what_was_not_written(index: OffsetIndex, path: Path) -> None:
    fill(index, (50, 5)).flush()
    fill(index, (60, 15)).close_handlers()
    assert index.entries == 1
    assert parse_offset_index(path.read_bytes(), BASE) == [(50, 5)]


def test_rename_moves_the_file_and_later_entries_go_to_the_new_name(
    index: OffsetIndex, path: Path
) -> None:
    fill(index, (50, 5)).flush()
    target = path.with_name(path.name + ".deleted")
    assert index.rename_to(target)
    fill(index, (60, 15)).flush()
    assert not path.exists()
    assert parse_offset_index(target.read_bytes(), BASE) == [(50, 5), (60, 15)]


def test_rename_of_an_index_without_a_file_only_changes_its_name(path: Path) -> None:
    target = path.with_name(path.name + ".deleted")
    for is_new in (True, False):
        index = OffsetIndex(path, BASE, max_index_bytes=80, is_new=is_new)
        assert not index.rename_to(target)
        assert index.path == target
        assert not target.exists()


def test_delete_removes_the_file_and_no_flush_brings_it_back(
    index: OffsetIndex, path: Path
) -> None:
    fill(index, (50, 5)).flush()
    assert index.delete_if_exists()
    assert not path.exists()
    index.flush()
    index.trim()
    assert not path.exists()
    assert not index.delete_if_exists()


def test_a_full_disk_loses_no_entry() -> None:
    fs = SimulatedFileSystem()
    directory = Path("/log")
    fs.make_directory(directory)
    index = OffsetIndex(directory / "x.index", 0, max_index_bytes=800, fs=fs)
    fill(index, (1, 1)).flush()
    fill(index, (2, 2))
    fs.capacity_bytes = 12
    with pytest.raises(NoSpaceError):
        index.flush()
    assert index.lookup(2) == (2, 2)
    fs.capacity_bytes = 1000
    index.flush()
    assert parse_offset_index(fs.read_bytes(directory / "x.index"), 0) == [(1, 1), (2, 2)]


def test_flush_makes_entries_last_through_a_power_loss() -> None:
    fs = SimulatedFileSystem()
    directory = Path("/log")
    fs.make_directory(directory)
    fs.sync_directory(Path("/"))
    index = OffsetIndex(directory / "x.index", 0, max_index_bytes=800, fs=fs)
    fill(index, (1, 1)).flush(sync=False)
    index.flush()
    fs.sync_directory(directory)
    for image in fs.crash_images(5, random.Random(1)):
        assert parse_offset_index(image.read_bytes(directory / "x.index"), 0) == [(1, 1)]


def test_the_cache_is_told_of_an_index_that_is_read(path: Path) -> None:
    path.write_bytes(build_offset_index([(50, 5), (60, 15)], BASE))
    cache = ResourceCache(OS)
    index = OffsetIndex(path, BASE, cache=cache)
    assert cache.index_bytes == 0
    assert index.lookup(60) == (60, 15)
    assert cache.index_bytes == 16
    index.delete_if_exists()
    assert cache.index_bytes == 0


def test_entries_around_a_position_are_found_in_the_file(path: Path) -> None:
    path.write_bytes(build_offset_index([(50, 70), (60, 170)], BASE) + bytes(16))
    found = [OffsetIndex(path, BASE).around_position_on_disk(each) for each in (69, 70, 169, 170)]
    assert found == [
        ((45, 0), (50, 70)),
        ((50, 70), (60, 170)),
        ((50, 70), (60, 170)),
        ((60, 170), None),
    ]
    path.unlink()
    assert OffsetIndex(path, BASE).around_position_on_disk(70) == ((45, 0), None)
