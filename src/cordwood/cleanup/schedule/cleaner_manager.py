"""Chooses the running log that is cleaned next, and excludes those that must not be cleaned now.

The states of partitions (`CleaningStates`) and their checkpoints (`CleanerCheckpoints`) are guarded
by one lock. Code that truncates, deletes or moves a log, or takes `compact` from its policy, first
aborts its cleaning, which waits until the cleaner has released it; `paused_changes` does both. The
lock is never held together with a log's lock by calls from outside.

Source: org.apache.kafka.storage.internals.log.LogCleanerManager.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cordwood.cleanup.access.capture import capture, view_of
from cordwood.cleanup.access.online.groups import OnlineGroups
from cordwood.cleanup.rules.cleanable import Cleanable, plan_cleanable
from cordwood.cleanup.rules.due import DueRule
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.removals import removal_rules
from cordwood.cleanup.schedule.cleaner_backlog import CleanerBacklog
from cordwood.cleanup.schedule.cleaner_checkpoints import CleanerCheckpoints
from cordwood.cleanup.schedule.cleaning_order import CleaningSchedule, DueLog
from cordwood.cleanup.schedule.cleaning_states import (
    Aborted,
    CleaningStates,
    InProgress,
    LogCleaningAbortedError,
)
from cordwood.cleanup.schedule.quarantine import Mark, Quarantine, Stage
from cordwood.model.errors import CordwoodError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.append.payload import read_bounds
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.reading.source import SegmentSource

_log = logging.getLogger(__name__)

_LOOKS_MAX = 3


class LogCleaningError(CordwoodError):
    """The error of one log, and its stage, for the code that marks it uncleanable.

    Source: org.apache.kafka.storage.internals.log.LogCleaningException.
    """

    def __init__(self, log: PartitionLog, reason: str, *, stage: Stage = Stage.COMPACTION) -> None:
        super().__init__(reason)
        self.log = log
        self.reason = reason
        self.stage = stage


@dataclass(frozen=True, slots=True, kw_only=True)
class LogToClean:
    """The log that is next, and the statistics of the search.

    `cleanable_partitions` logs were candidates; `delayed_partitions` of all checked logs
    are past their max.compaction.lag.ms, the longest by `max_delay_ms`.

    Source: LogToClean, PreCleanStats.
    """

    log: PartitionLog
    cleanable: Cleanable
    cleanable_partitions: int
    delayed_partitions: int
    max_delay_ms: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the log."""
        return self.log.topic_partition


def due_log(log: PartitionLog, cleanable: Cleanable) -> DueLog:
    """A running log as the schedule takes it."""

    def segments() -> Sequence[SegmentSource]:
        return capture(log, end=cleanable.cleaned_to).sources

    return DueLog(
        partition=log.topic_partition,
        cleanable=cleanable,
        identity=(id(log), log.offsets.truncation_count),
        segments=segments,
        bounds=read_bounds(log.config),
        fs=log.context.fs,
    )


