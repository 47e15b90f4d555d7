"""The log directories of a process and the logs in them: found, and made where there are none.

Source: org.apache.kafka.storage.internals.log.LogManager.getOrCreateLog.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import CordwoodError, CorruptError
from cordwood.model.kafka_errors import KafkaError, StorageError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.directory_names import live_directory_name
from cordwood.storage.loaded_log_directory import LoadedLogDirectory
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_table import LogTable

_log = logging.getLogger(__name__)


def absolute(path: Path) -> Path:
    """A path that does not depend on the working directory."""
    return Path(path).absolute()


@dataclass(frozen=True, slots=True)
class NewLog:
    """A log to be made, as the arguments of `LogManager.get_or_create` describe it."""

    partition: TopicPartition
    topic_id: UUID | None = None
    log_dir: Path | None = None
    directory_id: UUID | None = None
    is_new: bool = True


class LogSet:
    """The logs of some directories; `LogManager` is this with all that happens to them."""

    def __init__(
        self,
        log_dirs: Sequence[Path],
        *,
        defaults: LogConfig | None,
        topic_config: Callable[[str], LogConfig | None],
        context: LogContext | None,
    ) -> None:
        """Opens the log directories, as `LogManager` does."""
        self.defaults = defaults or LogConfig()
        self.context = context or LogContext()
        self._topic_config = topic_config
        # Held while logs are made, moved or deleted, and taken before any log's own; never waited
        # for by who holds one of these.
        self._lock = threading.RLock()
        self._table = LogTable()
        self.directories = self._take([absolute(path) for path in log_dirs])
        self.context.holds.read([directory.path for directory in self.directories])

    def _take(self, paths: Sequence[Path]) -> list[LoadedLogDirectory]:
        taken: list[LoadedLogDirectory] = []
        if len(set(paths)) < len(paths):
            raise CordwoodError(f"Duplicate log directory found: {', '.join(map(str, paths))}")
        try:
            for path in paths:
                try:
                    taken.append(LoadedLogDirectory(path, context=self.context))
                except (OSError, CorruptError, ValueError) as error:  # the last of a path with NUL
                    self.context.failures.fail(path, f"Failed to create or validate it: {error}")
        except CordwoodError:
            for directory in taken:
                directory.release()
            raise
        if not taken:
            raise CordwoodError(
                "Shutdown broker because none of the specified log dirs from "
                f"{', '.join(map(str, paths))} can be created or validated"
            )
        return taken

    def check_invariants(self) -> None:
        """Asserts that logs, their files in memory and their table keep their invariants."""
        self._table.check_invariants()
        self.context.resources.check_invariants()
        for log in self.logs():
            log.check_invariants()

    @property
    def cordoned(self) -> frozenset[Path]:
        """The directories that get no new logs, unless these are to be in one of them."""
        return frozenset()

    # ---- the logs

    def get(self, partition: TopicPartition, *, future: bool = False) -> PartitionLog | None:
        """A partition's log, or its future one."""
        return self._table.get(partition, future=future)

    def logs(self) -> list[PartitionLog]:
        """Every log, future ones behind the others."""
        return self._table.all()

    def get_or_create(
        self,
        partition: TopicPartition,
        *,
        topic_id: UUID | None = None,
        log_dir: Path | None = None,
        directory_id: UUID | None = None,
        is_new: bool = True,
    ) -> PartitionLog:
        """A partition's log, made where there is none.

        Args:
            partition: whose.
            topic_id: the topic's id.
            log_dir: the directory to make it in; if None, the one with the fewest partitions of
                those that are not cordoned, or the only one.
            directory_id: the same by the id that `meta.properties` gives it.
            is_new: the partition is known to be new; if not, and a directory is offline, the log
                may be there.

        Raises:
            InvalidTopicError: no topic can have that name.
            StorageError: no directory would take it.
            InconsistentTopicIdError: the log there belongs to another topic of that name.
        """
        wanted = NewLog(
            partition,
            topic_id=topic_id,
            log_dir=log_dir,
            directory_id=directory_id,
            is_new=is_new,
        )
        (found,) = self.get_or_create_all([wanted])
        if isinstance(found, KafkaError):
            raise found
        return found

    def get_or_create_all(self, wanted: Sequence[NewLog]) -> list[PartitionLog | KafkaError]:
        """The logs of partitions, or why there is none, in their order.

        The names of new logs' directories are on disk when this returns, after one sync of each
        log directory. Others may use the manager between two logs.
        """
        results: list[PartitionLog | KafkaError] = []
        made: dict[Path, list[PartitionLog]] = {}
        for each in wanted:
            try:
                with self._lock:
                    log = self._table.get(each.partition)
                    if log is None:
                        log = self._create_new(each)
                        made.setdefault(log.log_dir, []).append(log)
                    elif each.topic_id is not None:
                        log.assign_topic_id(each.topic_id)
            except KafkaError as error:
                results.append(error)
            else:
                results.append(log)
        for log_dir, logs in made.items():
            try:
                with self.context.failures.guard(log_dir, "creating logs in"):
                    self.context.fs.sync_directory(log_dir)
            except StorageError as error:  # its logs went with the directory
                results = [error if each in logs else each for each in results]
        return results

    def _create_new(self, wanted: NewLog) -> PartitionLog:
        if not wanted.is_new and self.context.failures.offline:
            raise StorageError(
                f"Can not create log for {wanted.partition} because log directories "
                f"{', '.join(str(path) for path in self.context.failures.offline)} are offline"
            )
        log = self._create(
            wanted.partition,
            live_directory_name(wanted.partition),
            wanted.topic_id,
            wanted.log_dir,
            wanted.directory_id,
        )
        self._table.put(log)
        return log

    def _create(
        self,
        partition: TopicPartition,
        name: str,
        topic_id: UUID | None,
        log_dir: Path | None,
        directory_id: UUID | None,
    ) -> PartitionLog:
        error: CordwoodError | None = None
        for directory in self._candidates(log_dir, directory_id):
            try:
                self._forget_former(partition, directory, name)
                log = load_log(
                    LoadRequest(
                        directory=directory.path / name,
                        topic_partition=partition,
                        config=self._config_of(partition.topic),
                        context=self.context,
                        clean_shutdown=True,
                        topic_id=topic_id,
                        sync_name=False,
                    )
                )
            except StorageError as failed:
                error = failed
                continue
            _log.info("Created log for partition %s in %s", partition, directory.path)
            return log
        raise StorageError(
            "No log directories available. Tried "
            f"{', '.join(str(d.path) for d in self.directories)}"
        ) from error

    def _forget_former(
        self, partition: TopicPartition, directory: LoadedLogDirectory, name: str
    ) -> None:
        """Removes the checkpoints' lines of a former log of a partition; `name` is the new one's.

        Raises:
            StorageError: one cannot be removed, and would be applied to the new log after a crash.
        """
        current = self._table.get(partition)
        if current is not None and current.log_dir == directory.path:
            return
        with self.context.failures.guard(directory.path, "writing the checkpoints of"):
            if not self.context.fs.exists(directory.path / name):
                directory.remove_checkpoint_lines(lambda each: each == partition)

    def _candidates(
        self, log_dir: Path | None, directory_id: UUID | None
    ) -> list[LoadedLogDirectory]:
        """The directories for a new log, the best first; a cordoned one if all are.

        Source: LogManager.createLog, nextLogDirs.
        """
        online = self._online()
        if log_dir is not None:
            wanted = absolute(log_dir)
            return [d for d in online if d.path == wanted]
        named = [d for d in online if directory_id is not None and d.directory_id == directory_id]
        if named:
            return named
        if len(online) == 1:
            return online
        counts = dict.fromkeys((d.path for d in online), 0)
        for log in self.logs():
            counts[log.log_dir] = counts.get(log.log_dir, 0) + 1
        cordoned = self.cordoned
        free = [d for d in online if d.path not in cordoned]
        return sorted(free, key=lambda d: counts[d.path]) or online[:1]

    def _config_of(self, topic: str) -> LogConfig:
        return self._topic_config(topic) or self.defaults

    def require(self, partition: TopicPartition, *, future: bool = False) -> PartitionLog:
        """A partition's log.

        Raises:
            StorageError: there is none.
        """
        log = self.get(partition, future=future)
        if log is None:
            raise StorageError(f"there is no log of {partition} here")
        return log

    def _online(self) -> list[LoadedLogDirectory]:
        offline = self.context.failures.offline
        return [d for d in self.directories if d.path not in offline]

    def _require_some_directory(self) -> None:
        if not self._online():
            raise CordwoodError(
                "Shutdown broker because all log dirs in "
                f"{', '.join(str(d.path) for d in self.directories)} have failed"
            )
