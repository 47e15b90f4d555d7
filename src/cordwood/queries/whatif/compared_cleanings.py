"""A cleaning with the settings in force, and one with changed settings, side by side.

Each log is read once. Where the view of it says what a cleaning would do, no record is read; the
others are measured, as `cordwood clean --dry-run --exact` measures, or estimated, as a dry run
without `--exact` does; no file is changed.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import replace

from cordwood.cleanup.access.capture import due_of, with_due
from cordwood.cleanup.access.commit import EngineFactory
from cordwood.cleanup.access.offline.directories import find_places, open_log_dirs
from cordwood.cleanup.plan.estimates import Estimator
from cordwood.cleanup.plan.named_topics import missing_topics
from cordwood.cleanup.plan.report import PartitionReport, Report, Status, Timing
from cordwood.cleanup.plan.request import CleanRequest, Listener
from cordwood.cleanup.rules.due import DueRule
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.shared_retention import DirectoryLimits
from cordwood.cleanup.schedule.clean import clean
from cordwood.cleanup.schedule.survey import Survey, survey
from cordwood.configs.levels import Origin
from cordwood.model.clock import Clock
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.partitions import SkippedPartition
from cordwood.queries.whatif.comparison import (
    NOW,
    THEN,
    BothSettings,
    Compared,
    Comparison,
    PlannedBoth,
    Space,
    overruled_by_topics,
    plan_both,
)
from cordwood.queries.whatif.effects import (
    How,
    Outcome,
    bytes_to_read,
    changed_settings,
    retention_outcome,
    settled,
)
from cordwood.queries.whatif.estimated_cleaning import estimated_outcome


def compare(
    now: CleanRequest,
    then: CleanRequest,
    engine: EngineFactory | None,
    *,
    clock: Clock,
    listener: Listener | None = None,
    estimator: Estimator | None = None,
    changed_of_broker: Collection[str] = (),
) -> Comparison:
    """Both cleanings, of the logs that the changed settings concern; nothing is changed.

    Args:
        now: a request with the settings in force.
        then: the same with the changed settings.
        engine: starts the engine; called only if a compaction has to be measured. If None, none is:
            what retention removes is planned (`How.RETENTION`).
        clock: for timings.
        listener: receives the progress.
        estimator: estimates compactions, which are then not measured.
        changed_of_broker: the settings that change for the broker, which topics may overrule.

    Raises:
        As `cordwood.cleanup.schedule.clean.clean` does.
    """
    names = _topics(then)
    chosen = [topic for topic in names if _chosen(topic, now)]
    each_change = {topic: _changes(topic, now, then) for topic in chosen}
    changes = {topic: change for topic, change in each_change.items() if change}
    limits = {NOW: now.applied_limits, THEN: then.applied_limits}
    shares_directories = any(each.is_set for each in limits.values())
    comparison = Comparison(
        changes=changes,
        broker_changes=Space(limits=limits).changes,
        warnings=list(dict.fromkeys([*now.limits_warnings, *then.limits_warnings])),
        unchanged_topics=len(chosen) - len(changes),
        overruled=overruled_by_topics(
            {topic: _origins(topic, then) for topic in chosen}, changed_of_broker
        ),
    )
    if not (changes or comparison.broker_changes):
        return comparison
    # A limit of a directory depends on all of its logs, one of a topic on all of its partitions.
    topics = () if shares_directories else tuple(sorted(changes))
    request = replace(now, topics=topics, named_topics={}, compared_with=then.resolve)
    found = survey(request, clock=clock, listener=listener)
    comparison.warnings += found.report.warnings
    comparison.in_use = found.report.in_use
    planned = _planned(found, limits, then)
    comparison.partitions = [
        _compared(report, each, now_ms=now.now_ms, is_estimated=estimator is not None)
        for (report, _), each in zip(found.logs, planned, strict=True)
        if each.is_concerned
    ]
    known = {f"{report.topic}-{report.partition}" for report, _ in found.logs}
    for each in found.report.partitions:
        if each.topic in changes and f"{each.topic}-{each.partition}" not in known:
            left = SkippedPartition(topic=each.topic, partition=each.partition, reason=each.reason)
            is_failed = each.status is Status.FAILED
            (comparison.failed if is_failed else comparison.left_alone).append(left)
    plans = {each.log.log.view.topic_partition: each for each in planned}
    if engine is None:
        _plan_retention(comparison, plans, now_ms=now.now_ms)
        return comparison
    for side, request in ((NOW, now), (THEN, then)):
        measuring = _Measuring(comparison, side, plans, is_whole=limits[side].is_set)
        measuring.run(request, engine, clock=clock, listener=listener, estimator=estimator)
    return comparison


def _planned(
    found: Survey, limits: Mapping[str, DirectoryLimits], then: CleanRequest
) -> list[PlannedBoth]:
    """Both plans of the logs of a survey."""
    logs = []
    for log, (_, captured) in zip(found.shared, found.logs, strict=True):
        partition = log.view.topic_partition
        changed = then.resolve(partition.topic)
        assert changed is not None, "settings that change are known on both sides"
        view = log.view
        if changed.config.cordwood_retention_groups or view.config.cordwood_retention_groups:
            view = replace(view, consumed=found.groups.consumed(partition))
        then_view = replace(view, config=changed.config)
        if DueRule.of(view.config) != DueRule.of(changed.config) and not view.holds:
            then_view = with_due(then_view, due_of(captured, changed.config))
        logs.append(BothSettings(log=replace(log, view=view), then_view=then_view))
    free_bytes = found.free_bytes
    space = Space(limits=limits, free_bytes=free_bytes, freeing=free_bytes)
    return plan_both(logs, space, now_ms=then.now_ms)


def _topics(request: CleanRequest) -> list[str]:
    """The topics below the log directories. Raises as `clean`."""
    places = find_places(open_log_dirs(request.log_dirs))
    names = {place.partition.topic_partition.topic for place in places}
    missing_topics(names, request)
    return sorted(names)


def _chosen(topic: str, request: CleanRequest) -> bool:
    globs = request.topics
    return not globs or any(fnmatch.fnmatchcase(topic, glob) for glob in globs)


def _changes(topic: str, now: CleanRequest, then: CleanRequest) -> dict[str, tuple[str, str]]:
    before, after = now.resolve(topic), then.resolve(topic)
    if before is None or after is None:
        # Without settings in force there is nothing to compare with.
        return {} if after is None else {"": ("", "")}
    return changed_settings(before.config, after.config)


def _origins(topic: str, request: CleanRequest) -> Mapping[str, Origin]:
    """The origins of a topic's settings; empty if they are not known."""
    resolved = request.resolve(topic)
    return {} if resolved is None else resolved.origin


