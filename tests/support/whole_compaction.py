"""Steps of a compaction in one task, of logs whose keys fit its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cordwood.cleanup.engine.tasks import Survivors, still_to_do
from cordwood.cleanup.engine.whole import Lane, find_survivors
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec
from cordwood.cleanup.verification.evidence import Scope, find_evidence
from cordwood.cleanup.verification.group import verify_group
from cordwood.storage.reading.source import SegmentSource

#: More keys than a log of a test has.
ENTRIES_MAX: Final = 1 << 22


def survivors_of(compaction: LogCompaction, lanes: Sequence[Lane] = (Lane(),)) -> Survivors:
    """The survivors of the dirty and the clean section."""
    return find_survivors(compaction, lanes, entries_max=ENTRIES_MAX)


def verify_rewritten(compaction: LogCompaction, spec: RewriteSpec, manifest: Manifest) -> None:
    """Compares a rewritten group with its source, as a cleaning with `--verify` does.

    Raises:
        CorruptError: it was refused.
    """
    segments: Sequence[SegmentSource] = still_to_do(compaction, compaction.segments)
    if compaction.rules.versions is not None:
        segments = compaction.segments
    evidence = find_evidence(Scope.of(compaction), segments, entries_max=ENTRIES_MAX)
    bases = [segment.source.base_offset for segment in spec.segments]
    verify_group(replace(spec, evidence=tuple(evidence[base] for base in bases)), manifest)
