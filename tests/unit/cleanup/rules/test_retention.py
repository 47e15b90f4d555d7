"""Expiry of segments: worked examples, and the scenarios of UnifiedLogTest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cleanup.rules.blockers import Code
from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.cleanup.rules.retention import RetentionPlan, plan_retention
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition

NOW_MS = 10_000
Seg = tuple[int, int, int]


def segment(base_offset: int, size_bytes: int, timestamp: int, modified_ms: int) -> SegmentView:
    return SegmentView(
        base_offset=base_offset,
        size_bytes=size_bytes,
        index_bytes=0,
        time_index_bytes=0,
        largest_record_timestamp=timestamp,
        first_batch_timestamp=timestamp,
        modified_ms=modified_ms,
    )


def view(
    segments: Sequence[Seg],
    *,
    end: int,
    high_watermark: int | None = None,
    log_start: int | None = None,
    modified_ms: int = NOW_MS,
    policy: str = "delete",
    retention_ms: int = -1,
    retention_bytes: int = -1,
) -> LogView:
    """Segments are (base offset, bytes, largest timestamp)."""
    watermark = end if high_watermark is None else high_watermark
    return LogView(
        topic_partition=TopicPartition("t", 0),
        segments=tuple(segment(*s, modified_ms) for s in segments),
        log_start_offset=segments[0][0] if log_start is None else log_start,
        log_end_offset=end,
        high_watermark=watermark,
        last_stable_offset=watermark,
        cleaner_checkpoint=None,
        config=LogConfig(
            cleanup_policy=frozenset(policy.split(",")) - {""},
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        ),
    )


def gone(plan: RetentionPlan) -> list[int]:
    return [expired.base_offset for expired in plan.expired]


def of_sizes(*sizes: int, retention_bytes: int) -> LogView:
    segments = [(10 * n, size, 0) for n, size in enumerate(sizes)]
    return view(segments, end=10 * len(sizes), retention_bytes=retention_bytes)


@pytest.mark.parametrize(
    ("retention_bytes", "expected", "log_start", "roll"),
    [
        (220, [0], 10, False),
        (350, [], 0, False),
        (0, [0, 10, 20, 30], 40, True),
        (349, [], 0, False),
        (-1, [], 0, False),
        (250, [0], 10, False),
        (150, [0, 10], 20, False),
    ],
)
def test_size_never_falls_below_retention_bytes(
    retention_bytes: int, expected: list[int], log_start: int, roll: bool
) -> None:
    plan = plan_retention(
        of_sizes(100, 100, 100, 50, retention_bytes=retention_bytes), now_ms=NOW_MS
    )
    assert (gone(plan), plan.log_start_offset, plan.roll) == (expected, log_start, roll)


def test_time_stops_at_the_first_segment_that_stays() -> None:
    segments = [(0, 10, 8000), (10, 10, 9000), (20, 10, 8500), (30, 10, 9500)]
    plan = plan_retention(view(segments, end=40, retention_ms=1000), now_ms=NOW_MS)
    assert gone(plan) == [0]
    assert plan.expired[0].text == (
        "log retention time 1000ms breach based on the largest record timestamp in the segment"
    )


def test_modification_time_stands_in_for_missing_timestamps() -> None:
    plan = plan_retention(
        view([(0, 10, -1), (10, 10, -1)], end=20, retention_ms=1000, modified_ms=8999),
        now_ms=NOW_MS,
    )
    assert gone(plan) == [0, 10]
    assert plan.expired[0].text.endswith("based on the last modified time of the segment")


def test_timestamp_of_zero_counts_as_a_timestamp() -> None:
    plan = plan_retention(
        view([(0, 10, 0), (10, 10, NOW_MS)], end=20, retention_ms=1000), now_ms=NOW_MS
    )
    assert gone(plan) == [0]


@pytest.mark.parametrize(
    ("high_watermark", "expected"),
    [(9, []), (10, [0]), (19, [0]), (20, [0, 10]), (24, [0, 10]), (25, [0, 10, 20])],
)
def test_segments_at_or_above_the_high_watermark_stay(
    high_watermark: int, expected: list[int]
) -> None:
    segments = [(0, 10, 0), (10, 10, 0), (20, 10, 0)]
    plan = plan_retention(
        view(segments, end=25, high_watermark=high_watermark, retention_ms=0), now_ms=NOW_MS
    )
    assert gone(plan) == expected
    assert plan.roll == (expected == [0, 10, 20])


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete", ""])
@pytest.mark.parametrize(
    ("log_start", "expected"), [(9, []), (10, [0]), (19, [0]), (20, [0, 10]), (25, [0, 10])]
)
def test_log_start_removes_whole_segments_below_it_under_any_policy(
    policy: str, log_start: int, expected: list[int]
) -> None:
    segments = [(0, 10, 0), (10, 10, 0), (20, 10, 0)]
    plan = plan_retention(view(segments, end=25, log_start=log_start, policy=policy), now_ms=NOW_MS)
    assert gone(plan) == expected
    assert plan.log_start_offset == log_start
    assert {e.rule for e in plan.expired} <= {"log start offset"}


@pytest.mark.parametrize("policy", ["compact", ""])
def test_size_and_time_need_the_delete_policy(policy: str) -> None:
    segments = [(0, 10, 0), (10, 10, 0)]
    limits = view(segments, end=20, policy=policy, retention_ms=0, retention_bytes=0)
    assert gone(plan_retention(limits, now_ms=NOW_MS)) == []


def test_all_expired_leaves_one_empty_segment_at_the_end() -> None:
    full = view([(0, 10, 0), (10, 10, 5)], end=20, retention_ms=0)
    plan = plan_retention(full, now_ms=NOW_MS)
    assert (gone(plan), plan.roll, plan.log_start_offset) == ([0, 10], True, 20)
    after = replace(
        full, segments=(segment(20, 0, -1, NOW_MS),), log_start_offset=plan.log_start_offset
    )
    assert gone(plan_retention(after, now_ms=NOW_MS)) == []


def test_empty_active_segment_is_never_returned() -> None:
    plan = plan_retention(
        view([(0, 10, 0), (20, 0, -1)], end=20, retention_ms=0, modified_ms=0), now_ms=NOW_MS
    )
    assert (gone(plan), plan.roll) == ([0], False)


def test_future_timestamp_keeps_a_segment_and_all_behind_it_with_a_warning() -> None:
    segments = [(0, 10, NOW_MS + 1), (10, 10, 0), (20, 10, 0)]
    plan = plan_retention(view(segments, end=30, retention_ms=10), now_ms=NOW_MS)
    assert gone(plan) == []
    assert "contains future timestamp(s), making it ineligible to be deleted" in plan.warnings[0]


def test_exactly_retention_ms_old_is_not_old_enough() -> None:
    at = view([(0, 10, 9000), (10, 10, NOW_MS)], end=20, retention_ms=1000)
    assert gone(plan_retention(at, now_ms=NOW_MS)) == []
    assert gone(plan_retention(at, now_ms=NOW_MS + 1)) == [0]


def test_rules_run_in_order_each_over_what_is_left() -> None:
    segments = [(0, 100, 9999), (10, 100, 9999), (20, 100, 0), (30, 100, 9999)]
    plan = plan_retention(
        view(segments, end=40, log_start=10, retention_bytes=200, retention_ms=5000),
        now_ms=NOW_MS,
    )
    assert [(e.base_offset, e.rule) for e in plan.expired] == [
        (0, "log start offset"),
        (10, "size"),
        (20, "time"),
    ]
    assert plan.expired[1].text == (
        "log retention size 200 breach. Log size after deletion will be 200"
    )


@pytest.mark.parametrize(("records", "left"), [(10, 2), (15, 3)])
def test_size_of_whole_segments_keeps_just_these(records: int, left: int) -> None:
    plan = plan_retention(of_sizes(50, 50, 50, retention_bytes=10 * records), now_ms=NOW_MS)
    assert 3 - len(plan.expired) == left


@given(
    segments=st.lists(
        st.tuples(st.integers(1, 50), st.integers(-1, 20_000)), min_size=1, max_size=8
    ),
    high_watermark=st.integers(0, 80),
    log_start=st.integers(0, 80),
    retention_bytes=st.integers(-1, 200),
    retention_ms=st.integers(-1, 15_000),
    policy=st.sampled_from(["delete", "compact", "compact,delete", ""]),
)
def test_plan_is_a_prefix_below_the_high_watermark_and_planning_again_adds_nothing(
    segments: list[tuple[int, int]],
    high_watermark: int,
    log_start: int,
    retention_bytes: int,
    retention_ms: int,
    policy: str,
) -> None:
    bases = [(10 * n, *s) for n, s in enumerate(segments)]
    end = 10 * len(bases)
    before = view(
        bases,
        end=end,
        high_watermark=min(end, high_watermark),
        log_start=min(end, log_start),
        policy=policy,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
    )
    plan = plan_retention(before, now_ms=NOW_MS)
    count = len(plan.expired)
    assert gone(plan) == [s[0] for s in bases[:count]]
    assert plan.roll == (count == len(bases))
    ends = [b[0] for b in bases[1:]] + [end]
    assert count == 0 or ends[count - 1] <= before.high_watermark
    rest = before.segments[count:] or (segment(end, 0, -1, NOW_MS),)
    again = replace(before, segments=rest, log_start_offset=plan.log_start_offset)
    if not (plan.roll or plan.expired):
        assert plan.log_start_offset == before.log_start_offset
    assert gone(plan_retention(again, now_ms=NOW_MS)) == []


# ---- cordwood.timestamp.future.policy

TEN_YEARS_MS = 10 * 365 * 86_400_000


def with_policy(log: LogView, policy: str) -> LogView:
    return replace(log, config=replace(log.config, cordwood_timestamp_future_policy=policy))


def test_a_record_of_the_future_pins_its_segment_and_all_behind_it_as_in_kafka() -> None:
    future = view(
        [(0, 10, NOW_MS + TEN_YEARS_MS), (1, 10, 5), (2, 10, 6)], end=3, retention_ms=1_000
    )
    plan = plan_retention(future, now_ms=NOW_MS + 1_001)
    assert gone(plan) == []
    assert len(plan.warnings) == 1
    assert plan.blockers[-1].code is Code.FUTURE_TIMESTAMP


@pytest.mark.parametrize(("after_ms", "expected"), [(1_000, []), (1_001, [0, 1])])
def test_with_append_time_a_record_of_the_future_goes_with_those_of_its_append(
    after_ms: int, expected: list[int]
) -> None:
    future = with_policy(
        view([(0, 10, NOW_MS + TEN_YEARS_MS), (1, 10, 5), (2, 0, -1)], end=2, retention_ms=1_000),
        "append-time",
    )
    plan = plan_retention(future, now_ms=NOW_MS + after_ms)
    assert gone(plan) == expected
    assert plan.warnings == ()
    if expected:
        assert plan.expired[0].text == (
            "log retention time 1000ms breach based on the time of the last append to the segment"
        )


@given(
    timestamps=st.lists(st.integers(-1, NOW_MS), min_size=1, max_size=6),
    retention_ms=st.integers(0, NOW_MS),
)
def test_append_time_changes_nothing_where_no_record_is_of_the_future(
    timestamps: list[int], retention_ms: int
) -> None:
    segments = [(n, 10, timestamp) for n, timestamp in enumerate(timestamps)]
    log = view(segments, end=len(segments), retention_ms=retention_ms)
    assert plan_retention(log, now_ms=NOW_MS) == plan_retention(
        with_policy(log, "append-time"), now_ms=NOW_MS
    )
