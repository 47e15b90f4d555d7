"""A log directory of a running broker: locked, loaded, checkpointed.

Source: org.apache.kafka.storage.internals.log.LogManager.loadLogs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from cordwood.configs.log_config import LogConfig
from cordwood.format.clean_shutdown import build_clean_shutdown
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLUSTER_METADATA_DIR,
    PARTITION_METADATA,
    STRAY_DIR_SUFFIX,
)
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.model.kafka_errors import StorageError
from cordwood.model.offsets import LEADERS_END_MAX
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_directory import LogDirectory

_log = logging.getLogger(__name__)

Logs = Callable[[], Iterable[PartitionLog]]
"""Gives logs as they are when it is called."""


class LoadProgress(Protocol):
    """Receives the progress of loading a directory."""

    def begin(self, log_dir: Path, total: int) -> None:
        """`total` logs are about to be loaded from `log_dir`."""

    def advance(self, log_dir: Path, name: str) -> None:
        """Counts a log that has been loaded."""

    def segment(self, name: str, number: int, total: int) -> None:
        """Segment `number` of `total` of a log is about to be recovered."""


class Silent:
    """A listener that shows nothing."""

    def begin(self, log_dir: Path, total: int) -> None:
        """Shows nothing."""

    def advance(self, log_dir: Path, name: str) -> None:
        """Shows nothing."""

    def segment(self, name: str, number: int, total: int) -> None:
        """Shows nothing."""


class LoadedLogDirectory(LogDirectory):
    """A log directory that this process has locked.

    `had_clean_shutdown` says how it was left; the mark is removed when the loading begins.
    """

    def __init__(self, path: Path, *, context: LogContext) -> None:
        """Makes the directory where there is none, and takes its lock.

        Raises:
            DirectoryInUseError: another process holds it.
            CorruptError: `meta.properties` cannot be understood.
            OSError: it cannot be used.
        """
        self._context = context
        context.fs.make_directory_durably(path)
        super().__init__(path, fs=context.fs, reads_id=True)
        self.directory_id = None if self.meta is None else self.meta.directory_id
        self._lock = self.fs.lock(path)
        self.had_clean_shutdown = self.has_clean_shutdown_file()

    def load(
        self,
        config_of: Callable[[str], LogConfig],
        *,
        threads: int,
        progress: LoadProgress,
    ) -> Iterator[tuple[PartitionLog, str]]:
        """Every log of the directory, with the suffix of its directory's name.

        Stray ones are left as they are. A file's error takes the directory offline, and ends the
        loading; what cannot be understood is raised, a directory's name before anything is touched.
        """
        clean = self.had_clean_shutdown
        try:
            names = self._partition_names()
            if clean:
                self.fs.remove(self.path / CLEAN_SHUTDOWN)
                self.fs.sync_directory(self.path)
            recovery_points = self.recovery_points.read_or_nothing(
                "recovery-point-offset-checkpoint"
            )
            starts = self.log_starts.read_or_nothing("log-start-offset-checkpoint")
            marks = self.high_watermarks.read_or_nothing("replication-offset-checkpoint")
        except OSError as error:
            self._context.failures.fail(self.path, f"Error while loading log dir: {error}")
            return
        _log.info(
            "Skipping recovery of %s logs from %s since clean shutdown file was found"
            if clean
            else "Recovering %s logs from %s since no clean shutdown file was found",
            len(names),
            self.path,
        )
        progress.begin(self.path, len(names))
        lowered: dict[TopicPartition, int] = {}

        def load_one(name: str) -> tuple[PartitionLog, str]:
            partition, suffix = names[name]
            log = load_log(
                LoadRequest(
                    directory=self.path / name,
                    topic_partition=partition,
                    config=config_of(partition.topic),
                    context=self._context,
                    clean_shutdown=clean,
                    # What is marked has the name of a live log, which the checkpoints speak of.
                    recovery_point=0 if suffix else recovery_points.get(partition, 0),
                    log_start_offset=0 if suffix else self._log_start(partition, starts, marks),
                    on_segment=lambda number, total: progress.segment(name, number, total),
                )
            )
            if not suffix and log.offsets.recovery_point < recovery_points.get(partition, 0):
                lowered[partition] = log.offsets.recovery_point
            if not suffix and partition in marks:
                log.update_high_watermark(marks[partition])
            progress.advance(self.path, name)
            return log, suffix

        try:
            if clean or threads < 2:
                for name in names:
                    yield load_one(name)
            else:
                # The walk of unflushed segments is compiled code that lets other threads run.
                with ThreadPoolExecutor(threads, "log-recovery") as pool:
                    yield from pool.map(load_one, names)
            self._lower_recovery_points(recovery_points, lowered)
        except StorageError:
            if self.path not in self._context.failures.offline:
                raise
        except CorruptError as error:
            # The log's partition is unknown; the other directories can be served all the same.
            if error.path is None or Path(error.path).name != PARTITION_METADATA:
                raise
            self._context.failures.fail(self.path, f"Error while reading {error}")

    def _log_start(
        self,
        partition: TopicPartition,
        starts: Mapping[TopicPartition, int],
        marks: Mapping[TopicPartition, int],
    ) -> int:
        """The checkpointed log start offset of a log; 0 if no broker has written it.

        A log that ends before it is emptied, and continues there: a damaged line would take all
        records. Of a clean stop it is never above the high watermark.
        """
        start = starts.get(partition, 0)
        mark = marks.get(partition)
        is_beyond = self.had_clean_shutdown and mark is not None and start > mark
        if not is_beyond and start <= LEADERS_END_MAX:
            return start
        _log.error(
            "The line of %s in %s is not taken: log start offset %s %s. The records stay",
            partition,
            self.log_starts.path,
            start,
            f"is above the high watermark {mark} of a clean stop" if is_beyond else "is no log's",
        )
        return 0

    def _lower_recovery_points(
        self, lines: Mapping[TopicPartition, int], lowered: dict[TopicPartition, int]
    ) -> None:
        """Writes lower lines: what is appended next lies below the old ones, and is not flushed."""
        if lowered:
            with self._context.failures.guard(self.path, "writing the recovery points of"):
                self.recovery_points.write({**lines, **lowered})

    def _partition_names(self) -> dict[str, tuple[TopicPartition, str]]:
        """(partition, suffix) by the name of its directory, of all that are to be loaded.

        Raises:
            NotALogDirError: a name is no partition's.
        """
        found = self.parse_names(self.fs.entries_in(self.path))
        found.pop(CLUSTER_METADATA_DIR, None)
        for name in [name for name, (_, suffix) in found.items() if suffix == STRAY_DIR_SUFFIX]:
            _log.warning("Found stray log: %s", self.path / name)
            del found[name]
        return found

    def write_recovery_points(self, logs: Logs) -> None:
        """Writes the recovery points of the directory's current logs, which `logs` gives."""
        self.recovery_points.write_current(
            lambda: {log.topic_partition: log.offsets.recovery_point for log in logs()}
        )

    def write_log_starts(self, logs: Logs) -> None:
        """Writes the log start offsets that the first segments of the logs do not tell."""
        self.log_starts.write_current(
            lambda: {
                log.topic_partition: log.log_start_offset
                for log in logs()
                if log.log_start_offset > log.segments.first.base_offset
            }
        )

    def write_high_watermarks(self, logs: Logs) -> None:
        """Writes the high watermarks of the logs."""
        self.high_watermarks.write_current(
            lambda: {log.topic_partition: log.high_watermark for log in logs()}
        )

    def write_checkpoints(self, logs: Logs) -> None:
        """Writes all of them, in the order in which a broker that stops does."""
        self.write_recovery_points(logs)
        self.write_log_starts(logs)
        self.write_high_watermarks(logs)

    def mark_clean(self, broker_epoch: int) -> None:
        """Writes the mark of a clean stop, last of all."""
        self.fs.write_durably(self.path / CLEAN_SHUTDOWN, build_clean_shutdown(broker_epoch))

    def release(self) -> None:
        """Releases the lock; its file may remain if the disk has failed."""
        try:
            self._lock.release()
        except (OSError, NoSpaceError) as error:
            _log.warning("The file .lock of %s could not be removed: %s", self.path, error)
