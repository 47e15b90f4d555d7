"""Grouping of segments: the grouping tests of LogCleanerTest."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.plan.compaction import group_segments, plan_compaction
from cordwood.cleanup.rules.cleanable import Cleanable
from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition

INT_MAX = (1 << 31) - 1


def segment(base_offset: int, size_bytes: int = 100, index_bytes: int = 8) -> SegmentView:
    return SegmentView(
        base_offset=base_offset,
        size_bytes=size_bytes,
        index_bytes=index_bytes,
        time_index_bytes=12,
        largest_record_timestamp=1,
        first_batch_timestamp=1,
        modified_ms=7_000,
    )


def log_of(
    segments: list[SegmentView], *, segment_bytes: int = 1 << 30, index_bytes: int = 1 << 20
) -> LogView:
    end = segments[-1].base_offset + 10
    return LogView(
        topic_partition=TopicPartition("t", 0),
        segments=(*segments, segment(end)),
        log_start_offset=0,
        log_end_offset=end,
        high_watermark=end,
        last_stable_offset=end,
        cleaner_checkpoint=None,
        config=LogConfig(
            segment_bytes=segment_bytes, segment_index_bytes=index_bytes, delete_retention_ms=500
        ),
    )


def groups_of(log: LogView, end: int | None = None) -> list[list[int]]:
    segments = list(log.segments[:-1])
    found = group_segments(log, segments, log.active.base_offset if end is None else end)
    return [[s.base_offset for s in group] for group in found]


TEN = [segment(10 * n) for n in range(10)]
ALL = [10 * n for n in range(10)]


def test_no_limit_makes_one_group() -> None:
    assert groups_of(log_of(TEN)) == [ALL]


def test_tiny_segment_bytes_makes_a_group_of_each() -> None:
    assert groups_of(log_of(TEN, segment_bytes=1)) == [[base] for base in ALL]


def test_tiny_index_bytes_makes_a_group_of_each() -> None:
    assert groups_of(log_of(TEN, index_bytes=1)) == [[base] for base in ALL]


def test_room_for_three_makes_groups_of_three() -> None:
    expected = [ALL[0:3], ALL[3:6], ALL[6:9], ALL[9:]]
    assert groups_of(log_of(TEN, segment_bytes=300)) == expected
    assert groups_of(log_of(TEN, segment_bytes=301)) == expected
    assert groups_of(log_of(TEN, segment_bytes=399)) == expected
    assert groups_of(log_of(TEN, index_bytes=36)) == expected


def test_a_group_has_no_byte_more_than_segment_bytes() -> None:
    assert groups_of(log_of(TEN, segment_bytes=299)) == [ALL[n : n + 2] for n in range(0, 10, 2)]


def test_time_index_limits_a_group_as_the_offset_index_does() -> None:
    assert groups_of(log_of(TEN, index_bytes=24)) == [ALL[n : n + 2] for n in range(0, 10, 2)]


def test_offsets_of_a_group_stay_within_31_bits_of_its_base() -> None:
    fits = [segment(0), segment(INT_MAX - 10)]
    log = log_of(fits)
    assert groups_of(log, end=INT_MAX + 1) == [[0, INT_MAX - 10]]
    assert groups_of(log, end=INT_MAX + 2) == [[0], [INT_MAX - 10]]


def test_base_of_the_next_segment_says_where_one_ends() -> None:
    segments = [segment(0), segment(100), segment(INT_MAX + 2), segment(INT_MAX + 9)]
    # The second might reach INT_MAX + 1, which is out of reach of offset 0.
    assert groups_of(log_of(segments)) == [[0], [100, INT_MAX + 2, INT_MAX + 9]]


def test_empty_segment_joins_its_neighbours_whatever_its_range() -> None:
    segments = [segment(0), segment(10, size_bytes=0, index_bytes=0), segment(INT_MAX + 50)]
    assert groups_of(log_of(segments)) == [[0, 10], [INT_MAX + 50]]


def test_segment_larger_than_the_limit_is_a_group_of_its_own() -> None:
    segments = [segment(0), segment(10, size_bytes=500), segment(20), segment(30)]
    assert groups_of(log_of(segments, segment_bytes=200)) == [[0], [10], [20, 30]]


def test_plan_covers_the_clean_section_and_leaves_out_what_is_uncleanable() -> None:
    cleanable = Cleanable(
        first_dirty=30,
        first_uncleanable=50,
        clean_bytes=0,
        cleanable_bytes=0,
        ratio=1,
        delay_ms=0,
        blocker=None,
    )
    plan = plan_compaction(log_of(TEN), cleanable)
    assert plan.groups == ((0, 10, 20, 30, 40),)
    assert plan.legacy_horizon_ms == 6_500
    assert plan_compaction(log_of(TEN), replace(cleanable, first_dirty=0)).legacy_horizon_ms == 0


@pytest.mark.parametrize(("level", "end"), [(0, 50), (30, 50), (31, 70), (33, 70)])
def test_the_header_that_continues_offsets_is_the_one_that_kafka_of_that_level_keeps(
    level: int, end: int
) -> None:
    cleanable = Cleanable(
        first_dirty=30,
        first_uncleanable=50,
        clean_bytes=0,
        cleanable_bytes=0,
        ratio=1,
        delay_ms=0,
        blocker=None,
    )
    log = replace(log_of(TEN), high_watermark=70, metadata_version=level)
    assert plan_compaction(log, cleanable).retained_end == end


@given(
    sizes=st.lists(st.tuples(st.integers(0, 50), st.integers(1, 1 << 30)), min_size=1, max_size=20),
    segment_bytes=st.integers(1, 200),
)
def test_groups_are_consecutive_and_within_the_limits(
    sizes: list[tuple[int, int]], segment_bytes: int
) -> None:
    base, segments = 0, []
    for size, offsets in sizes:
        segments.append(segment(base, size))
        base += offsets
    groups = groups_of(log_of(segments, segment_bytes=segment_bytes), end=base)
    assert [b for group in groups for b in group] == [s.base_offset for s in segments]
    size_of = {s.base_offset: s.size_bytes for s in segments}
    follows = {
        s.base_offset: t
        for s, t in zip(segments, [*[s.base_offset for s in segments[1:]], base], strict=True)
    }
    for group in groups:
        if len(group) > 1:
            assert sum(size_of[b] for b in group) <= segment_bytes
            last = [b for b in group if size_of[b]][-1:]
            assert all(follows[b] - 1 - group[0] <= INT_MAX for b in last if b != group[0])
