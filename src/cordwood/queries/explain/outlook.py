"""Sums over explained logs: bytes that retention removes, when, and why the rest stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from cordwood.cleanup.plan.check_plan import DAY_MS
from cordwood.cleanup.rules.blockers import Code
from cordwood.queries.explain.answer import (
    ExplainedLog,
    ExplainedSegment,
    Outlook,
    Section,
    SegmentsByReason,
    SegmentSum,
    When,
)

#: What retention waits for, whatever compaction does.
_RETENTION: Final = frozenset(
    {Code.TIME, Code.SIZE, Code.OLDER_SEGMENT, Code.GROUP_GUARD, Code.FUTURE_TIMESTAMP}
)
COMPACTION_DUE: Final = "compaction due"


def outlook(logs: Iterable[ExplainedLog], *, now_ms: int) -> Outlook:
    """The outlook of logs."""
    count = 0
    segments: Counter[tuple[When, str]] = Counter()
    size_bytes: Counter[tuple[When, str]] = Counter()
    for log in logs:
        count += 1
        is_due = log.compaction is not None and log.compaction.due
        for segment in log.segments:
            when = _when(segment, now_ms)
            key = when, _reason(segment, when, is_compaction_due=is_due)
            segments[key] += 1
            size_bytes[key] += segment.size_bytes
    parts = {when: _part(when, segments, size_bytes) for when in When}
    return Outlook(
        partitions=count,
        segments=segments.total(),
        bytes=size_bytes.total(),
        now=parts[When.NOW],
        next_24h=parts[When.DAY],
        later=parts[When.LATER],
        stays=parts[When.STAYS],
    )


def _part(
    when: When, segments: Counter[tuple[When, str]], size_bytes: Counter[tuple[When, str]]
) -> SegmentsByReason:
    reasons = {
        key[1]: SegmentSum(segments[key], size_bytes[key]) for key in segments if key[0] is when
    }
    return SegmentsByReason(
        segments=sum(each.segments for each in reasons.values()),
        bytes=sum(each.bytes for each in reasons.values()),
        reasons=reasons,
    )


def _when(segment: ExplainedSegment, now_ms: int) -> When:
    if segment.deletable:
        return When.NOW
    if segment.goes_ms is None:
        return When.STAYS
    return When.DAY if segment.goes_ms - now_ms <= DAY_MS else When.LATER


def _reason(segment: ExplainedSegment, when: When, *, is_compaction_due: bool) -> str:
    if when is When.NOW:
        return str(segment.rule)
    codes = [each.code for each in segment.blockers]
    if when is not When.STAYS:
        return next((code for code in codes if code in _RETENTION), codes[0] if codes else "")
    if is_compaction_due and segment.section in {Section.DIRTY, Section.CLEAN}:
        return COMPACTION_DUE
    return next((code for code in codes if code != Code.POLICY), Code.POLICY)
