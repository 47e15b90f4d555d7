"""Scenarios of LogSegmentsTest."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_list import SegmentList
from support.segments import Segments, batch, put, set_last_modified

INT_MAX = (1 << 31) - 1


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    return Segments(directory=tmp_path)


def bases(found: tuple[LogSegment, ...]) -> list[int]:
    return [segment.base_offset for segment in found]


def listed(segments: Segments, *base_offsets: int) -> SegmentList:
    return SegmentList(segments.create(base) for base in base_offsets)


def test_an_empty_list_has_no_segments() -> None:
    empty = SegmentList()
    assert len(empty) == 0
    assert not empty
    assert empty.floor(1) is None
    assert empty.higher(1) is None
    assert empty.size_bytes == 0
    assert empty.values(0, 10) == ()


def test_segments_are_found_by_their_base_offset(segments: Segments) -> None:
    first, second = segments.create(40), segments.create(80)
    found = SegmentList([second, first])
    assert found.base_offsets == (40, 80)
    assert found.get(40) is first
    assert found.contains(80)
    assert not found.contains(41)
    assert found.get(41) is None
    assert list(found) == [first, second]
    assert found[1] is second


def test_a_segment_of_the_same_base_offset_replaces_the_old_one(segments: Segments) -> None:
    old, other, new = segments.create(40), segments.create(80), segments.create(40)
    before = SegmentList([old, other])
    after = before.with_added(new)
    assert len(after) == 2
    assert after.get(40) is new
    assert before.get(40) is old, "a list never changes"
    assert after.contains_this(new)
    assert not after.contains_this(old)


def test_removing_a_segment_leaves_another_with_the_same_base_offset(segments: Segments) -> None:
    old, new = segments.create(40), segments.create(40)
    after = SegmentList([new]).without([old])
    assert after.get(40) is new
    assert len(after.without([new])) == 0


def test_first_and_active_are_the_ends(segments: Segments) -> None:
    found = listed(segments, 1, 2, 3, 4)
    assert found.first.base_offset == 1
    assert found.active.base_offset == 4


def test_values_from_2_to_1_are_illegal(segments: Segments) -> None:
    with pytest.raises(ValueError, match="Invalid log segment range"):
        listed(segments, 1, 2, 3, 4).values(2, 1)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (1, 1, []),
        (1, 2, [1]),
        (1, 3, [1, 2]),
        (1, 4, [1, 2, 3]),
        (2, 4, [2, 3]),
        (3, 4, [3]),
        (4, 4, []),
        (4, 5, [4]),
    ],
)
def test_values_between_offsets(
    segments: Segments, start: int, end: int, expected: list[int]
) -> None:
    assert bases(listed(segments, 1, 2, 3, 4).values(start, end)) == expected


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(10, 10, []), (0, 21, [0, 10, 20]), (1, 5, [0]), (13, 17, [10])],
)
def test_values_include_the_segment_that_holds_the_start(
    segments: Segments, start: int, end: int, expected: list[int]
) -> None:
    assert bases(listed(segments, 0, 10, 20).values(start, end)) == expected


def test_values_from_below_the_first_segment_begin_with_it(segments: Segments) -> None:
    assert bases(listed(segments, 5, 10).values(0, 7)) == [5]


def test_non_active_segments_from_an_offset(segments: Segments) -> None:
    found = listed(segments, 1, 2, 3, 4)
    assert bases(found.non_active_from(2)) == [2, 3]
    assert bases(found.non_active_from(4)) == []
    assert bases(found.non_active_from(9)) == []


def test_floor_lower_and_higher(segments: Segments) -> None:
    found = listed(segments, 1, 3, 5, 7)

    def base(segment: LogSegment | None) -> int | None:
        return None if segment is None else segment.base_offset

    assert [base(found.floor(o)) for o in (0, 2, 3, 9)] == [None, 1, 3, 7]
    assert [base(found.lower(o)) for o in (1, 3, 4)] == [None, 1, 3]
    assert [base(found.higher(o)) for o in (0, 4, 5, 7)] == [1, 5, 7, None]


def test_the_size_of_a_large_log_takes_64_bits(segments: Segments) -> None:
    large = [segments.create(0), segments.create(1)]
    for segment in large:
        segment.size_bytes = INT_MAX
    assert SegmentList(large[:1]).size_bytes == INT_MAX
    assert SegmentList(large).size_bytes == 2 * INT_MAX


def test_a_renamed_directory_is_taken_over_by_all_files_of_a_segment(
    segments: Segments, tmp_path: Path
) -> None:
    segment = segments.create(1)
    target = tmp_path / "elsewhere"
    segment.move_to(target)
    assert segment.directory == target
    assert segment.path.parent == target
    assert segment.offset_index.path.parent == target
    assert segment.time_index.path.parent == target
    assert segment.indexes.transactions.path.parent == target


def stamped(segments: Segments, *timestamps: int) -> SegmentList:
    """Segments of one record each, with these timestamps."""
    made = []
    for base, timestamp in enumerate(timestamps):
        segment = segments.create(base)
        put(segment, batch(base, "a", timestamps=timestamp))
        made.append(segment)
    return SegmentList(made)


def reaching(found: SegmentList, timestamp: int, rebuilds: int = 0) -> int | None:
    segment = found.first_reaching(timestamp, rebuilds=rebuilds)
    return None if segment is None else segment.base_offset


def test_the_first_segment_that_reaches_a_timestamp_need_not_be_the_first_above_it(
    segments: Segments,
) -> None:
    times = (10, 40, 20, 30, 50, 45)
    found = stamped(segments, *times)
    wanted = {t: next((b for b, own in enumerate(times) if own >= t), None) for t in range(60)}
    # In whatever order they are asked for, the first time or again.
    for order in (range(60), range(59, -1, -1), [35, 5, 55, 45, 41, 50, 0]):
        asked = SegmentList(found)
        assert {t: reaching(asked, t) for t in order} == {t: wanted[t] for t in order}
        assert {t: reaching(asked, t) for t in order} == {t: wanted[t] for t in order}


def test_what_the_active_segment_reaches_is_not_remembered(segments: Segments) -> None:
    found = stamped(segments, 10, 20)
    assert reaching(found, 30) is None
    put(found.active, batch(2, "b", timestamps=30))
    assert reaching(found, 30) == 1
    third = segments.create(3)
    after = found.with_added(third)
    put(third, batch(3, "c", timestamps=40))
    assert [reaching(after, t) for t in (10, 30, 31, 40, 41)] == [0, 1, 3, 3, None]


def test_a_list_without_its_oldest_segments_finds_those_that_are_left(segments: Segments) -> None:
    found = stamped(segments, 10, 20, 30)
    assert reaching(found, 25) == 2
    assert reaching(found.without([found.first]), 5) == 1


def test_a_segment_without_timestamps_reaches_as_far_as_its_file_is_old(
    segments: Segments,
) -> None:
    found = stamped(segments, 10, -1, 30, 40)
    set_last_modified(found[1], 35)
    assert [reaching(found, t) for t in (10, 11, 35, 36)] == [0, 1, 1, 3]
    set_last_modified(found[1], 5)
    assert [reaching(found, t) for t in (10, 11, 35, 36)] == [0, 2, 3, 3]


def test_segments_are_asked_again_once_an_index_was_made_anew(segments: Segments) -> None:
    found = stamped(segments, 10, 20, 30)
    assert reaching(found, 15) == 1
    put(found.first, batch(1, "late", timestamps=15))
    assert reaching(found, 15) == 1
    assert reaching(found, 15, rebuilds=1) == 0