def _compared(
    report: PartitionReport, planned: PlannedBoth, *, now_ms: int, is_estimated: bool
) -> Compared:
    log = planned.log
    view, then_view = log.log.view, log.then_view
    compared = Compared(
        topic=report.topic,
        partition=report.partition,
        log_dir=report.log_dir,
        view=view,
        then_view=then_view,
        is_same=planned.is_same,
        next_24h=planned.next_24h,
    )
    if compared.is_same and not is_estimated:  # an estimate takes little, and says the sizes
        compared.now = retention_outcome(view, planned.now, now_ms=now_ms)
        compared.then = retention_outcome(then_view, planned.then, now_ms=now_ms)
        return compared
    compared.now = settled(view, planned.now, now_ms=now_ms)
    if not log.then.remote_storage_enable:  # else it is left alone
        compared.then = settled(then_view, planned.then, now_ms=now_ms)
    return compared


def _plan_retention(
    comparison: Comparison, plans: Mapping[TopicPartition, PlannedBoth], *, now_ms: int
) -> None:
    """Sets the outcomes that are open without their compactions."""
    for each in comparison.partitions:
        planned = plans[each.view.topic_partition]
        each.now = each.now or retention_outcome(each.view, planned.now, now_ms=now_ms)
        if not planned.log.then.remote_storage_enable:
            each.then = each.then or retention_outcome(each.then_view, planned.then, now_ms=now_ms)


class _Measuring:
    """Measures or estimates the partitions of one side that their plans do not settle."""

    def __init__(
        self,
        comparison: Comparison,
        side: str,
        plans: Mapping[TopicPartition, PlannedBoth],
        *,
        is_whole: bool,
    ) -> None:
        """Creates a measurement; with `is_whole`, the plan depends on logs of other topics, too."""
        self._comparison = comparison
        self._side = side
        self._plans = plans
        self._is_whole = is_whole

    def run(
        self,
        request: CleanRequest,
        engine: EngineFactory,
        *,
        clock: Clock,
        listener: Listener | None,
        estimator: Estimator | None,
    ) -> None:
        """Sets the outcome of each, or the reason why there is none. Raises as `clean`."""
        open_ = {
            each.name: each
            for each in self._comparison.partitions
            if each.outcome(self._side) is None
        }
        if not open_:
            return
        topics = () if self._is_whole else tuple(sorted({each.topic for each in open_.values()}))
        report: Report = clean(
            replace(
                request,
                topics=topics,
                named_topics={},
                dry_run=True,
                measured=estimator is None,
            ),
            engine,
            clock=clock,
            listener=listener,
            estimator=estimator,
        )
        if estimator is None:
            self._note_time(report.timing)
        for found in report.partitions:
            compared = open_.get(f"{found.topic}-{found.partition}")
            if compared is None:
                continue
            if found.status in {Status.FAILED, Status.NO_SPACE, Status.LEFT_ALONE}:
                compared.reason = found.reason
            else:
                self._set(
                    compared, found, now_ms=request.now_ms, is_estimated=estimator is not None
                )

    def _note_time(self, timing: Timing) -> None:
        """A second run may use the engine of the first."""
        comparison = self._comparison
        comparison.seconds[self._side] = timing.total - timing.session
        comparison.session_seconds = max(comparison.session_seconds, timing.session)

    def _set(
        self, compared: Compared, report: PartitionReport, *, now_ms: int, is_estimated: bool
    ) -> None:
        planned = self._plans[compared.view.topic_partition]
        check = planned.now if self._side == NOW else planned.then
        view = compared.view_of(self._side)
        outcome: Outcome | None
        if is_estimated:
            outcome = estimated_outcome(report, view, check, now_ms=now_ms)
            if outcome is None:
                compared.reason = "; ".join(report.warnings) or "its compaction was not estimated"
        else:
            outcome = _measured(report, view, bytes_to_read(check, now_ms=now_ms))
        setattr(compared, self._side, outcome)


def _measured(report: PartitionReport, view: LogView, bytes_read: int) -> Outcome:
    before, after = report.before, report.after
    assert before is not None, "a measured partition was captured"
    assert after is not None, "a measured partition has an end"
    assert report.log_start_offset is not None, "a measured partition has a log start offset"
    discarded = 0
    if before.records is not None and after.records is not None:
        discarded = before.records - after.records
    return Outcome(
        how=How.MEASURED,
        segments=after.segments,
        bytes=after.bytes,
        bytes_freed=before.bytes - after.bytes,
        segments_gone=before.segments - after.segments,
        records_discarded=discarded,
        tombstones_discarded=report.discarded.tombstone,
        offsets_gone=report.log_start_offset - view.log_start_offset,
        log_start_offset=report.log_start_offset,
        keys=report.keys,
        bytes_read=bytes_read,
    )
