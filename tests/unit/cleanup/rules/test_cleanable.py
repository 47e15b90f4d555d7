"""The dirty section of a compacted log: the scenarios of LogCleanerManagerTest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from cordwood.cleanup.rules.cleanable import Cleanable, plan_cleanable
from cordwood.cleanup.rules.due import NOTHING_DUE, DueMoments
from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX
from cordwood.model.topic_partition import TopicPartition

HOUR_MS = 3_600_000
NOW_MS = 1_000 * HOUR_MS
Seg = tuple[int, int, int]


def view(
    segments: Sequence[Seg],
    *,
    end: int,
    checkpoint: int | None = None,
    log_start: int | None = None,
    high_watermark: int | None = None,
    stable: int | None = None,
    policy: str = "compact",
    ratio: float = 0.5,
    min_lag_ms: int = 0,
    max_lag_ms: int = LONG_MAX,
    due: DueMoments = NOTHING_DUE,
) -> LogView:
    """Segments are (base offset, bytes, timestamp of every record)."""
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
                modified_ms=NOW_MS - HOUR_MS // 2,
                due=due,
            )
            for base, size, timestamp in segments
        ),
        log_start_offset=segments[0][0] if log_start is None else log_start,
        log_end_offset=end,
        high_watermark=watermark,
        last_stable_offset=watermark if stable is None else stable,
        cleaner_checkpoint=checkpoint,
        config=LogConfig(
            cleanup_policy=frozenset(policy.split(",")),
            min_cleanable_dirty_ratio=ratio,
            min_compaction_lag_ms=min_lag_ms,
            max_compaction_lag_ms=max_lag_ms,
        ),
    )


def plan(log: LogView, *, force: bool = False) -> Cleanable:
    return plan_cleanable(log, now_ms=NOW_MS, force=force)


def four(**options: object) -> LogView:
    """Segments at 0, 10, 20 and the active one at 30, of 100 bytes each."""
    return view([(n, 100, 1) for n in (0, 10, 20, 30)], end=40, **options)  # type: ignore[arg-type]


def section(cleanable: Cleanable) -> tuple[int, int]:
    return cleanable.first_dirty, cleanable.first_uncleanable


def test_without_a_checkpoint_all_below_the_active_segment_is_dirty() -> None:
    cleanable = plan(four())
    assert section(cleanable) == (0, 30)
    assert (cleanable.clean_bytes, cleanable.cleanable_bytes, cleanable.ratio) == (0, 300, 1.0)
    assert cleanable.reason is None
    assert not cleanable.reset_checkpoint


def test_active_segment_counts_neither_as_clean_nor_as_dirty() -> None:
    cleanable = plan(four(checkpoint=20))
    assert (cleanable.clean_bytes, cleanable.cleanable_bytes) == (200, 100)
    assert cleanable.ratio == pytest.approx(1 / 3)


def test_checkpoint_beyond_the_log_end_is_reset_to_the_log_start() -> None:
    cleanable = plan(four(checkpoint=200))
    assert cleanable.first_dirty == 0
    assert cleanable.reset_checkpoint
    assert "is 200, which is larger than the log end offset 40" in cleanable.warnings[0]


def test_checkpoint_at_the_log_end_is_kept() -> None:
    cleanable = plan(four(checkpoint=40))
    assert (cleanable.first_dirty, cleanable.reset_checkpoint) == (40, False)
    assert cleanable.reason == "all but the active segment is clean"


def test_checkpoint_below_the_log_start_is_reset_with_a_warning() -> None:
    cleanable = plan(four(checkpoint=0, log_start=10))
    assert (cleanable.first_dirty, cleanable.reset_checkpoint) == (10, True)
    assert cleanable.warnings == (
        "Resetting first dirty offset of t-0 to log start offset 10 since the checkpointed "
        "offset 0 is invalid.",
    )


def test_checkpoint_below_the_log_start_is_reset_silently_under_compact_and_delete() -> None:
    cleanable = plan(four(checkpoint=0, log_start=10, policy="compact,delete"))
    assert (cleanable.first_dirty, cleanable.reset_checkpoint) == (10, True)
    assert cleanable.warnings == ()


def test_checkpoint_above_the_log_start_is_kept() -> None:
    cleanable = plan(four(checkpoint=15, log_start=10))
    assert (cleanable.first_dirty, cleanable.reset_checkpoint) == (15, False)


def test_only_an_active_segment_leaves_nothing_to_clean() -> None:
    cleanable = plan(view([(0, 100, 1)], end=10, log_start=2))
    assert cleanable.reason == "all but the active segment is clean"
    assert cleanable.cleanable_bytes == 0


def test_dirty_offset_above_the_active_base_leaves_nothing_to_clean() -> None:
    assert plan(view([(0, 100, 1)], end=10, checkpoint=3)).reason is not None


@pytest.mark.parametrize(("watermark", "expected"), [(20, 20), (25, 20), (29, 20), (30, 30)])
def test_nothing_above_the_last_stable_offset_is_cleaned(watermark: int, expected: int) -> None:
    assert plan(four(high_watermark=watermark)).first_uncleanable == expected


def test_open_transaction_holds_the_section_back_and_is_named() -> None:
    cleanable = plan(four(stable=3))
    assert cleanable.cleanable_bytes == 0
    assert cleanable.reason is not None
    assert "the last stable offset is 3" in cleanable.reason
    assert "open transaction" in cleanable.reason


def test_segment_within_the_min_compaction_lag_ends_the_section() -> None:
    young = NOW_MS - HOUR_MS + 1
    log = view(
        [(0, 100, 1), (10, 100, 1), (20, 100, young), (30, 100, 1), (40, 100, young)],
        end=50,
        min_lag_ms=HOUR_MS,
    )
    assert plan(log).first_uncleanable == 20


def test_record_exactly_as_old_as_the_lag_may_be_cleaned() -> None:
    log = view([(0, 100, NOW_MS - HOUR_MS), (10, 100, NOW_MS)], end=20, min_lag_ms=HOUR_MS, ratio=0)
    assert section(plan(log)) == (0, 10)


def test_modification_time_is_the_age_of_segments_without_timestamps() -> None:
    log = view([(0, 100, -1), (10, 100, -1)], end=20, min_lag_ms=HOUR_MS)
    cleanable = plan(log)
    assert cleanable.reason is not None
    assert "min.compaction.lag.ms: the segment at 0 holds" in cleanable.reason


def test_force_overrules_the_dirty_ratio_but_no_lag() -> None:
    clean = four(checkpoint=20)
    assert plan(clean).reason is not None
    assert plan(clean, force=True).reason is None
    young = view([(0, 100, NOW_MS), (10, 100, NOW_MS)], end=20, min_lag_ms=HOUR_MS)
    assert plan(young, force=True).reason is not None


def test_dirty_ratio_must_be_exceeded() -> None:
    half = view([(0, 100, 1), (10, 100, 1), (20, 9, 1)], end=30, checkpoint=10)
    more = view([(0, 100, 1), (10, 101, 1), (20, 9, 1)], end=30, checkpoint=10)
    assert plan(half).reason == ("its dirty ratio 0.5 is not above min.cleanable.dirty.ratio 0.5")
    assert plan(more).reason is None


def test_ratio_of_one_is_never_exceeded() -> None:
    assert plan(four(ratio=1.0)).reason is not None


def test_max_compaction_lag_overrules_the_ratio() -> None:
    late = view(
        [(0, 100, 1), (10, 100, NOW_MS - 6 * HOUR_MS - 1), (20, 9, NOW_MS)],
        end=30,
        checkpoint=10,
        ratio=1.0,
        max_lag_ms=6 * HOUR_MS,
    )
    assert (plan(late).delay_ms, plan(late).reason) == (1, None)
    in_time = view(
        [(0, 100, 1), (10, 100, NOW_MS - 6 * HOUR_MS), (20, 9, NOW_MS)],
        end=30,
        checkpoint=10,
        ratio=1.0,
        max_lag_ms=6 * HOUR_MS,
    )
    assert (plan(in_time).delay_ms, plan(in_time).reason is None) == (0, False)


def test_dirty_offset_inside_a_segment_counts_that_segment_as_dirty_and_not_as_clean() -> None:
    cleanable = plan(four(checkpoint=15))
    assert (cleanable.clean_bytes, cleanable.cleanable_bytes) == (200, 200)
    assert section(cleanable) == (15, 30)


@pytest.mark.parametrize(("stable", "due"), [(9, ()), (10, (0,)), (25, (0, 10)), (30, (0, 10, 20))])
def test_what_is_due_is_cleaned_below_the_last_stable_offset_alone(
    stable: int, due: tuple[int, ...]
) -> None:
    log = four(checkpoint=30, stable=stable, due=DueMoments(tombstone_ms=NOW_MS))
    config = replace(log.config, cordwood_tombstone_cleanup=True)
    assert plan(replace(log, config=config)).due == due
