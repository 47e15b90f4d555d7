"""The answer to what changed settings would do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.model.documents import ABSENT
from cordwood.queries.identity import NodeIdentity
from cordwood.queries.partitions import SkippedPartition, replica_name
from cordwood.queries.whatif.comparison import NOW, SIDES, THEN, Compared, Comparison, Overruled
from cordwood.queries.whatif.effects import Cost, How, Outcome, Unread, cost_of, forecast
from cordwood.queries.whatif.no_effect import why_no_effect
from cordwood.storage.log_directory import InUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The value of a setting on both sides."""

    now: str
    then: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Segments and bytes that `then` has in excess of `now`, of one partition."""

    segments: int
    bytes: int
    bytes_freed: int
    segments_gone: int
    records_discarded: int
    tombstones_discarded: int
    offsets_gone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The sums of the outcomes of one side."""

    segments: int = 0
    bytes: int = 0
    bytes_freed: int = 0
    segments_gone: int = 0
    records_discarded: int = 0
    tombstones_discarded: int = 0
    offsets_gone: int = 0
    bytes_error: int = 0
    bytes_next_24h: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The sums over the partitions of which both sides are known."""

    now: Total
    then: Total

    def of(self, side: str) -> Total:
        """The total of one of `SIDES`."""
        return self.now if side == NOW else self.then


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMeasured:
    """Names of partitions whose due compaction has an effect that is not known, on each side."""

    now: Sequence[str]
    then: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningSeconds:
    """Durations of a cleaning on each side, measured without writing; None if not measured."""

    now: float | None
    then: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPartition:
    """A partition; a side is None if it could not be found out, for the `reason`.

    `no_effect` is why both sides are the same, empty where they are not. `node_id` is the broker of
    a cluster that has this replica.
    """

    topic: str
    partition: int
    log_dir: str
    segments: int
    bytes: int
    log_start_offset: int
    reason: str
    now: Outcome | None
    then: Outcome | None
    difference: Difference | None
    no_effect: str
    node_id: int | None = field(default=None, metadata=ABSENT)

    def outcome(self, side: str) -> Outcome | None:
        """The outcome on one of `SIDES`, None if it is unknown."""
        return self.now if side == NOW else self.then

    def known(self, side: str) -> Outcome:
        """The outcome on one of `SIDES`; both must be known."""
        found = self.outcome(side)
        assert found is not None, f"{self.topic}-{self.partition}: {side} is not known"
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """Effect of a cleaning at `now_ms` with the settings in force, and with changed ones.

    `changes` are by topic and setting, `broker_changes` those of limits that all topics share.
    `groups` is what groups would lose, None if they were not looked at. `broker` was asked, or
    `brokers`, if a cluster has several.
    """

    now_ms: int
    days: int
    changes: Mapping[str, Mapping[str, Change]]
    broker_changes: Mapping[str, Change]
    partitions: Sequence[ComparedPartition]
    total: Totals
    not_measured: NotMeasured
    overruled: Sequence[Overruled]
    left_alone: Sequence[SkippedPartition]
    failed: Sequence[SkippedPartition]
    groups: Sequence[Unread] | None
    warnings: Sequence[str]
    in_use: Sequence[InUse]
    cleaning_s: CleaningSeconds
    broker: NodeIdentity | None = field(default=None, metadata=ABSENT)
    brokers: Sequence[NodeIdentity] | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Parameters of a comparison beside the settings.

    `days` is how far to look ahead. `cleaners` are the settings of the cleaner on each of `SIDES`,
    and `cores` how many a cleaning uses: both are for costs.
    """

    now_ms: int
    days: int
    cleaners: Mapping[str, CleanerSettings]
    cores: int


