"""Effect of a cleaning on one log, by the estimate of a dry run."""

from __future__ import annotations

from cordwood.cleanup.plan.check_plan import CheckPlan
from cordwood.cleanup.plan.compaction import plan_compaction
from cordwood.cleanup.plan.report import PartitionReport
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.rules.log_view import LogView
from cordwood.queries.whatif.effects import How, Outcome, bytes_to_read


def estimated_outcome(
    report: PartitionReport, view: LogView, check: CheckPlan, *, now_ms: int
) -> Outcome | None:
    """The outcome of retention, which is planned, and of the compaction after it.

    Segments are counted as if something was left of each group, and retention after the compaction
    is not looked at.

    Args:
        report: of a dry run on the log, with an estimate.
        view: the log with its settings.
        check: what retention does with it.
        now_ms: the time of the cleaning.

    Returns:
        None if the report has no estimate.
    """
    size, estimate = report.after, report.estimate
    if size is None or estimate is None:
        return None
    after = check.after
    plan = plan_compaction(after, plan_cleanable(after, now_ms=now_ms))
    segments = size.segments - sum(len(group) - 1 for group in plan.groups)
    left = size.bytes - estimate.bytes_freed
    return Outcome(
        how=How.ESTIMATED,
        segments=segments,
        bytes=left,
        bytes_freed=view.size_bytes - left,
        segments_gone=len(view.segments) - segments,
        records_discarded=estimate.records_discarded,
        tombstones_discarded=estimate.tombstones_discarded,
        offsets_gone=after.log_start_offset - view.log_start_offset,
        log_start_offset=after.log_start_offset,
        keys=estimate.keys,
        bytes_read=bytes_to_read(check, now_ms=now_ms),
        bytes_error=estimate.error,
    )
