"""Forecast of a segment's removal: its moments are those at which the planner takes it."""

from __future__ import annotations

import random

import pytest

from cordwood.cleanup.rules.blockers import Code
from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.cleanup.rules.retention import plan_retention
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.explain.segment_fate import SegmentFate, segment_fates

NOW_MS = 1_000_000
Seg = tuple[int, int, int]


def view(
    segments: list[Seg],
    *,
    end: int,
    policy: str = "delete",
    retention_ms: int = -1,
    retention_bytes: int = -1,
    high_watermark: int | None = None,
    log_start: int | None = None,
) -> LogView:
    """Segments are (base offset, bytes, largest timestamp; -1 for none)."""
    watermark = end if high_watermark is None else high_watermark
    return LogView(
        topic_partition=TopicPartition("t", 0),
        segments=tuple(
            SegmentView(
                base_offset=base,
                size_bytes=size,
                index_bytes=0,
                time_index_bytes=0,
                largest_record_timestamp=timestamp,
                first_batch_timestamp=timestamp,
                modified_ms=NOW_MS - 500,
            )
            for base, size, timestamp in segments
        ),
        log_start_offset=segments[0][0] if log_start is None else log_start,
        log_end_offset=end,
        high_watermark=watermark,
        last_stable_offset=watermark,
        cleaner_checkpoint=None,
        config=LogConfig(
            cleanup_policy=frozenset(policy.split(",")),
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        ),
    )


def fates(log: LogView) -> list[SegmentFate]:
    return segment_fates(log, plan_retention(log, now_ms=NOW_MS), now_ms=NOW_MS)


def codes(fate: SegmentFate) -> list[Code]:
    return [each.code for each in fate.blockers]


def test_a_young_segment_goes_when_its_newest_record_is_too_old() -> None:
    log = view([(0, 10, NOW_MS - 100), (10, 10, NOW_MS - 50)], end=20, retention_ms=1000)
    first, second = fates(log)
    assert codes(first) == [Code.TIME]
    assert (first.goes_ms, second.goes_ms) == (NOW_MS + 901, NOW_MS + 951)
    assert first.blockers[0].until_ms == NOW_MS + 901


def test_a_future_timestamp_holds_its_segment_and_those_behind_it() -> None:
    log = view(
        [(0, 10, NOW_MS + 5000), (10, 10, NOW_MS - 2000), (20, 10, NOW_MS - 1500)],
        end=30,
        retention_ms=1000,
    )
    first, second, third = fates(log)
    assert codes(first) == [Code.FUTURE_TIMESTAMP]
    assert codes(second) == codes(third) == [Code.OLDER_SEGMENT]
    assert second.blockers[0].offset == 0
    assert {each.goes_ms for each in (first, second, third)} == {NOW_MS + 6001}


def test_the_high_watermark_holds_everything_from_its_segment_on() -> None:
    log = view([(0, 10, 1), (10, 10, 2), (20, 10, 3)], end=30, retention_ms=1, high_watermark=15)
    first, second, third = fates(log)
    assert first.goes_now
    assert codes(second) == codes(third) == [Code.HIGH_WATERMARK]
    assert second.goes_ms is None


def test_size_says_how_many_bytes_are_missing() -> None:
    log = view([(0, 500, 1), (10, 500, 2), (20, 500, 3)], end=30, retention_bytes=1500)
    first, *_ = fates(log)
    assert codes(first) == [Code.SIZE]
    assert "it goes when 500 more are appended" in first.blockers[0].text
    assert first.goes_ms is None


@pytest.mark.parametrize(("policy", "code"), [("compact", Code.POLICY), ("delete", Code.NO_LIMIT)])
def test_without_a_limit_nothing_goes(policy: str, code: Code) -> None:
    (fate,) = fates(view([(0, 10, 1)], end=10, policy=policy))
    assert codes(fate) == [code]
    assert fate.goes_ms is None


def test_an_empty_active_segment_stays() -> None:
    first, second = fates(view([(0, 10, 1), (10, 0, -1)], end=10, retention_ms=1))
    assert first.goes_now
    assert codes(second) == [Code.EMPTY]


def test_what_goes_now_names_its_rule() -> None:
    log = view([(0, 10, 1), (10, 10, NOW_MS)], end=20, retention_ms=1000, log_start=12)
    first, _ = fates(log)
    assert (first.rule, first.goes_ms) == ("log start offset", NOW_MS)


@pytest.mark.parametrize("seed", range(200))
def test_each_moment_is_the_first_at_which_the_planner_takes_the_segment(seed: int) -> None:
    rng = random.Random(seed)  # nothing here is secret
    count = rng.randint(1, 8)
    log = view(
        [
            (10 * n, rng.choice((0, 10, 100)), rng.choice((-1, NOW_MS + rng.randint(-900, 900))))
            for n in range(count)
        ],
        end=10 * count,
        policy=rng.choice(("delete", "compact", "compact,delete")),
        retention_ms=rng.choice((-1, 0, 100, 1000)),
        retention_bytes=rng.choice((-1, 0, 150, 10_000)),
        high_watermark=rng.choice((None, rng.randint(0, 10 * count))),
        log_start=rng.choice((None, rng.randint(0, 10 * count))),
    )

    def taken(moment: int) -> int:
        return len(plan_retention(log, now_ms=moment).expired)

    for number, fate in enumerate(fates(log)):
        if fate.goes_now:
            assert taken(NOW_MS) > number
        elif fate.goes_ms is None:
            assert taken(NOW_MS + 10**9) <= number
            assert fate.blockers
        else:
            assert taken(fate.goes_ms) > number
            assert taken(fate.goes_ms - 1) <= number
            assert fate.blockers
