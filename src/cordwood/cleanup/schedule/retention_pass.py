"""Retention of online logs: of one, and of all without `compact`, from time to time.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteOldSegments, LogManager.cleanupLogs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from cordwood.cleanup.access.online.groups import consumed_of
from cordwood.cleanup.rules.group_guard import NOTHING_KNOWN, Consumed, GroupLoss
from cordwood.cleanup.schedule import cleaning
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager
from cordwood.cleanup.schedule.running_owner import RunningRetention
from cordwood.cleanup.schedule.shared_retention_pass import retain_shared
from cordwood.model.errors import CordwoodError
from cordwood.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


def retain(
    log: PartitionLog,
    now_ms: int,
    *,
    consumed: Consumed = NOTHING_KNOWN,
    lost: Callable[[PartitionLog, Sequence[GroupLoss]], object] = lambda *_: None,
) -> int:
    """Deletes what the log's settings no longer keep; how many segments went.

    The oldest segment that stays is the last that is looked at.

    Args:
        log: to be looked at.
        now_ms: the time.
        consumed: what is known of the groups that it waits for.
        lost: receives what a group loses.

    Raises:
        StorageError: the log is closed, or the disk refused.

    Source: UnifiedLog.deleteOldSegments.
    """
    return cleaning.retain(RunningRetention(log, consumed=consumed, lost=lost), now_ms=now_ms)


def retention_pass(manager: CleanerManager) -> int:
    """Applies retention to every log without `compact`, and the limits that logs share.

    Returns:
        How many segments went.

    A log whose retention fails is logged, and the others continue.
    """
    clock = manager.logs.context.clock
    begun = clock.monotonic_s()
    _log.debug("Beginning log cleanup...")
    total = 0
    known = manager.groups.look_up(manager.logs.logs())
    logs = manager.pause_for_retention()
    try:
        for log in logs:
            future = manager.logs.get(log.topic_partition, future=True)
            for each in (log, future):
                if each is not None:
                    total += _collect(manager, each, consumed_of(known, each))
        total += retain_shared(manager, logs, known)
    finally:
        manager.states.resume_cleaning([log.topic_partition for log in logs])
    _log.debug(
        "Log cleanup completed. %s files deleted in %s seconds",
        total,
        int(clock.monotonic_s() - begun),
    )
    return total


def _collect(manager: CleanerManager, log: PartitionLog, consumed: Consumed) -> int:
    _log.debug("Garbage collecting '%s'", log.topic_partition)
    now_ms = manager.logs.context.clock.now_ms()
    is_future = manager.logs.get(log.topic_partition) is not log
    try:
        if is_future:  # what groups lose is noted for the log that it will replace
            return retain(log, now_ms, consumed=consumed)
        return retain(log, now_ms, consumed=consumed, lost=manager.groups.note)
    except CordwoodError:
        _log.exception("Error while deleting old segments of %s", log)
        return 0


def start_retention(manager: CleanerManager) -> None:
    """Schedules `retention_pass` every log.retention.check.interval.ms."""
    broker = manager.logs.broker
    period_ms = broker.log_retention_check_interval_ms
    _log.info("Starting log cleanup with a period of %s ms.", period_ms)
    manager.logs.context.scheduler.schedule(
        "kafka-log-retention",
        lambda: _ignore(retention_pass(manager)),
        delay_ms=broker.log_initial_task_delay_ms,
        period_ms=period_ms,
    )


def _ignore(_: int) -> None:
    """Drops the result of a scheduled task."""
