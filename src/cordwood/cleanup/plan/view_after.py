"""The view of a log after a planned change, as it would be captured: pure functions."""

from __future__ import annotations

from dataclasses import replace

from cordwood.cleanup.rules.log_view import CleanedSegment, LogView, SegmentView
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.configs.value import LONG_MAX


def after_retention(view: LogView, plan: RetentionPlan, *, now_ms: int) -> LogView:
    """The log without the segments that a plan for it removes."""
    rest: tuple[CleanedSegment, ...] = view.segments[len(plan.expired) :]
    if plan.roll:
        rest = (empty_segment(view.log_end_offset, now_ms=now_ms),)
    return with_segments(view, rest, log_start_offset=plan.log_start_offset)


def after_roll(view: LogView, *, now_ms: int) -> LogView:
    """The log with a new, empty active segment at its end."""
    active = empty_segment(view.log_end_offset, now_ms=now_ms)
    return with_segments(view, (*view.segments, active))


def with_segments(
    view: LogView,
    segments: tuple[CleanedSegment, ...],
    *,
    log_start_offset: int | None = None,
) -> LogView:
    """The log with other segments; no transaction is open below the log start offset."""
    start = view.log_start_offset if log_start_offset is None else log_start_offset
    return replace(
        view,
        segments=segments,
        log_start_offset=start,
        last_stable_offset=max(view.last_stable_offset, start),
    )


def empty_segment(base_offset: int, *, now_ms: int) -> SegmentView:
    """A new active segment."""
    return SegmentView(
        base_offset=base_offset,
        size_bytes=0,
        index_bytes=0,
        time_index_bytes=0,
        largest_record_timestamp=-1,
        first_batch_timestamp=LONG_MAX,
        modified_ms=now_ms,
    )