class CleanerManager:
    """Selects the logs of a `LogManager` that are cleaned.

    `states` are those of partitions, `checkpoints` say how far each log is clean. `dirtiest_ratio`
    is the highest dirty ratio at the last `grab_filthiest`, `schedule` puts the logs that are due
    in order, `backlog` is what was due at the last looks. `quarantine` has the uncleanable logs,
    and the time until each is retried. `groups` are those that the retention of logs waits for.
    """

    def __init__(self, logs: LogManager) -> None:
        """Listens to `logs` for partitions that are removed or moved, and directories that fail."""
        self.logs = logs
        self.dirtiest_ratio = 0.0
        self.schedule = CleaningSchedule()
        self.backlog = CleanerBacklog()
        self.states = CleaningStates()
        self._lock = self.states.lock
        self.checkpoints = CleanerCheckpoints(logs, self._lock)
        self.quarantine = Quarantine()
        # When a log was last cleaned: markers whose horizons had passed then have to stay.
        self._settled: dict[TopicPartition, tuple[PartitionLog, int]] = {}
        self.groups = OnlineGroups()
        self._last_run_ms = logs.context.clock.now_ms()
        logs.on_removed.append(self._removed)
        logs.context.failures.subscribe(
            lambda path, _: self.checkpoints.handle_log_dir_failure(path)
        )

    def current_logs(self) -> list[PartitionLog]:
        """Every log except future logs."""
        return [log for log in self.logs.logs() if self.logs.get(log.topic_partition) is log]

    def view_of(self, log: PartitionLog, line: int | None) -> LogView:
        """A log at this moment, as the cleaner sees it; `line` is that of its checkpoint."""
        view = view_of(log, line)
        settled, at_ms = self._settled.get(log.topic_partition, (None, -1))
        return replace(view, settled_ms=at_ms) if settled is log else view

    def note_settled(self, log: PartitionLog, now_ms: int) -> None:
        """Notes that a cleaning at `now_ms` has removed of a log what it can at that moment."""
        if DueRule.of(log.config) is not None:
            with self._lock:
                self._settled[log.topic_partition] = (log, now_ms)

    # ---- selection of logs

    def grab_filthiest(
        self, now_ms: int, *, passing_over: Collection[TopicPartition] = ()
    ) -> LogToClean | None:
        """The compacted log with the highest dirty ratio of those due; it is then in progress.

        With cordwood.cleaner.order=freed, the one that the schedule has first.
        Invalid checkpoints are rewritten, also of logs that are not chosen.

        Args:
            now_ms: the time for compaction lags.
            passing_over: partitions that must not be chosen.

        Raises:
            LogCleaningError: a log could not be checked.
        """
        for _ in range(_LOOKS_MAX):
            self._last_run_ms = now_ms
            # Logs are checked without the lock: other threads must not wait for the disk.
            candidates = self._candidates(now_ms, passing_over)
            found = []
            for log, line in candidates:
                cleanable = None if _is_idle(log, line) else self._look_at(log, line, now_ms)
                self._note_look(log, cleanable)
                if cleanable is not None:
                    found.append((log, line, cleanable))
            self.dirtiest_ratio = max((c.ratio for _, _, c in found), default=0.0)
            due = {
                log.topic_partition: (log, line, cleanable)
                for log, line, cleanable in found
                if cleanable.reason is None
            }
            self.backlog.note(now_ms, sum(c.cleanable_bytes for _, _, c in due.values()))
            if not due:
                return None
            ranked = self.schedule.ranked([due_log(log, c) for log, _, c in due.values()])
            chosen = self._grab([(each, *due[each.partition][:2]) for each in ranked])
            if chosen is not None:
                delays = [c.delay_ms for _, _, c in found if c.delay_ms > 0]
                return LogToClean(
                    log=chosen[0],
                    cleanable=chosen[1],
                    cleanable_partitions=len(due),
                    delayed_partitions=len(delays),
                    max_delay_ms=max(delays, default=0),
                )
        return None  # others were quicker each time

    def rollable_logs(self, now_ms: int) -> list[PartitionLog]:
        """Compacted logs that nobody works on, of whose records rules remove some in any case."""
        with self._lock:
            return [
                log
                for log in self.current_logs()
                if log.config.compact
                and removal_rules(log.config)
                and self.states.of(log.topic_partition) is None
                and not self.quarantine.keeps_out(log, now_ms)
            ]

    def _candidates(
        self, now_ms: int, passing_over: Collection[TopicPartition]
    ) -> list[tuple[PartitionLog, int | None]]:
        """Compacted logs that nobody works on, and how far each is clean."""
        with self._lock:
            lines = self.checkpoints.by_directory()
            return [
                (log, lines.get(log.log_dir, {}).get(log.topic_partition))
                for log in self.current_logs()
                if log.config.compact
                and self.states.of(log.topic_partition) is None
                and log.topic_partition not in passing_over
                and not self.quarantine.keeps_out(log, now_ms)
            ]

    def _grab(
        self, ranked: Sequence[tuple[DueLog, PartitionLog, int | None]]
    ) -> tuple[PartitionLog, Cleanable] | None:
        """The first that is still as it was when it was looked at; it is then in progress."""
        with self._lock:
            lines = self.checkpoints.by_directory()
            for due, log, line in ranked:
                partition, cleanable = log.topic_partition, due.cleanable
                seen = cleanable.first_dirty if cleanable.reset_checkpoint else line
                if (
                    self.states.of(partition) is None
                    and not log.holds
                    and self.logs.get(partition) is log
                    and lines.get(log.log_dir, {}).get(partition) == seen
                ):
                    self.states.begin([partition])
                    self.schedule.note_turn(due)
                    return log, cleanable
        return None

    def _note_look(self, log: PartitionLog, cleanable: Cleanable | None) -> None:
        """A log that can be looked at, or has nothing left to be cleaned, may be sound again."""
        self.note_sound(log, Stage.LOOK)
        if cleanable is None or (cleanable.blocker is not None and not cleanable.cleanable_bytes):
            self.note_sound(log, Stage.COMPACTION)

    def _look_at(self, log: PartitionLog, line: int | None, now_ms: int) -> Cleanable:
        try:
            cleanable = plan_cleanable(self.view_of(log, line), now_ms=now_ms)
            for warning in cleanable.warnings:
                _log.warning("%s", warning)
            if cleanable.reset_checkpoint:
                line_now = (log.topic_partition, cleanable.first_dirty)
                self.checkpoints.update(log.log_dir, line=line_now)
        except Exception as error:
            raise LogCleaningError(
                log,
                f"Failed to calculate log cleaning stats for partition {log.topic_partition}: "
                f"{error}",
                stage=Stage.LOOK,
            ) from error
        return cleanable

    def pause_for_retention(self) -> list[PartitionLog]:
        """Logs without `compact` that no thread works on; they are then paused.

        So a log is never cleaned and checked by retention at the same time while its policy
        changes.

        Source: LogCleanerManager.pauseCleaningForNonCompactedPartitions.
        """
        with self._lock:
            logs = [
                log
                for log in self.current_logs()
                if not log.config.compact and self.states.of(log.topic_partition) is None
            ]
            self.states.pause(log.topic_partition for log in logs)
            return logs

    def deletable_logs(self) -> list[PartitionLog]:
        """Logs with `compact` that may lose old segments; they are then in progress.

        Also those without `delete`: segments below their log start offset go.
        """
        now_ms = self.logs.context.clock.now_ms()
        with self._lock:
            logs = [
                log
                for log in self.current_logs()
                if log.config.compact
                and self.states.of(log.topic_partition) is None
                and not self.quarantine.keeps_from_retention(log, now_ms)
            ]
            self.states.begin(log.topic_partition for log in logs)
            return logs

    # ---- the end of a cleaning

    def check_cleaning_aborted(self, log: PartitionLog) -> None:
        """Checks, before each step of a cleaner, that its log may still be cleaned.

        Raises:
            LogCleaningAbortedError: the log is needed by somebody else, or its directory failed.
        """
        if isinstance(self.states.of(log.topic_partition), Aborted):
            raise LogCleaningAbortedError(f"the cleaning of {log.topic_partition} was aborted")
        if self.checkpoints.is_failed(log.log_dir):
            raise LogCleaningAbortedError(f"the log dir {log.log_dir} is offline")

    def done_cleaning(self, partition: TopicPartition, log_dir: Path, end_offset: int) -> None:
        """Ends the cleaning of a log; writes its checkpoint unless the cleaning was aborted.

        Args:
            partition: that was in progress.
            log_dir: where it is.
            end_offset: how far it is clean, exclusive.

        Raises:
            CleaningStateError: it was not in progress.
        """
        with self._lock:
            if isinstance(self.states.in_progress(partition), InProgress):
                self.checkpoints.update(log_dir, line=(partition, end_offset))
            self.states.done([partition])

    def alter_checkpoint_dir(
        self, partition: TopicPartition, source: Path, destination: Path
    ) -> None:
        """Moves a partition's line, and its mark as uncleanable, to another directory."""
        with self._lock:
            self.checkpoints.move(partition, source, destination)
            log = self.logs.get(partition)
            if log is not None:
                self.quarantine.move(log, source, destination)

    def _removed(self, partition: TopicPartition, log_dir: Path) -> None:
        """Handles a log that will be deleted, was moved, or was lost with its directory."""
        if log_dir in self.logs.context.failures.offline:
            # Not a moment to wait in: the thread that met the failure may be the cleaner's own.
            self.checkpoints.handle_log_dir_failure(log_dir)
            return
        log = self.logs.get(partition)
        if log is not None:
            self.alter_checkpoint_dir(partition, log_dir, log.log_dir)
            return
        self.states.abort_cleaning(partition)
        self.checkpoints.update(log_dir, remove=partition)

    # ---- logs that cannot be cleaned

    def mark_uncleanable(
        self,
        log: PartitionLog,
        reason: str,
        *,
        stage: Stage = Stage.COMPACTION,
        retry_free_bytes: int | None = None,
    ) -> None:
        """Sets a log aside for a time that doubles, or until so many bytes are free."""
        now = self.logs.context.clock.now_ms()
        with self._lock:
            free = retry_free_bytes
            self.quarantine.add(log, reason, stage=stage, now_ms=now, retry_free_bytes=free)

    def note_sound(self, log: PartitionLog, stage: Stage) -> None:
        """Removes a log's mark if it was made at this stage, which has now succeeded."""
        with self._lock:
            mark = self.quarantine.heal(log, stage)
        if mark is not None:
            _log.info(
                "Partition %s is cleaned again: %s succeeded after %s failed attempts (%s)",
                log.topic_partition,
                stage.value,
                mark.attempts,
                mark.reason,
            )

    def mark_of(self, log: PartitionLog) -> Mark | None:
        """Why a log is set aside, if it is; one that was recreated since is not."""
        with self._lock:
            return self.quarantine.of(log)

    def is_uncleanable(self, log: PartitionLog) -> bool:
        """Whether a log was marked; one that was recreated since was not."""
        return self.mark_of(log) is not None

    def is_kept_out(self, log: PartitionLog, now_ms: int) -> bool:
        """Whether a log is marked and not yet due for a retry."""
        with self._lock:
            return self.quarantine.keeps_out(log, now_ms)

    def uncleanable_partitions(self, log_dir: Path) -> dict[TopicPartition, str]:
        """The partitions of a directory that were marked, and why."""
        with self._lock:
            marks = self.quarantine.in_directory(log_dir)
        return {partition: mark.reason for partition, mark in marks.items()}

    def maintain_uncleanable(self) -> None:
        """Removes marks of deleted logs, and saves checkpoints that did not fit the disk before.

        Source: LogCleanerManager.maintainUncleanablePartitions.
        """
        with self._lock:
            self.checkpoints.save()
            self.quarantine.forget(lambda log: self.logs.get(log.topic_partition) is not log)
            for partition, (log, _) in list(self._settled.items()):
                if self.logs.get(partition) is not log:
                    del self._settled[partition]

    def check_invariants(self) -> None:
        """Asserts that logs are settled under their own names, and what the parts assert."""
        self.states.check_invariants()
        self.checkpoints.check_invariants()
        with self._lock:
            for partition, (log, _) in self._settled.items():
                assert log.topic_partition == partition, f"{partition} is noted for {log}"

    # ---- gauges

    def uncleanable_count(self, log_dir: Path) -> int:
        """uncleanable-partitions-count of a directory."""
        return len(self.uncleanable_partitions(log_dir))

    def uncleanable_bytes(self, log_dir: Path, now_ms: int) -> int:
        """uncleanable-bytes of a directory: the cleanable bytes of its marked logs."""
        with self._lock:
            lines = self.checkpoints.of(log_dir)
            marks = self.quarantine.in_directory(log_dir)
        total = 0
        for partition, mark in marks.items():
            if self.logs.get(partition) is mark.log:
                with suppress(CordwoodError, OSError):  # it may be just that which is wrong
                    view = self.view_of(mark.log, lines.get(partition))
                    total += plan_cleanable(view, now_ms=now_ms).cleanable_bytes
        return total

    @property
    def max_dirty_percent(self) -> int:
        """The metric max-dirty-percent."""
        return int(100 * self.dirtiest_ratio)

    def time_since_last_run_ms(self, now_ms: int) -> int:
        """time-since-last-run-ms: since `grab_filthiest` last looked."""
        return now_ms - self._last_run_ms


def _is_idle(log: PartitionLog, line: int | None) -> bool:
    """Whether all but the active segment is clean, so that no further check is needed."""
    if line is None or DueRule.of(log.config) is not None:
        return False
    active = log.active.base_offset
    return max(active, log.log_start_offset) <= line <= log.log_end_offset
