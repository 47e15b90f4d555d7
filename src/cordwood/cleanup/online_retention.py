"""Retention of online logs: of one, and of all without `compact`, from time to time.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteOldSegments, LogManager.cleanupLogs.
"""

from __future__ import annotations

import logging
from itertools import groupby

from cordwood.cleanup.cleaner_manager import CleanerManager
from cordwood.cleanup.retention import LOG_START, TIME, Expired, plan_retention
from cordwood.model.errors import CordwoodError
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.segment.log_segment import LogSegment

_log = logging.getLogger(__name__)
_future_timestamps = logging.getLogger(f"{__name__}.future_timestamps")


def retain(log: PartitionLog, now_ms: int) -> int:
    """Deletes what the log's settings no longer keep; how many segments went.

    The oldest segment that stays is the last that is looked at.

    Raises:
        StorageError: the log is closed, or the disk refused.

    Source: UnifiedLog.deleteOldSegments.
    """
    with log.lock, log.guard("deleting old segments of"):
        log.require_open()
        plan = plan_retention(log, now_ms=now_ms)
        prefix = f"[UnifiedLog partition={log.topic_partition}, dir={log.log_dir}]"
        for warning in plan.warnings:
            _future_timestamps.warning("%s %s", prefix, warning)
        count = 0
        for _, group in groupby(plan.expired, key=lambda expired: expired.rule):
            expired = list(group)
            segments = [log.segments[number] for number in range(len(expired))]
            count += log.delete_segments(
                len(expired),
                reason=expired[0].text,
                lines=[f"{prefix} {line}" for line in _lines(expired, segments)],
            )
        return count


def _lines(expired: list[Expired], segments: list[LogSegment]) -> list[str]:
    """Kafka's words for what goes by one rule."""
    if expired[0].rule == LOG_START:
        names = ",".join(map(str, segments))
        return [f"Deleting segments due to {expired[0].text}: {names}"]
    end = "" if expired[0].rule == TIME else "."
    return [
        f"Deleting segment {segment} due to {gone.text}{end}"
        for gone, segment in zip(expired, segments, strict=True)
    ]


def retention_pass(manager: CleanerManager) -> int:
    """Applies retention to every log without `compact`; how many segments went.

    A log whose retention fails is logged, and the others continue.
    """
    clock = manager.logs.context.clock
    begun = clock.monotonic_s()
    _log.debug("Beginning log cleanup...")
    total = 0
    logs = manager.pause_for_retention()
    try:
        for log in logs:
            future = manager.logs.get(log.topic_partition, future=True)
            for each in (log, future):
                if each is not None:
                    total += _collect(each, clock.now_ms())
    finally:
        manager.resume_cleaning([log.topic_partition for log in logs])
    _log.debug(
        "Log cleanup completed. %s files deleted in %s seconds",
        total,
        int(clock.monotonic_s() - begun),
    )
    return total


def _collect(log: PartitionLog, now_ms: int) -> int:
    _log.debug("Garbage collecting '%s'", log.topic_partition)
    try:
        return retain(log, now_ms)
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
    """A scheduled task returns nothing."""
