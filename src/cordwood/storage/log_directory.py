"""One entry of log.dirs in use: held by its `.lock`, loaded, checkpointed.

`storage.log_dir.LogDir` is the same directory seen by one who only visits it while no broker runs.

Source: org.apache.kafka.storage.internals.log.LogManager.loadLogs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol
from uuid import UUID

from cordwood.format.clean_shutdown import build_clean_shutdown
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_DIR,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REMOTE_LOG_INDEX_CACHE,
    REPLICATION_OFFSET_CHECKPOINT,
    STRAY_DIR_SUFFIX,
)
from cordwood.format.meta_properties import parse_meta_properties
from cordwood.model.config import LogConfig
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.model.kafka_errors import StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.directory_names import parse_directory_name
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.offset_checkpoint_file import OffsetCheckpointFile

_log = logging.getLogger(__name__)

Logs = Callable[[], Iterable[PartitionLog]]
"""Gives logs as they are when it is called."""


class LoadProgress(Protocol):
    """Receives the progress of loading a directory."""

    def begin(self, log_dir: Path, total: int) -> None:
        """`total` logs are about to be loaded from `log_dir`."""

    def advance(self, log_dir: Path, name: str) -> None:
        """Called when a log is loaded."""

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


class LogDirectory:
    """A log directory that this process holds.

    `had_clean_shutdown` says how it was left; the mark is removed when the loading begins.
    """

    def __init__(self, path: Path, *, context: LogContext) -> None:
        """Makes the directory where there is none, and takes its lock.

        Raises:
            DirectoryInUseError: another process holds it.
            CorruptError: `meta.properties` cannot be understood.
            OSError: it cannot be used.
        """
        self.path = path
        self._context = context
        self._fs = context.fs
        self._make()
        self.directory_id = self._read_id()
        self._lock = self._fs.lock(path)
        self.had_clean_shutdown = self._fs.exists(path / CLEAN_SHUTDOWN)
        self.recovery_points = self._file(RECOVERY_POINT_CHECKPOINT)
        self.log_starts = self._file(LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = self._file(REPLICATION_OFFSET_CHECKPOINT)
        self.cleaner_offsets = self._file(CLEANER_OFFSET_CHECKPOINT)

    def _make(self) -> None:
        """Makes the directory with a name that lasts: nothing in it lasts longer."""
        missing = [path for path in (self.path, *self.path.parents) if not self._fs.exists(path)]
        if missing:
            self._fs.make_directory(self.path)
        for path in missing:
            self._fs.sync_directory(path.parent)

    def _file(self, name: str) -> OffsetCheckpointFile:
        return OffsetCheckpointFile(self.path / name, fs=self._fs)

    def _read_id(self) -> UUID | None:
        path = self.path / META_PROPERTIES
        try:
            return parse_meta_properties(self._fs.read_bytes(path)).directory_id
        except FileNotFoundError:
            return None
        except CorruptError as error:
            raise error.located(path=str(path)) from error

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
                self._fs.remove(self.path / CLEAN_SHUTDOWN)
                self._fs.sync_directory(self.path)
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
                    log_start_offset=0 if suffix else starts.get(partition, 0),
                    on_segment=lambda number, total: progress.segment(name, number, total),
                )
            )
            if not suffix and log.recovery_point < recovery_points.get(partition, 0):
                lowered[partition] = log.recovery_point
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

    def _lower_recovery_points(
        self, lines: dict[TopicPartition, int], lowered: dict[TopicPartition, int]
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
        found = {
            entry.name: parse_directory_name(entry.name, parent=str(self.path))
            for entry in self._fs.entries_in(self.path)
            if entry.is_directory
            and entry.name not in {REMOTE_LOG_INDEX_CACHE, CLUSTER_METADATA_DIR}
        }
        for name in [name for name, (_, suffix) in found.items() if suffix == STRAY_DIR_SUFFIX]:
            _log.warning("Found stray log: %s", self.path / name)
            del found[name]
        return found

    def write_recovery_points(self, logs: Logs) -> None:
        """Writes the recovery points of the directory's current logs, which `logs` gives."""
        self.recovery_points.write_current(
            lambda: {log.topic_partition: log.recovery_point for log in logs()}
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
        self._fs.write_durably(self.path / CLEAN_SHUTDOWN, build_clean_shutdown(broker_epoch))

    def release(self) -> None:
        """Releases the lock; its file may remain if the disk has failed."""
        try:
            self._lock.release()
        except (OSError, NoSpaceError) as error:
            _log.warning("The file .lock of %s could not be removed: %s", self.path, error)
