"""Forecast of a log's compaction: its moment is the first at which the planner finds it due."""

from __future__ import annotations

import random

import pytest

from cordwood.cleanup.rules.blockers import Code
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.explain.compaction_forecast import compaction_forecast, covered_ms

NOW_MS = 1_000_000


def view(
    timestamps: list[int],
    *,
    checkpoint: int | None = None,
    stable: int | None = None,
    policy: str = "compact",
    ratio: float = 0.5,
    min_lag_ms: int = 0,
    max_lag_ms: int = LONG_MAX,
) -> LogView:
    """A segment of ten offsets and 100 bytes for each timestamp; the last is active."""
    end = 10 * len(timestamps)
    return LogView(
        topic_partition=TopicPartition("t", 0),
        segments=tuple(
            SegmentView(
                base_offset=10 * number,
                size_bytes=100,
                index_bytes=0,
                time_index_bytes=0,
                largest_record_timestamp=timestamp,
                first_batch_timestamp=timestamp,
                modified_ms=timestamp,
            )
            for number, timestamp in enumerate(timestamps)
        ),
        log_start_offset=0,
        log_end_offset=end,
        high_watermark=end,
        last_stable_offset=end if stable is None else stable,
        cleaner_checkpoint=checkpoint,
        config=LogConfig(
            cleanup_policy=frozenset(policy.split(",")),
            min_cleanable_dirty_ratio=ratio,
            min_compaction_lag_ms=min_lag_ms,
            max_compaction_lag_ms=max_lag_ms,
        ),
    )


def test_a_log_that_is_not_compacted_has_none() -> None:
    assert compaction_forecast(view([1, 2], policy="delete"), now_ms=NOW_MS) is None


def test_a_log_above_its_ratio_is_due_now() -> None:
    forecast = compaction_forecast(view([1, 2]), now_ms=NOW_MS)
    assert forecast is not None
    assert forecast.due_ms == NOW_MS


def test_the_maximum_lag_makes_a_log_due_below_its_ratio() -> None:
    log = view([1, NOW_MS - 50, NOW_MS], checkpoint=10, ratio=0.9, max_lag_ms=1000)
    forecast = compaction_forecast(log, now_ms=NOW_MS)
    assert forecast is not None
    assert forecast.cleanable.blocker is not None
    assert forecast.cleanable.blocker.code is Code.DIRTY_RATIO
    assert forecast.due_ms == NOW_MS + 951


def test_the_minimum_lag_of_a_segment_ends() -> None:
    log = view([NOW_MS - 50, NOW_MS - 20, NOW_MS], min_lag_ms=1000)
    forecast = compaction_forecast(log, now_ms=NOW_MS)
    assert forecast is not None
    assert forecast.cleanable.blocker is not None
    assert forecast.cleanable.blocker.code is Code.MIN_LAG
    assert forecast.due_ms == forecast.cleanable.blocker.until_ms == NOW_MS + 950
    assert covered_ms(log, forecast, 5) == NOW_MS + 950
    assert covered_ms(log, forecast, 15) is None  # only a maximum lag limits the one after


def test_an_open_transaction_has_no_moment() -> None:
    forecast = compaction_forecast(view([1, 2, 3], stable=3), now_ms=NOW_MS)
    assert forecast is not None
    assert forecast.cleanable.blocker is not None
    assert forecast.cleanable.blocker.code is Code.LAST_STABLE_OFFSET
    assert forecast.due_ms is None


@pytest.mark.parametrize("seed", range(200))
def test_the_moment_is_the_first_at_which_the_planner_takes_the_log(seed: int) -> None:
    rng = random.Random(seed)  # nothing here is secret
    count = rng.randint(1, 6)
    log = view(
        [NOW_MS - rng.randint(-300, 900) for _ in range(count)],
        checkpoint=rng.choice((None, *range(0, 10 * count, 5))),
        stable=rng.choice((None, rng.randint(0, 10 * count))),
        ratio=rng.choice((0.0, 0.3, 0.5, 0.9, 1.0)),
        min_lag_ms=rng.choice((0, 100, 700)),
        max_lag_ms=rng.choice((LONG_MAX, 800, 1500)),
    )
    forecast = compaction_forecast(log, now_ms=NOW_MS)
    assert forecast is not None

    def is_due(moment: int) -> bool:
        return plan_cleanable(log, now_ms=moment).blocker is None

    if forecast.due_ms is None:
        assert not any(is_due(NOW_MS + ahead) for ahead in range(0, 4000, 50))
    else:
        assert is_due(forecast.due_ms)
        assert forecast.due_ms == NOW_MS or not is_due(forecast.due_ms - 1)
        first = next(m for m in range(NOW_MS, NOW_MS + 4000) if is_due(m))
        assert first == forecast.due_ms
