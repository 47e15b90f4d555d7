"""Logs that are to be deleted: renamed at once, removed or moved to the trash after a delay.

Source: org.apache.kafka.storage.internals.log.LogManager.asyncDelete, deleteLogs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

from cordwood.model.hold import held_by
from cordwood.storage.directory_names import delete_directory_name, stray_directory_name
from cordwood.storage.failures import reported
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.trashed_logs import dispose_of

_log = logging.getLogger(__name__)


class DeletedLogs:
    """The logs of one process that wait for their deletion; any thread may call it."""

    def __init__(self, context: LogContext, delay_ms: Callable[[], int]) -> None:
        """No log waits; `delay_ms` returns log.segment.delete.delay.ms."""
        self._context = context
        self._delay_ms = delay_ms
        self._lock = threading.Lock()
        # Each with the time (ms) at which it was marked.
        self._waiting: list[tuple[PartitionLog, int]] = []
        self._is_stopped = False

    def start(self, *, delay_ms: int) -> None:
        """Schedules the deletions, the first in `delay_ms`."""
        self._context.scheduler.schedule_once(
            "kafka-delete-logs", self._delete_due, delay_ms=delay_ms
        )

    def stop(self) -> None:
        """Schedules nothing more."""
        self._is_stopped = True

    def put(self, log: PartitionLog) -> None:
        """Adds a log whose directory has the name of one to be deleted."""
        with self._lock:
            self._waiting.append((log, self._context.clock.now_ms()))

    def mark(self, log: PartitionLog, *, sync_name: bool = True) -> None:
        """Renames a log's directory to be deleted in a while."""
        name = delete_directory_name(log.topic_partition, self._context.rng.unique_id())
        log.rename_directory(log.log_dir / name, sync_name=sync_name)
        self.put(log)
        _log.info(
            "Log for partition %s is renamed to %s and is scheduled for deletion",
            log.topic_partition,
            log.directory,
        )

    def mark_stray(self, log: PartitionLog) -> None:
        """Renames a log's directory to one that no start loads, and nothing removes."""
        name = stray_directory_name(log.topic_partition, self._context.rng.unique_id())
        log.rename_directory(log.log_dir / name)
        log.close_handlers()

    def keep_held(self, log: PartitionLog) -> None:
        """Marks a log with a legal hold, which was to be deleted, as stray."""
        held = held_by(log.holds)
        self.mark_stray(log)
        _log.warning(
            "Log for partition %s was to be deleted and is %s: it is kept in %s",
            log.topic_partition,
            held,
            log.directory,
        )

    def dispose_of_topic(self, topic_id: UUID) -> None:
        """Moves the deleted logs of a topic to the trash now, without file.delete.delay.ms.

        Raises:
            CordwoodError: one cannot be moved.
        """
        for log in self._pop(lambda log, _: log.topic_id == topic_id):
            if not dispose_of(log):
                self.put(log)

    def forget_directory(self, log_dir: Path) -> None:
        """Forgets the logs of a directory that has failed."""
        self._pop(lambda log, _: log.log_dir == log_dir)

    def _pop(self, is_wanted: Callable[[PartitionLog, int], bool]) -> list[PartitionLog]:
        with self._lock:
            found = [each for each in self._waiting if is_wanted(*each)]
            self._waiting = [each for each in self._waiting if not is_wanted(*each)]
            return [log for log, _ in found]

    def _delete_due(self) -> None:
        delay_ms, now_ms = self._delay_ms(), self._context.clock.now_ms()
        due = self._pop(lambda _, at_ms: at_ms <= now_ms - delay_ms)
        next_ms = min((at_ms for _, at_ms in self._waiting), default=now_ms)
        for log in due:
            with reported(log, "deleting"):
                if not dispose_of(log):
                    self.put(log)
        if not self._is_stopped:
            self.start(delay_ms=max(1, next_ms + delay_ms - now_ms))
