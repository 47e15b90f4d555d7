"""Damage that `cordwood verify` finds in log directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cordwood.cleanup.verification.directories import verify
from cordwood.cleanup.verification.findings import Level
from cordwood.model.clock import SystemClock
from cordwood.surfaces.cluster_facts import ClusterFacts


def damage_in(log_dirs: Sequence[Path]) -> list[str]:
    """Findings but for notes, without the metadata log and with it."""
    warnings: list[str] = []
    facts = ClusterFacts(log_dirs, warnings.append)
    results = [
        verify(log_dirs, clock=SystemClock()),
        verify(log_dirs, clock=SystemClock(), facts_of=facts.of),
    ]
    assert warnings == []
    return [
        str(each)
        for result in results
        for each in (*result.findings, *(f for log in result.logs for f in log.findings))
        if each.rule.level is Level.DAMAGED
    ]
