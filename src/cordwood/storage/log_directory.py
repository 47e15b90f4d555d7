"""An entry of log.dirs: what a broker and `cordwood clean` read of it in the same way.

Source: org.apache.kafka.storage.internals.log.LogManager.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REMOTE_LOG_INDEX_CACHE,
    REPLICATION_OFFSET_CHECKPOINT,
)
from cordwood.format.meta_properties import MetaProperties, parse_meta_properties
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.directory_names import parse_directory_name
from cordwood.storage.filesystem import OS, Entry, FileSystem
from cordwood.storage.offset_checkpoint_file import OffsetCheckpointFile

_log = logging.getLogger(__name__)

_SEGMENT_LOG = re.compile(r"\d{20}\.log")
_FILES = (
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
    CLEAN_SHUTDOWN,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """A log directory that another process uses."""

    log_dir: str
    pid: int


class LogDirectory:
    """A log directory: its identity, its four offset checkpoints, its partitions' names.

    `loaded_log_directory.LoadedLogDirectory` is one that a broker has locked and loads. One whose
    broker does not run, or is not disturbed, is an `OfflineLogDirectory` of cleanup/access/offline.
    """

    def __init__(self, path: Path, *, fs: FileSystem, reads_id: bool) -> None:
        """Reads `meta.properties`, its directory.id only if `reads_id`; nothing is locked.

        Raises:
            CorruptError: `meta.properties` cannot be understood.
            OSError: it cannot be read.
        """
        self.path = path
        self.fs = fs
        self.meta = self._read_meta(reads_id=reads_id)
        self.recovery_points = self._checkpoint(RECOVERY_POINT_CHECKPOINT)
        self.log_starts = self._checkpoint(LOG_START_OFFSET_CHECKPOINT)
        self.high_watermarks = self._checkpoint(REPLICATION_OFFSET_CHECKPOINT)
        self.cleaner_offsets = self._checkpoint(CLEANER_OFFSET_CHECKPOINT)

    def _read_meta(self, *, reads_id: bool) -> MetaProperties | None:
        path = self.path / META_PROPERTIES
        try:
            data = self.fs.read_bytes(path)
            return parse_meta_properties(data, reads_directory_id=reads_id)
        except FileNotFoundError:
            return None
        except CorruptError as error:
            raise error.located(path=str(path)) from error

    def _checkpoint(self, name: str) -> OffsetCheckpointFile:
        return OffsetCheckpointFile(self.path / name, fs=self.fs)

    def has_clean_shutdown_file(self) -> bool:
        """Whether the broker stopped in good order, and none has started since."""
        return self.fs.exists(self.path / CLEAN_SHUTDOWN)

    def remove_checkpoint_lines(self, is_gone: Callable[[TopicPartition], bool]) -> None:
        """Removes the lines of partitions from the four checkpoints, durably.

        Lines name a partition, not its topic's id: one that outlives its log would be applied to
        the next log of that name. A log whose log start offset is beyond its end is emptied.

        Differs: Kafka leaves them until the next checkpoint is written.

        Args:
            is_gone: whether the directory has no log of a partition.

        Raises:
            OSError: a file cannot be read or written.
            NoSpaceError: the disk is full.
        """
        for file in (
            self.recovery_points,
            self.log_starts,
            self.high_watermarks,
            self.cleaner_offsets,
        ):
            gone = file.remove_lines(is_gone)
            if gone:
                _log.info(
                    "Removed lines of %s from %s: no such log is in this directory",
                    ", ".join(map(str, gone)),
                    file.path,
                )

    def parse_names(self, entries: Iterable[Entry]) -> dict[str, tuple[TopicPartition, str]]:
        """(partition, suffix) of those entries that are directories of partitions, by name.

        The suffix is "" for a log that is served; the cluster metadata log is one of them.

        Raises:
            NotALogDirError: a name is no partition's; no Kafka starts with such a directory.
        """
        return {
            entry.name: parse_directory_name(entry.name, parent=str(self.path))
            for entry in entries
            if entry.is_directory and entry.name != REMOTE_LOG_INDEX_CACHE
        }


def is_log_directory(path: Path, *, fs: FileSystem = OS) -> bool:
    """Whether a directory has a file that only an entry of log.dirs has."""
    return any(fs.exists(path / name) for name in _FILES)


def is_partition_directory(path: Path, *, fs: FileSystem = OS) -> bool:
    """Whether a directory is a partition's: its name says so, and it has a segment.

    One that cannot be read is none.
    """
    if not TopicPartition.is_name(path.name):
        return False
    try:
        return any(_SEGMENT_LOG.fullmatch(name) for name in fs.names_in(path))
    except OSError:
        return False
