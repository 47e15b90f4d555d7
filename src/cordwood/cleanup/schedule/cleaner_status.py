"""The state of every compacted log for the cleaner, with the reason.

Checking changes nothing. No lock of the cleaner is held while logs are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from cordwood.cleanup.plan.outcome import Committed, Outcome, Rejected, Unknown
from cordwood.cleanup.rules.blockers import Blocker, Code
from cordwood.cleanup.rules.cleanable import Cleanable, plan_cleanable
from cordwood.cleanup.rules.removals import removal_rules
from cordwood.cleanup.schedule.cleaner import CleanerRun
from cordwood.cleanup.schedule.cleaner_answer import (
    BacklogStatus,
    LogStatus,
    OpenTransactionStatus,
    RunStatus,
    UncleanableStatus,
)
from cordwood.cleanup.schedule.cleaner_backlog import CleanerBacklog
from cordwood.cleanup.schedule.cleaner_manager import CleanerManager, due_log
from cordwood.cleanup.schedule.cleaning_order import DueLog
from cordwood.cleanup.schedule.cleaning_states import LogCleaningAbortedError
from cordwood.cleanup.schedule.quarantine import Mark
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.open_transactions import open_transactions
from cordwood.storage.log.partition_log import PartitionLog


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsStatus:
    """Every compacted log, by name; and the names of those that are due, in order."""

    partitions: Sequence[LogStatus]
    order: Sequence[str]


def logs_status(
    manager: CleanerManager,
    now_ms: int,
    *,
    last_runs: Mapping[TopicPartition, CleanerRun],
    last_cleaned_ms: Mapping[TopicPartition, int],
) -> LogsStatus:
    """The compacted logs, and in which order they would be cleaned now.

    Args:
        manager: knows them.
        now_ms: judges lags.
        last_runs: the last attempt at each.
        last_cleaned_ms: when each was last cleaned, as far as this process knows.
    """
    lines = manager.checkpoints.all()
    found, due = [], []
    for log in sorted(manager.current_logs(), key=lambda log: log.topic_partition):
        partition = log.topic_partition
        if log.config.compact:
            status, each = _status_of(manager, log, lines.get(partition), now_ms)
            run = last_runs.get(partition)
            found.append(
                replace(
                    status,
                    last_cleaned_ms=last_cleaned_ms.get(partition),
                    last_run=None if run is None else run_status(run),
                )
            )
            due += [] if each is None else [each]
    order = [str(each.partition) for each in manager.schedule.ranked_by_what_is_known(due)]
    return LogsStatus(partitions=found, order=order)


def backlog_status(
    backlog: CleanerBacklog,
    partitions: Iterable[LogStatus],
    runs: Iterable[CleanerRun],
    *,
    threads: int,
) -> BacklogStatus:
    """The backlog.

    Args:
        backlog: of the looks at the logs.
        partitions: the status of each log.
        runs: the last attempts, of which those count that have cleaned.
        threads: how many clean side by side.
    """
    due = [each for each in partitions if each.due]
    to_read = sum((each.clean_bytes or 0) + (each.dirty_bytes or 0) for each in due)
    freed = [each.bytes_freed_estimated for each in due]
    known = [each for each in freed if each is not None]
    stats = [(run.stats.bytes_read, run.elapsed_s) for run in runs if run.stats is not None]
    seconds = sum(elapsed_s for _, elapsed_s in stats)
    rate = threads * sum(count for count, _ in stats) / seconds if seconds else 0.0
    return BacklogStatus(
        logs=len(due),
        bytes_to_read=to_read,
        bytes_freed=sum(known) if len(known) == len(freed) else None,
        bytes_per_s=round(rate) or None,
        seconds_left=round(to_read / rate, 1) if rate else None,
        growth=backlog.growth(),
    )


def run_status(run: CleanerRun) -> RunStatus:
    """One attempt to clean a log."""
    outcome, error = _outcome_text(run.outcome)
    found = RunStatus(
        partition=str(run.chosen.topic_partition),
        cleaner=run.number,
        started_ms=run.started_ms,
        elapsed_s=round(run.elapsed_s, 3),
        outcome=outcome,
        error=error,
        first_dirty_offset=run.chosen.cleanable.first_dirty,
        end_offset=run.chosen.cleanable.first_uncleanable,
    )
    stats = run.stats
    if stats is None:
        return found
    found = replace(
        found,
        bytes_read=stats.bytes_read,
        bytes_written=stats.bytes_written,
        messages_read=stats.messages_read,
        messages_written=stats.messages_written,
        invalid_messages=stats.invalid_messages,
        recopy_percent=stats.recopy_percent,
    )
    if stats.index is None:
        return found
    return replace(
        found,
        index_bytes=stats.index.bytes_read,
        index_elapsed_s=round(stats.index.elapsed_s, 3),
        keys=stats.index.keys,
        buffer_utilization=round(stats.index.utilization, 4),
    )


def _outcome_text(outcome: Outcome) -> tuple[str, str]:
    """An outcome and its error as the answer has them."""
    match outcome:
        case Committed():
            return "cleaned", ""
        case Rejected(LogCleaningAbortedError() as error):
            return "aborted", str(error)
        case Rejected(error) | Unknown(error):
            return "failed", str(error)


def _status_of(
    manager: CleanerManager, log: PartitionLog, line: int | None, now_ms: int
) -> tuple[LogStatus, DueLog | None]:
    partition = log.topic_partition
    state, mark = manager.states.of(partition), manager.mark_of(log)
    idle = "idle" if mark is None else "uncleanable"
    found = LogStatus(
        topic=partition.topic,
        partition=partition.partition,
        log_dir=str(log.log_dir),
        policy=",".join(sorted(log.config.cleanup_policy)),
        state=idle if state is None else str(state),
        checkpoint=line,
        log_end_offset=log.log_end_offset,
        uncleanable=None if mark is None else _uncleanable(mark),
    )
    try:
        cleanable = plan_cleanable(manager.view_of(log, line), now_ms=now_ms)
    except Exception as error:  # of a damaged log; the others are still reported
        return replace(found, reason=f"it could not be checked: {error}"), None
    held_up = cleaner_blocker(manager, log, now_ms)
    is_due = cleanable.reason is None and held_up is None
    due = due_log(log, cleanable) if is_due else None
    estimate = None if due is None else manager.schedule.estimate_of(due)
    reason = held_up.text if held_up is not None else cleanable.reason or _why_due(cleanable, log)
    found = replace(
        found,
        due=is_due,
        reason=reason,
        clean_bytes=cleanable.clean_bytes,
        dirty_bytes=cleanable.cleanable_bytes,
        cleanable_ratio=round(cleanable.ratio, 6),
        min_cleanable_dirty_ratio=log.config.min_cleanable_dirty_ratio,
        first_dirty_offset=cleanable.first_dirty,
        first_uncleanable_offset=cleanable.first_uncleanable,
        compaction_delay_ms=cleanable.delay_ms,
        due_segments=cleanable.due,
        blockers=[each.text for each in cleanable.blockers],
        open_transactions=[
            OpenTransactionStatus(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                start_offset=each.start_offset,
                started_ms=each.started_ms,
            )
            for each in open_transactions(log)
        ],
        bytes_freed_estimated=None if estimate is None else estimate.bytes_freed,
    )
    return found, due


def _uncleanable(mark: Mark) -> UncleanableStatus:
    return UncleanableStatus(
        reason=mark.reason,
        stage=mark.stage.value,
        since_ms=mark.since_ms,
        attempts=mark.attempts,
        retry_at_ms=mark.retry_at_ms,
    )


def cleaner_blocker(manager: CleanerManager, log: PartitionLog, now_ms: int) -> Blocker | None:
    """Why a log is not taken now although it may be due; None where nothing is in the way."""
    state = manager.states.of(log.topic_partition)
    if state is not None:
        text = {
            "LogCleaningInProgress": "it is being cleaned",
            "LogCleaningAborted": "its cleaning is being stopped",
        }.get(str(state), "its cleaning is paused")
        return Blocker(code=Code.PAUSED, text=text)
    mark = manager.mark_of(log)
    if mark is not None and manager.is_kept_out(log, now_ms):
        wait_s = -(-(mark.retry_at_ms - now_ms) // 1000)
        return Blocker(
            code=Code.UNCLEANABLE,
            until_ms=mark.retry_at_ms,
            text=f"{mark.stage.value} failed: {mark.reason}; it is retried in {wait_s} s",
        )
    return None


def _why_due(cleanable: Cleanable, log: PartitionLog) -> str:
    least = log.config.min_cleanable_dirty_ratio
    if cleanable.due:
        return f"something in {len(cleanable.due)} clean segments has become removable"
    if cleanable.ratio > least:
        return f"its dirty ratio {cleanable.ratio:.4g} is above min.cleanable.dirty.ratio {least:g}"
    if not cleanable.delay_ms:
        return "; ".join(rule.why_due for rule in removal_rules(log.config))
    return (
        f"max.compaction.lag.ms: its oldest dirty record is {cleanable.delay_ms} ms past "
        f"{log.config.max_compaction_lag_ms} ms"
    )