def starts_of(comparison: Comparison) -> dict[str, tuple[int, int]]:
    """The log start offsets now and after the changed cleaning, by partition, where they differ."""
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
) -> WhatIf:
    """The answer.

    Args:
        comparison: both cleanings.
        question: what was asked for.
        unread: what groups would lose; None if they were not looked at.
        warnings: beside those of the comparison.
    """
    partitions = [_partition(each, question) for each in comparison.partitions]
    not_measured = {side: _not_measured(comparison.partitions, side) for side in SIDES}
    return WhatIf(
        now_ms=question.now_ms,
        days=question.days,
        changes={topic: _changes(changed) for topic, changed in comparison.changes.items()},
        broker_changes=_changes(comparison.broker_changes),
        partitions=partitions,
        total=totals_of(partitions),
        not_measured=NotMeasured(**not_measured),
        overruled=comparison.overruled,
        left_alone=comparison.left_alone,
        failed=comparison.failed,
        groups=unread,
        warnings=[*warnings, *comparison.warnings],
        in_use=comparison.in_use,
        cleaning_s=CleaningSeconds(
            now=_cleaning_s(comparison, NOW), then=_cleaning_s(comparison, THEN)
        ),
    )


def _changes(changed: Mapping[str, tuple[str, str]]) -> dict[str, Change]:
    return {key: Change(now=now, then=then) for key, (now, then) in changed.items()}


def _cleaning_s(comparison: Comparison, side: str) -> float | None:
    seconds = comparison.seconds.get(side)
    return None if seconds is None else round(comparison.session_seconds + seconds, 3)


def _partition(compared: Compared, question: Question) -> ComparedPartition:
    return ComparedPartition(
        topic=compared.topic,
        partition=compared.partition,
        log_dir=compared.log_dir,
        segments=len(compared.view.segments),
        bytes=compared.view.size_bytes,
        log_start_offset=compared.view.log_start_offset,
        reason=compared.reason,
        now=_side(compared, NOW, question),
        then=_side(compared, THEN, question),
        difference=_difference(compared),
        no_effect=why_no_effect(compared, now_ms=question.now_ms),
    )


def _side(compared: Compared, side: str, question: Question) -> Outcome | None:
    outcome = compared.outcome(side)
    if outcome is None:
        return None
    view = compared.view_of(side)
    return replace(
        outcome,
        bytes_next_24h=compared.next_24h[side],
        cost=_cost(compared, outcome, question, side),
        bytes_after_days=forecast(view, now_ms=question.now_ms, days=question.days)
        if question.days
        else None,
    )


def _cost(compared: Compared, outcome: Outcome, question: Question, side: str) -> Cost | None:
    if not outcome.bytes_read:
        return None
    keys = outcome.keys
    if keys is None:
        keys = compared.view.log_end_offset - compared.view.log_start_offset
    cleaner = question.cleaners[side]
    return cost_of(outcome.bytes_read, keys, cores=question.cores, cleaner=cleaner)


def totals_of(partitions: Iterable[ComparedPartition]) -> Totals:
    """The sums over the partitions of which both sides are known."""
    both = [each for each in partitions if each.now is not None and each.then is not None]
    return Totals(
        now=_total([each.known(NOW) for each in both]),
        then=_total([each.known(THEN) for each in both]),
    )


def _total(outcomes: Sequence[Outcome]) -> Total:
    names = Total.__dataclass_fields__
    sums = {name: sum(getattr(each, name) for each in outcomes) for name in names}
    # The errors of estimates have nothing to do with each other.
    error = math.hypot(*(each.bytes_error for each in outcomes))
    return Total(**sums | {"bytes_error": round(error)})


def _not_measured(partitions: Sequence[Compared], side: str) -> list[str]:
    return [
        each.name
        for each in partitions
        if not each.is_same
        and (outcome := each.outcome(side)) is not None
        and outcome.how is How.RETENTION
    ]


def _difference(compared: Compared) -> Difference | None:
    now, then = compared.now, compared.then
    if now is None or then is None:
        return None
    names = Difference.__dataclass_fields__
    return Difference(**{name: getattr(then, name) - getattr(now, name) for name in names})


def compared_name(compared: ComparedPartition) -> str:
    """Topic and partition, and the broker if several were asked."""
    return replica_name(compared, compared.node_id)
