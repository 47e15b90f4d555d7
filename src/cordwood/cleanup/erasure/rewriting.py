"""The rewriting of an erasure, as a compaction in which offsets decide and not keys."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cordwood.cleanup.engine.search.offsets import united, within
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction import CompactionPlan
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.storage.reading.source import SegmentSource


def touched_by(erased: OffsetRanges, sources: Iterable[SegmentSource]) -> tuple[SegmentSource, ...]:
    """The segments with an erased offset: those that are rewritten."""
    return tuple(
        source for source in sources if within(erased, source.base_offset, source.next_base_offset)
    )


def compaction_without(
    captured: Captured, touched: tuple[SegmentSource, ...], erased: OffsetRanges, *, now_ms: int
) -> LogCompaction:
    """The compaction that rewrites each of `touched` into one with the same base offset."""
    plan = CompactionPlan(
        first_dirty=0,
        first_uncleanable=captured.view.log_end_offset,
        retained_end=captured.view.log_end_offset,
        segments=tuple(source.base_offset for source in touched),
        groups=tuple((source.base_offset,) for source in touched),
        legacy_horizon_ms=0,
    )
    compaction = prepare_compaction(captured, plan, now_ms=now_ms, seed=0)
    ranges = [
        each
        for source in touched
        for each in within(erased, source.base_offset, source.next_base_offset)
    ]
    # A transaction index is kept as it is, also where it names what is long gone.
    return replace(
        compaction,
        aborted=captured.aborted,
        erased=united(ranges),
        rules=RecordRules(now_ms=now_ms),
    )
