"""A cleaning with the settings in force, and one with changed settings, side by side.

Each log is read once. Where the view of it says what a cleaning would do, no record is read; the
others are measured, as `cordwood clean --dry-run --exact` measures, or estimated, as a dry run
without `--exact` does; no file is changed.
"""

from __future__ import annotations

import fnmatch
from dataclasses import replace

from cordwood.cleanup.capture import Captured
from cordwood.cleanup.clean import clean, survey
from cordwood.cleanup.estimate.values import Estimator
from cordwood.cleanup.log_view import LogView
from cordwood.cleanup.named_topics import missing_topics
from cordwood.cleanup.offline_groups import OfflineGroups
from cordwood.cleanup.report import PartitionReport, Report, Status
from cordwood.cleanup.request import CleanRequest, EngineFactory, Listener
from cordwood.insight.comparison import NOW, THEN, Compared, Comparison, LeftAlone
from cordwood.insight.estimated_cleaning import estimated_outcome
from cordwood.insight.whatif import How, Outcome, bytes_to_read, changed_settings, settled
from cordwood.model.clock import Clock
from cordwood.storage.offline_directories import find_places, open_log_dirs


def compare(
    now: CleanRequest,
    then: CleanRequest,
    engine: EngineFactory,
    *,
    clock: Clock,
    listener: Listener | None = None,
    estimator: Estimator | None = None,
) -> Comparison:
    """Both cleanings, of the topics whose settings differ; nothing is changed.

    Args:
        now: a request with the settings in force.
        then: the same with the changed settings.
        engine: starts the engine; called only if a compaction has to be measured.
        clock: for timings.
        listener: receives the progress.
        estimator: estimates compactions, which are then not measured.

    Raises:
        As `cordwood.cleanup.clean.clean` does.
    """
    names = _topics(then)
    chosen = [topic for topic in names if _chosen(topic, now)]
    each_change = {topic: _changes(topic, now, then) for topic in chosen}
    changes = {topic: change for topic, change in each_change.items() if change}
    comparison = Comparison(changes=changes, unchanged_topics=len(chosen) - len(changes))
    if not changes:
        return comparison
    topics = tuple(sorted(changes))
    found = survey(replace(now, topics=topics, named_topics={}), clock=clock, listener=listener)
    comparison.warnings += found.report.warnings
    comparison.in_use = found.report.in_use
    for report, captured in found.logs:
        comparison.partitions.append(_compared(report, captured, then, found.groups))
    known = {each.name for each in comparison.partitions}
    comparison.left_alone = [
        LeftAlone(topic=each.topic, partition=each.partition, reason=each.reason)
        for each in found.report.partitions
        if f"{each.topic}-{each.partition}" not in known
    ]
    for side, request in ((NOW, now), (THEN, then)):
        _measure(
            comparison, side, request, engine, clock=clock, listener=listener, estimator=estimator
        )
    return comparison


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


def _compared(
    report: PartitionReport, captured: Captured, then: CleanRequest, groups: OfflineGroups
) -> Compared:
    view = captured.view
    changed = then.resolve(report.topic)
    assert changed is not None, "settings that change are known on both sides"
    then_view = replace(view, config=changed.config)
    if changed.config.cordwood_retention_groups:
        then_view = replace(then_view, consumed=groups.consumed(view.topic_partition))
    compared = Compared(
        topic=report.topic,
        partition=report.partition,
        log_dir=report.log_dir,
        view=view,
        then_view=then_view,
    )
    compared.now = settled(view, now_ms=then.now_ms)
    if not changed.config.remote_storage_enable:  # else it is left alone
        compared.then = settled(compared.then_view, now_ms=then.now_ms)
    return compared


def _measure(
    comparison: Comparison,
    side: str,
    request: CleanRequest,
    engine: EngineFactory,
    *,
    clock: Clock,
    listener: Listener | None,
    estimator: Estimator | None,
) -> None:
    """Measures or estimates the partitions that this side cannot tell from their views."""
    open_ = {each.name: each for each in comparison.partitions if each.outcome(side) is None}
    if not open_:
        return
    topics = tuple(sorted({each.topic for each in open_.values()}))
    report: Report = clean(
        replace(request, topics=topics, named_topics={}, dry_run=True, measured=estimator is None),
        engine,
        clock=clock,
        listener=listener,
        estimator=estimator,
    )
    comparison.seconds += report.timing.total
    for found in report.partitions:
        compared = open_.get(f"{found.topic}-{found.partition}")
        if compared is None:
            continue
        if found.status in {Status.FAILED, Status.NO_SPACE, Status.LEFT_ALONE}:
            compared.reason = found.reason
            continue
        view = compared.view_of(side)
        if estimator is None:
            setattr(compared, side, _measured(found, view, now_ms=request.now_ms))
            continue
        outcome = estimated_outcome(found, view, now_ms=request.now_ms)
        if outcome is None:
            compared.reason = "; ".join(found.warnings) or "its compaction was not estimated"
        setattr(compared, side, outcome)


def _measured(report: PartitionReport, view: LogView, *, now_ms: int) -> Outcome:
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
        bytes_read=bytes_to_read(view, now_ms=now_ms),
    )
