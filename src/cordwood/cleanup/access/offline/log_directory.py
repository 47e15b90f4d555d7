"""A log directory whose broker does not run, or is not disturbed: its checkpoints, its partitions.

Source: org.apache.kafka.storage.internals.log.LogManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cordwood.format.file_names import (
    CLUSTER_METADATA_DIR,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    is_log_file,
)
from cordwood.model.errors import (
    CorruptError,
    DirectoryInUseError,
    NotALogDirError,
    NotARegularFileError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileFacts, FileSystem
from cordwood.storage.log_directory import (
    LogDirectory,
    is_log_directory,
    is_partition_directory,
)
from cordwood.storage.offset_checkpoint_file import OffsetCheckpointFile


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDir:
    """A partition's directory.

    `left_alone` says why it is not cleaned, `unreadable` why it cannot be read.
    """

    path: Path
    topic_partition: TopicPartition
    left_alone: str | None = None
    unreadable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """The four offset checkpoints of a log directory, in the order of their lines."""

    recovery_point: Mapping[TopicPartition, int]
    log_start: Mapping[TopicPartition, int]
    high_watermark: Mapping[TopicPartition, int]
    cleaner: Mapping[TopicPartition, int]


class OfflineLogDirectory(LogDirectory):
    """A log directory, or those of its partitions whose directories were named.

    `path` is the entry of log.dirs; `only` are the names of the partitions' directories, None for
    all of them.
    """

    def __init__(self, path: Path, *, fs: FileSystem = OS) -> None:
        """Reads the identity of the directory; nothing is locked.

        A partition's directory that is named by a symbolic link belongs to the directory in which
        the link lies, if that is a log directory, as it does for Kafka; else to the directory that
        really holds it.

        Raises:
            NotALogDirError: it is neither a log directory nor a partition's.
            CorruptError: `meta.properties` cannot be understood.
            OSError: it cannot be read.
        """
        named = path
        if not _is_directory(path, fs):
            what = "not a directory" if fs.exists(path) else "there is no such directory"
            raise NotALogDirError(f"{path}: {what}")
        self.only: frozenset[str] | None = None
        partition = named_partition(path, fs=fs)
        if partition is not None:
            self.only = frozenset({partition.name})
            path = partition.parent
        try:
            super().__init__(path, fs=fs, reads_id=False)
        except (NotARegularFileError, IsADirectoryError) as error:
            raise NotALogDirError(f"{path / META_PROPERTIES}: {error.strerror}") from error
        if self.only is None and self.meta is None and not self._has_partitions():
            raise NotALogDirError(
                f"{named}: not an entry of a Kafka broker's log.dirs (it has no {META_PROPERTIES} "
                "and no directory of a partition), nor a partition's directory"
            )

    @property
    def is_whole(self) -> bool:
        """Whether its broker stopped in good order, so that the ends of its logs are whole.

        A copy of partitions without meta.properties counts as such.
        """
        return self.has_clean_shutdown_file() or self.meta is None

    def include(self, other: OfflineLogDirectory) -> None:
        """Adds what another value names of the same directory."""
        both = None if self.only is None or other.only is None else self.only | other.only
        self.only = both

    def _has_partitions(self) -> bool:
        return any(
            entry.is_directory and is_partition_directory(self.path / entry.name, fs=self.fs)
            for entry in self.fs.entries_in(self.path)
        )

    def partitions(self) -> list[PartitionDir]:
        """Every partition directory, by name.

        Raises:
            NotALogDirError: a directory is there that no Kafka would start with.
        """
        entries = [
            entry
            for entry in self.fs.entries_in(self.path)
            if self.only is None or entry.name in self.only
        ]
        named = self.parse_names(entries)
        found = []
        for entry in entries:
            path = self.path / entry.name
            if entry.name in named:
                with suppress(FileNotFoundError):  # deleted meanwhile, by a broker that runs
                    found.append(_partition_dir(path, *named[entry.name], fs=self.fs))
            elif entry.is_link and TopicPartition.is_name(entry.name):
                found.append(
                    PartitionDir(
                        path=path,
                        topic_partition=TopicPartition.parse(entry.name),
                        unreadable=f"{path}: a symbolic link that leads to no directory",
                    )
                )
        return found

    def checkpoints(self) -> tuple[Checkpoints, list[str]]:
        """The checkpoints, and warnings; an unreadable one counts as empty, as in Kafka."""
        warnings: list[str] = []

        def read(file: OffsetCheckpointFile) -> Mapping[TopicPartition, int]:
            try:
                return file.read()
            except CorruptError as error:
                warnings.append(
                    f"Error occurred while reading {file.path.name} file of directory {self.path}, "
                    f"resetting the offsets to 0: {error.reason}"
                )
                return {}

        checkpoints = Checkpoints(
            recovery_point=read(self.recovery_points),
            log_start=read(self.log_starts),
            high_watermark=read(self.high_watermarks),
            cleaner=read(self.cleaner_offsets),
        )
        return checkpoints, warnings

    def set_cleaner_offset(self, partition: TopicPartition, offset: int | None) -> None:
        """Writes a partition's line of the cleaner checkpoint; None removes it."""
        self._set_line(self.cleaner_offsets, partition, offset)

    def set_recovery_point(self, partition: TopicPartition, offset: int) -> None:
        """Writes a partition's line of the recovery point checkpoint."""
        self._set_line(self.recovery_points, partition, offset)

    def set_log_start(self, partition: TopicPartition, offset: int | None) -> None:
        """Writes a partition's line of the log start offset checkpoint; None removes it."""
        self._set_line(self.log_starts, partition, offset)

    def _set_line(
        self, file: OffsetCheckpointFile, partition: TopicPartition, offset: int | None
    ) -> None:
        model = None if self.fs.exists(file.path) else self._model()
        file.set_line(partition, offset, model=model)

    def _model(self) -> FileFacts:
        """Owner and mode of a checkpoint that is not there yet."""
        for name in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, META_PROPERTIES):
            path = self.path / name
            if self.fs.exists(path):
                return self.fs.facts_of(path)
        facts = self.fs.facts_of(self.path)
        return FileFacts(
            size_bytes=0, modified_ms=0, modified_ns=0, mode=0o644, uid=facts.uid, gid=facts.gid
        )


