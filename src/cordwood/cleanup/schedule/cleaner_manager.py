"""The cleaning states of running logs (in progress, paused, uncleanable), and their checkpoints.

A partition has no state, or one of three:

    none ── grab ──► InProgress ── done ──► none
                         │ abort_and_pause
                         ▼
                      Aborted ── done ──► Paused(1) ── resume ──► none
    none ── abort_and_pause ──► Paused(1) ── abort_and_pause ──► Paused(2) ── resume ──► Paused(1)

Code that truncates, deletes or moves a log, or takes `compact` from its policy, first aborts its
cleaning, which waits until the cleaner has released it; `paused_changes` does both. One lock guards
the states and the checkpoints; it is never held together with a log's lock by calls from outside.

Source: org.apache.kafka.storage.internals.log.LogCleanerManager, LogCleaningState.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cordwood.cleanup.access.capture import capture, view_of
from cordwood.cleanup.access.online_groups import OnlineGroups
from cordwood.cleanup.rules.cleanable import Cleanable, plan_cleanable
from cordwood.cleanup.rules.due import DueRule
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.removals import removal_rules
from cordwood.cleanup.schedule.cleaner_backlog import CleanerBacklog
from cordwood.cleanup.schedule.cleaning_order import CleaningSchedule, DueLog
from cordwood.cleanup.schedule.quarantine import Mark, Quarantine, Stage
from cordwood.format.checkpoint_order import cleaner_offset_order, truncated_cleaner_order
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.append.payload import decompressed_bytes_max
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.offset_checkpoint_file import OffsetCheckpointFile
from cordwood.storage.reading.source import SegmentSource

_log = logging.getLogger(__name__)

_WAIT_S = 0.1
_LOOKS_MAX = 3


class LogCleaningAbortedError(CordwoodError):
    """The cleaning of a log must stop: other code needs the log.

    Source: org.apache.kafka.storage.internals.log.LogCleaningAbortedException.
    """


class CleaningStateError(CordwoodError):
    """A change of a partition's state that its present one does not allow."""


class LogCleaningError(CordwoodError):
    """The error of one log, and its stage, for the code that marks it uncleanable.

    Source: org.apache.kafka.storage.internals.log.LogCleaningException.
    """

    def __init__(self, log: PartitionLog, reason: str, *, stage: Stage = Stage.COMPACTION) -> None:
        super().__init__(reason)
        self.log = log
        self.reason = reason
        self.stage = stage


@dataclass(frozen=True, slots=True)
class InProgress:
    """Being compacted, or losing old segments, by that thread."""

    thread: threading.Thread

    def __str__(self) -> str:
        return "LogCleaningInProgress"


@dataclass(frozen=True, slots=True)
class Aborted:
    """Its cleaning, by a thread, has to stop."""

    thread: threading.Thread

    def __str__(self) -> str:
        return "LogCleaningAborted"


@dataclass(frozen=True, slots=True)
class Paused:
    """Not to be cleaned before as many calls of `resume_cleaning`."""

    count: int

    def __str__(self) -> str:
        return f"LogCleaningPaused({self.count})"


CleaningState = InProgress | Aborted | Paused


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
        identity=(id(log), log.truncation_count),
        segments=segments,
        batch_bytes_max=decompressed_bytes_max(log.config.max_message_bytes),
        fs=log.context.fs,
    )


