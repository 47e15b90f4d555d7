"""The answer of `cordwood whatif`, as the document that --json prints: pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from cordwood.cleanup.schedule.cleaner_settings import CleanerSettings
from cordwood.queries.whatif.comparison import SIDES, Compared, Comparison
from cordwood.queries.whatif.effects import Cost, How, Outcome, Unread, cost_of, forecast
from cordwood.queries.whatif.no_effect import why_no_effect

_SUMMED: Final = (
    "segments",
    "bytes",
    "bytes_freed",
    "segments_gone",
    "records_discarded",
    "tombstones_discarded",
    "offsets_gone",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked beside the settings.

    `days` is how far to look ahead. `cleaners` are the settings of the cleaner on each of `SIDES`,
    and `cores` how many a cleaning uses: both are for costs.
    """

    now_ms: int
    days: int
    cleaners: Mapping[str, CleanerSettings]
    cores: int


def starts_of(comparison: Comparison) -> dict[str, tuple[int, int]]:
    """By partition, the log start offset now and after the changed cleaning, where it moves."""
    return {
        each.name: (each.view.log_start_offset, each.then.log_start_offset)
        for each in comparison.partitions
        if each.then is not None and each.then.offsets_gone > 0
    }


def answer_of(
    comparison: Comparison,
    question: Question,
    *,
    unread: Sequence[Unread] | None,
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """The document, of plain values.

    Args:
        comparison: both cleanings.
        question: what was asked for.
        unread: what groups would lose; None if they were not looked at.
        warnings: beside those of the comparison.
    """
    return {
        "now_ms": question.now_ms,
        "days": question.days,
        "changes": {
            topic: {key: {"now": a, "then": b} for key, (a, b) in changed.items()}
            for topic, changed in comparison.changes.items()
        },
        "broker_changes": {
            key: {"now": a, "then": b} for key, (a, b) in comparison.broker_changes.items()
        },
        "partitions": [_partition(each, question) for each in comparison.partitions],
        "total": {side: _total(comparison.partitions, side) for side in SIDES},
        "not_measured": {side: _not_measured(comparison.partitions, side) for side in SIDES},
        "overruled": [asdict(each) for each in comparison.overruled],
        "left_alone": [asdict(each) for each in comparison.left_alone],
        "failed": [asdict(each) for each in comparison.failed],
        "groups": None if unread is None else [each.to_json() for each in unread],
        "warnings": [*warnings, *comparison.warnings],
        "in_use": comparison.in_use,
        "cleaning_s": {side: _cleaning_s(comparison, side) for side in SIDES},
    }


def _cleaning_s(comparison: Comparison, side: str) -> float | None:
    """How long a cleaning takes, by the run that measured it; it wrote nothing."""
    seconds = comparison.seconds.get(side)
    return None if seconds is None else round(comparison.session_seconds + seconds, 3)


def _partition(compared: Compared, question: Question) -> dict[str, Any]:
    return {
        "topic": compared.topic,
        "partition": compared.partition,
        "log_dir": compared.log_dir,
        "segments": len(compared.view.segments),
        "bytes": compared.view.size_bytes,
        "log_start_offset": compared.view.log_start_offset,
        "reason": compared.reason,
        **{side: _side(compared, side, question) for side in SIDES},
        "difference": _difference(compared),
        "no_effect": why_no_effect(compared, now_ms=question.now_ms),
    }


def _side(compared: Compared, side: str, question: Question) -> dict[str, Any] | None:
    outcome = compared.outcome(side)
    if outcome is None:
        return None
    view = compared.view_of(side)
    cost = _cost(compared, outcome, question, side)
    sizes = forecast(view, now_ms=question.now_ms, days=question.days) if question.days else None
    return outcome.to_json() | {
        "bytes_next_24h": compared.next_24h[side],
        "cost": None if cost is None else cost.to_json(),
        "bytes_after_days": sizes,
    }


def _cost(compared: Compared, outcome: Outcome, question: Question, side: str) -> Cost | None:
    if not outcome.bytes_read:
        return None
    keys = outcome.keys
    if keys is None:
        keys = compared.view.log_end_offset - compared.view.log_start_offset
    cleaner = question.cleaners[side]
    return cost_of(outcome.bytes_read, keys, cores=question.cores, cleaner=cleaner)


def _total(partitions: Sequence[Compared], side: str) -> dict[str, int]:
    """The sums of one side, over the partitions of which both sides are known."""
    both = [each for each in partitions if each.now is not None and each.then is not None]
    known = [outcome for each in both if (outcome := each.outcome(side)) is not None]
    # The errors of estimates have nothing to do with each other.
    error = math.hypot(*(outcome.bytes_error for outcome in known))
    sums = {name: sum(getattr(outcome, name) for outcome in known) for name in _SUMMED}
    next_24h = sum(each.next_24h[side] for each in both)
    return sums | {"bytes_error": round(error), "bytes_next_24h": next_24h}


def _not_measured(partitions: Sequence[Compared], side: str) -> list[str]:
    """The partitions that a compaction is due for whose effect is not known, and matters."""
    return [
        each.name
        for each in partitions
        if not each.is_same
        and (outcome := each.outcome(side)) is not None
        and outcome.how is How.RETENTION
    ]


def _difference(compared: Compared) -> dict[str, int] | None:
    now, then = compared.now, compared.then
    if now is None or then is None:
        return None
    return {name: getattr(then, name) - getattr(now, name) for name in _SUMMED}