def require_closed(directory: Path, *, fs: FileSystem = OS) -> None:
    """Checks that no process has a partition's active segment open for writing.

    A broker has, also one that reaches the directory by a path whose `.lock` nobody else sees.

    Raises:
        DirectoryInUseError: a process has.
    """
    logs = [name for name in fs.names_in(directory) if is_log_file(name)]
    if logs and fs.is_open_for_writing(directory / logs[-1]):
        raise DirectoryInUseError(
            f"{directory / logs[-1]} is open for writing in another process. A Kafka instance uses "
            "this partition, perhaps through a link, a mount or a hard link. Stop it, or make a "
            "copy of the files."
        )


def _is_directory(path: Path, fs: FileSystem) -> bool:
    try:
        return fs.is_directory(path)
    except OSError as error:
        raise NotALogDirError(f"{path}: {error.strerror}") from error


def named_partition(path: Path, *, fs: FileSystem = OS) -> Path | None:
    """The partition's directory that `path` names, below its log directory; None for another."""
    named, real = path.absolute(), path.resolve()
    if (
        named.name != ".."
        and is_log_directory(named.parent, fs=fs)
        and is_partition_directory(named, fs=fs)
    ):
        return named
    return real if is_partition_directory(real, fs=fs) else None


def _partition_dir(
    path: Path, partition: TopicPartition, suffix: str, *, fs: FileSystem
) -> PartitionDir:
    if suffix:
        return PartitionDir(
            path=path,
            topic_partition=partition,
            left_alone=f"its directory is marked {suffix.removeprefix('-')}",
        )
    if path.name == CLUSTER_METADATA_DIR:
        return PartitionDir(
            path=path, topic_partition=partition, left_alone="the cluster metadata log"
        )
    try:
        names = fs.names_in(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        return PartitionDir(path=path, topic_partition=partition, unreadable=str(error))
    if not any(is_log_file(name) for name in names):
        return PartitionDir(path=path, topic_partition=partition, left_alone="it has no segment")
    return PartitionDir(path=path, topic_partition=partition)
