"""Limits over several online logs: the plan of `shared_retention`, carried out log by log."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from cordwood.cleanup.access.capture import view_of
from cordwood.cleanup.access.online.groups import KnownOffsets, consumed_of
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.cleanup.rules.shared_retention import (
    DirectoryLimits,
    SharedLog,
    plan_shared_retention,
    shares_limits,
)
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.cleaning import retain
from cordwood.cleanup.schedule.running_owner import RunningRetention
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.deleted_space import free_bytes_soon
from cordwood.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


def retain_shared(
    manager: CleanerManager, paused: Collection[PartitionLog], known: KnownOffsets
) -> int:
    """Applies the limits that logs share; how many segments went.

    Logs that another thread works on count, but lose nothing before the next pass.

    Args:
        manager: of the logs.
        paused: logs without `compact` that the caller has paused.
        known: the committed offsets of the groups that logs wait for.
    """
    logs = manager.logs
    limits = DirectoryLimits.of(logs.broker)
    if not shares_limits((log.config for log in logs.logs()), limits):
        return 0
    compacted = manager.deletable_logs()
    try:
        deletable = {log.topic_partition for log in (*paused, *compacted)}
        return _retain(manager, deletable, limits, known)
    except (OSError, CordwoodError):
        _log.exception("Error while applying the limits of topics and log directories")
        return 0
    finally:
        manager.states.done([log.topic_partition for log in compacted])


def _retain(
    manager: CleanerManager,
    deletable: set[TopicPartition],
    limits: DirectoryLimits,
    known: KnownOffsets,
) -> int:
    logs = manager.logs
    found = []
    for log in logs.logs():
        is_future = logs.get(log.topic_partition) is not log
        shared = SharedLog(
            view=replace(view_of(log, None), consumed=consumed_of(known, log)),
            log_dir=str(log.log_dir),
            is_deletable=not is_future and log.topic_partition in deletable,
            is_future=is_future,
        )
        found.append((log, shared))
    free_bytes = {}
    if limits.free_bytes_min >= 0:
        fs = logs.context.fs
        free_bytes = {
            str(path): free_bytes_soon(
                path, fs=fs, enough_bytes=limits.free_bytes_min, trash=logs.context.trash
            )
            for path in {log.log_dir for log, _ in found}
        }
    plans = plan_shared_retention(
        [shared for _, shared in found],
        limits,
        free_bytes=free_bytes,
        now_ms=logs.context.clock.now_ms(),
    )
    return sum(
        _delete(manager, log, plan, known)
        for (log, _), plan in zip(found, plans, strict=True)
        if plan.expired
    )


def _delete(
    manager: CleanerManager, log: PartitionLog, plan: RetentionPlan, known: KnownOffsets
) -> int:
    """Deletes the segments of a plan, if they still are the log's oldest; how many went."""
    owner = RunningRetention(log, consumed=consumed_of(known, log), lost=manager.groups.note)
    bases = [each.base_offset for each in plan.expired]
    try:
        with owner.held() as now:
            segments = now.segments
            if now.holds or len(segments) <= len(bases):
                return 0
            if bases != [segments[number].base_offset for number in range(len(bases))]:
                return 0  # a client has deleted records, or it was truncated; the next pass looks
            count = owner.delete(plan)
        # What went may have held back the log's own rules.
        return count + retain(owner, now_ms=manager.logs.context.clock.now_ms())
    except CordwoodError:
        _log.exception("Error while deleting old segments of %s", log)
        return 0