class CleanerManager:
    """States and checkpoints of the cleaning of a `LogManager`'s logs.

    `dirtiest_ratio` is the highest dirty ratio at the last `grab_filthiest`, `schedule` puts the
    logs that are due in order, `backlog` is what was due at the last looks.
    `quarantine` has the uncleanable logs, and the time until each is retried. `groups` are those
    that the retention of logs waits for.
    """

    def __init__(self, logs: LogManager) -> None:
        """Listens to `logs` for partitions that are removed or moved, and directories that fail."""
        self.logs = logs
        self.dirtiest_ratio = 0.0
        self.schedule = CleaningSchedule()
        self.backlog = CleanerBacklog()
        self._lock = threading.RLock()
        self._let_go = threading.Condition(self._lock)
        self._states: dict[TopicPartition, CleaningState] = {}
        self.quarantine = Quarantine()
        # When a log was last cleaned: markers whose horizons had passed then have to stay.
        self._settled: dict[TopicPartition, tuple[PartitionLog, int]] = {}
        self.groups = OnlineGroups()
        self._checkpoints = {d.path: d.cleaner_offsets for d in logs.directories}
        # Added to without the lock: a directory may fail under any other lock.
        self._failed: set[Path] = set()
        # Lines of checkpoints for which the disk had no space, until they are written.
        self._unsaved: dict[Path, dict[TopicPartition, int]] = {}
        self._last_run_ms = logs.context.clock.now_ms()
        logs.on_removed.append(self._removed)
        logs.context.failures.subscribe(lambda path, _: self.handle_log_dir_failure(path))

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
                and log.topic_partition not in self._states
                and not self.quarantine.keeps_out(log, now_ms)
            ]

    def _candidates(
        self, now_ms: int, passing_over: Collection[TopicPartition]
    ) -> list[tuple[PartitionLog, int | None]]:
        """Compacted logs that nobody works on, and how far each is clean."""
        with self._lock:
            lines = self._lines_of_all()
            return [
                (log, lines.get(log.log_dir, {}).get(log.topic_partition))
                for log in self.current_logs()
                if log.config.compact
                and log.topic_partition not in self._states
                and log.topic_partition not in passing_over
                and not self.quarantine.keeps_out(log, now_ms)
            ]

    def _grab(
        self, ranked: Sequence[tuple[DueLog, PartitionLog, int | None]]
    ) -> tuple[PartitionLog, Cleanable] | None:
        """The first that is still as it was when it was looked at; it is then in progress."""
        with self._lock:
            lines = self._lines_of_all()
            for due, log, line in ranked:
                partition, cleanable = log.topic_partition, due.cleanable
                seen = cleanable.first_dirty if cleanable.reset_checkpoint else line
                if (
                    partition not in self._states
                    and not log.holds
                    and self.logs.get(partition) is log
                    and lines.get(log.log_dir, {}).get(partition) == seen
                ):
                    self._states[partition] = InProgress(threading.current_thread())
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
                self.update_checkpoints(log.log_dir, line=line_now)
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
                if not log.config.compact and log.topic_partition not in self._states
            ]
            for log in logs:
                self._states[log.topic_partition] = Paused(1)
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
                and log.topic_partition not in self._states
                and not self.quarantine.keeps_from_retention(log, now_ms)
            ]
            for log in logs:
                self._states[log.topic_partition] = InProgress(threading.current_thread())
            return logs

    # ---- states

    def state(self, partition: TopicPartition) -> CleaningState | None:
        """A partition's state; None where nothing keeps it from being cleaned. Waits for nobody."""
        return self._states.get(partition)

    def abort_cleaning(self, partition: TopicPartition) -> None:
        """Stops the cleaning of a partition, if one is under way, and returns when it has stopped.

        Raises:
            CleaningStateError: this thread cleans it itself.
        """
        with self._lock:
            self.abort_and_pause(partition)
            self.resume_cleaning([partition])

    def abort_and_pause(self, partition: TopicPartition) -> None:
        """As `abort_cleaning`; it is not cleaned again before `resume_cleaning`.

        Differs: Kafka refuses what another caller is stopping; here that is waited for.

        Raises:
            CleaningStateError: this thread cleans it itself.
        """
        with self._lock:
            state = self._states.get(partition)
            if (
                isinstance(state, (InProgress, Aborted))
                and state.thread is threading.current_thread()
            ):
                raise CleaningStateError(
                    f"Compaction for partition {partition} cannot be aborted and paused since it "
                    f"is in {state} state."
                )
            while isinstance(state, Aborted):
                self._let_go.wait(_WAIT_S)
                state = self._states.get(partition)
            if isinstance(state, InProgress):
                self._states[partition] = Aborted(state.thread)
            else:
                self._states[partition] = Paused(state.count + 1 if state is not None else 1)
            while not isinstance(self._states.get(partition), Paused):
                self._let_go.wait(_WAIT_S)

    def resume_cleaning(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes one pause of each.

        Raises:
            CleaningStateError: one is not paused.
        """
        with self._lock:
            for partition in partitions:
                state = self._states.get(partition)
                if state is None:
                    raise CleaningStateError(
                        f"Compaction for partition {partition} cannot be resumed since it is not "
                        "paused."
                    )
                if not isinstance(state, Paused):
                    raise CleaningStateError(
                        f"Compaction for partition {partition} cannot be resumed since it is in "
                        f"{state} state."
                    )
                if state.count == 1:
                    del self._states[partition]
                else:
                    self._states[partition] = Paused(state.count - 1)

    def check_cleaning_aborted(self, log: PartitionLog) -> None:
        """Called by the cleaner of a log before each step.

        Raises:
            LogCleaningAbortedError: the log is needed by somebody else, or its directory failed.
        """
        with self._lock:
            if isinstance(self._states.get(log.topic_partition), Aborted):
                raise LogCleaningAbortedError(f"the cleaning of {log.topic_partition} was aborted")
        if log.log_dir in self._failed:
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
            if isinstance(self._state_to_leave(partition), InProgress):
                self.update_checkpoints(log_dir, line=(partition, end_offset))
            self._leave(partition)

    def done_deleting(self, partitions: Iterable[TopicPartition]) -> None:
        """Ends the retention of logs from `deletable_logs`.

        Raises:
            CleaningStateError: one was not in progress.
        """
        with self._lock:
            for partition in partitions:
                self._leave(partition)

    def _state_to_leave(self, partition: TopicPartition) -> InProgress | Aborted:
        state = self._states.get(partition)
        if state is None:
            raise CleaningStateError(f"State for partition {partition} should exist.")
        if isinstance(state, Paused):
            raise CleaningStateError(
                f"In-progress partition {partition} cannot be in {state} state."
            )
        return state

    def _leave(self, partition: TopicPartition) -> None:
        if isinstance(self._state_to_leave(partition), InProgress):
            del self._states[partition]
        else:
            self._states[partition] = Paused(1)
            self._let_go.notify_all()

    # ---- checkpoints

    def all_cleaner_checkpoints(self) -> dict[TopicPartition, int]:
        """The cleaner checkpoint of every log, exclusive, from the files."""
        return {p: o for lines in self._lines_of_all().values() for p, o in lines.items()}

    def _lines_of_all(self) -> dict[Path, Mapping[TopicPartition, int]]:
        with self._lock:
            return {path: self._read(path) for path in self._checkpoints}

    def _file(self, log_dir: Path) -> OffsetCheckpointFile | None:
        return None if log_dir in self._failed else self._checkpoints.get(log_dir)

    def _read(self, log_dir: Path) -> Mapping[TopicPartition, int]:
        file = self._file(log_dir)
        if file is None or log_dir in self._unsaved:
            return dict(self._unsaved.get(log_dir, {}))
        try:
            with self.logs.context.failures.guard(log_dir, "reading the cleaner's checkpoint"):
                return file.read_or_nothing(file.path.name)
        except StorageError:
            _note_inaccessible(file)
            return {}

    def _write(self, log_dir: Path, lines: dict[TopicPartition, int]) -> None:
        file = self._file(log_dir)
        if file is None:
            return
        try:
            with self.logs.context.failures.guard(log_dir, "writing the cleaner's checkpoint"):
                file.write(lines)
        except StorageError as error:
            if error.is_out_of_space:
                self._unsaved[log_dir] = dict(
                    lines
                )  # otherwise it would be cleaned again immediately
            else:
                _note_inaccessible(file)
        else:
            self._unsaved.pop(log_dir, None)

    def update_checkpoints(
        self,
        log_dir: Path,
        *,
        line: tuple[TopicPartition, int] | None = None,
        remove: TopicPartition | None = None,
    ) -> None:
        """Sets or removes a line of a directory's checkpoint; also lines of missing partitions.

        Nothing happens for a directory that has failed.
        """
        with self._lock:
            before = self._read(log_dir)
            gone = {p for p in before if self.logs.get(p) is None or p == remove}
            partition, lines = (
                (None, before) if line is None else (line[0], {**before, line[0]: line[1]})
            )
            order = cleaner_offset_order(list(before), update=partition, gone=gone)
            self._write(log_dir, {partition: lines[partition] for partition in order})

    def alter_checkpoint_dir(
        self, partition: TopicPartition, source: Path, destination: Path
    ) -> None:
        """Moves a partition's line, and its mark as uncleanable, to another directory."""
        with self._lock:
            offset = self._read(source).get(partition)
            if offset is not None:
                self.update_checkpoints(source, remove=partition)
                self.update_checkpoints(destination, line=(partition, offset))
            log = self.logs.get(partition)
            if log is not None:
                self.quarantine.move(log, source, destination)

    def maybe_truncate_checkpoint(
        self, log_dir: Path, partition: TopicPartition, offset: int
    ) -> None:
        """Lowers a compacted partition's line to `offset` where it is higher."""
        with self._lock:
            log = self.logs.get(partition)
            lines = self._read(log_dir)
            if log is not None and log.config.compact and lines.get(partition, 0) > offset:
                order = truncated_cleaner_order([*lines])
                lowered = {**lines, partition: offset}
                self._write(log_dir, {each: lowered[each] for each in order})

    def handle_log_dir_failure(self, log_dir: Path) -> None:
        """Stops all cleaning in a directory that went offline, and forgets its checkpoint."""
        if log_dir not in self._failed:
            _log.warning("Stopping cleaning logs in dir %s", log_dir)
            self._failed.add(log_dir)

    def _removed(self, partition: TopicPartition, log_dir: Path) -> None:
        """Called when a log will be deleted, was moved, or was lost with its directory."""
        if log_dir in self.logs.context.failures.offline:
            # Not a moment to wait in: the thread that met the failure may be the cleaner's own.
            self.handle_log_dir_failure(log_dir)
            return
        log = self.logs.get(partition)
        if log is not None:
            self.alter_checkpoint_dir(partition, log_dir, log.log_dir)
            return
        self.abort_cleaning(partition)
        self.update_checkpoints(log_dir, remove=partition)

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
            for log_dir, lines in list(self._unsaved.items()):
                self._write(log_dir, lines)
            self.quarantine.forget(lambda log: self.logs.get(log.topic_partition) is not log)
            for partition, (log, _) in list(self._settled.items()):
                if self.logs.get(partition) is not log:
                    del self._settled[partition]

    # ---- gauges

    def uncleanable_count(self, log_dir: Path) -> int:
        """uncleanable-partitions-count of a directory."""
        return len(self.uncleanable_partitions(log_dir))

    def uncleanable_bytes(self, log_dir: Path, now_ms: int) -> int:
        """uncleanable-bytes of a directory: the cleanable bytes of its marked logs."""
        with self._lock:
            lines = self._read(log_dir)
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
        """max-dirty-percent."""
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


def _note_inaccessible(file: OffsetCheckpointFile) -> None:
    path = file.path
    _log.exception("Failed to access checkpoint file %s in dir %s", path.name, path.parent)
