"""One entry of log.dirs: its lock, its checkpoints, its partitions.

Source: org.apache.kafka.storage.internals.log.LogManager.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cordwood.format.checkpoint_order import LINE_ORDERS, cleaner_offset_order
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    CLUSTER_METADATA_DIR,
    DELETE_DIR_SUFFIX,
    FUTURE_DIR_SUFFIX,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REMOTE_LOG_INDEX_CACHE,
    REPLICATION_OFFSET_CHECKPOINT,
    STRAY_DIR_SUFFIX,
    is_log_file,
)
from cordwood.format.meta_properties import MetaProperties, parse_meta_properties
from cordwood.format.offset_checkpoint import build_offset_checkpoint, parse_offset_checkpoint
from cordwood.model.errors import (
    CordwoodError,
    CorruptError,
    DirectoryInUseError,
    NotALogDirError,
    NotARegularFileError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileFacts, FileSystem, Lock

_SEGMENT_LOG = re.compile(r"\d{20}\.log")
_LOG_DIR_FILES = (
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
    CLEAN_SHUTDOWN,
)
_SUFFIXED = (DELETE_DIR_SUFFIX, STRAY_DIR_SUFFIX, FUTURE_DIR_SUFFIX)


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


class LogDir:
    """A log directory, or those of its partitions whose directories were named.

    `path` is the entry of log.dirs; `only` are the names of the partitions' directories, None for
    all of them.
    """

    def __init__(self, path: Path, *, fs: FileSystem = OS) -> None:
        """Reads what says which directory it is; nothing is locked.

        A partition's directory that is named by a symbolic link belongs to the directory in which
        the link lies, if that is a log directory, as it does for Kafka; else to the directory that
        really holds it.

        Raises:
            NotALogDirError: it is neither a log directory nor a partition's.
            OSError: it cannot be read.
        """
        self.fs = fs
        self._parsed: dict[str, tuple[object, dict[TopicPartition, int]]] = {}
        named = path
        if not _is_directory(path, fs):
            what = "not a directory" if fs.exists(path) else "there is no such directory"
            raise NotALogDirError(f"{path}: {what}")
        self.only: frozenset[str] | None = None
        partition = _named_partition(path, fs)
        if partition is not None:
            self.only = frozenset({partition.name})
            path = partition.parent
        self.path = path
        self.meta = self._read_meta()
        if self.only is None and self.meta is None and not self._has_partitions():
            raise NotALogDirError(
                f"{named}: not an entry of a Kafka broker's log.dirs (it has no {META_PROPERTIES} "
                "and no directory of a partition), nor a partition's directory"
            )

    def include(self, other: LogDir) -> None:
        """Adds what another value names of the same directory."""
        both = None if self.only is None or other.only is None else self.only | other.only
        self.only = both

    def _read_meta(self) -> MetaProperties | None:
        path = self.path / META_PROPERTIES
        try:
            return parse_meta_properties(self.fs.read_bytes(path))
        except FileNotFoundError:
            return None
        except CorruptError as error:
            raise error.located(path=str(path)) from error
        except (NotARegularFileError, IsADirectoryError) as error:
            raise NotALogDirError(f"{path}: {error.strerror}") from error

    def _has_partitions(self) -> bool:
        return any(
            entry.is_directory and is_partition_dir(self.path / entry.name, fs=self.fs)
            for entry in self.fs.entries_in(self.path)
        )

    @property
    def clean_shutdown(self) -> bool:
        """Whether the broker stopped in good order."""
        return self.fs.exists(self.path / CLEAN_SHUTDOWN)

    def lock(self) -> Lock:
        """Kafka's lock on the directory.

        Raises:
            DirectoryInUseError: somebody holds it.
        """
        return self.fs.lock(self.path)

    def partitions(self) -> list[PartitionDir]:
        """Every partition directory, by name.

        Raises:
            NotALogDirError: a directory is there that no Kafka would start with.
        """
        found = []
        for entry in self.fs.entries_in(self.path):
            if entry.name == REMOTE_LOG_INDEX_CACHE:
                continue
            if self.only is not None and entry.name not in self.only:
                continue
            path = self.path / entry.name
            if entry.is_directory:
                with suppress(FileNotFoundError):  # deleted meanwhile, by a broker that runs
                    found.append(_partition_dir(path, self.fs))
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

        def read(name: str) -> dict[TopicPartition, int]:
            try:
                return self._lines(name)
            except FileNotFoundError:
                return {}
            except CorruptError as error:
                warnings.append(
                    f"Error occurred while reading {name} file of directory {self.path}, "
                    f"resetting the offsets to 0: {error.reason}"
                )
                return {}

        checkpoints = Checkpoints(
            recovery_point=read(RECOVERY_POINT_CHECKPOINT),
            log_start=read(LOG_START_OFFSET_CHECKPOINT),
            high_watermark=read(REPLICATION_OFFSET_CHECKPOINT),
            cleaner=read(CLEANER_OFFSET_CHECKPOINT),
        )
        return checkpoints, warnings

    def _lines(self, name: str) -> dict[TopicPartition, int]:
        """The lines of a checkpoint, which are parsed again only if the file is another one.

        A cleaning asks once a partition, and the file has a line for each.
        """
        path = self.path / name
        state = self._state_of(path)
        known = self._parsed.get(name)
        if known is None or known[0] != state:
            known = self._parsed[name] = state, parse_offset_checkpoint(self.fs.read_bytes(path))
        return known[1]

    def _state_of(self, path: Path) -> object:
        facts = self.fs.facts_of(path)
        return self.fs.identity_of(path), facts.modified_ns, facts.size_bytes

    def set_checkpoint(self, name: str, partition: TopicPartition, offset: int | None) -> None:
        """Writes one partition's line of a checkpoint; None takes it out.

        The lines are in the order in which Kafka would write them. Nothing is written when the line
        is as wanted already.
        """
        path = self.path / name
        model = None
        try:
            offsets = dict(self._lines(name))
        except FileNotFoundError:
            offsets = {}
            model = self._model()
        except CorruptError:
            offsets = {}
        if offsets.get(partition) == offset:
            return
        before = list(offsets)
        if offset is None:
            del offsets[partition]
        else:
            offsets[partition] = offset
        order = LINE_ORDERS.get(name)
        if order is not None:
            partitions = order(offsets)
        elif offset is None:
            partitions = cleaner_offset_order(before, gone={partition})
        else:
            partitions = cleaner_offset_order(before, update=partition)
        lines = {each: offsets[each] for each in partitions}
        self.fs.replace_durably(path, build_offset_checkpoint(lines), model=model)
        self._parsed[name] = self._state_of(path), lines

    def _model(self) -> FileFacts | None:
        for name in (RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT, META_PROPERTIES):
            path = self.path / name
            if self.fs.exists(path):
                return self.fs.facts_of(path)
        facts = self.fs.facts_of(self.path)
        return FileFacts(
            size_bytes=0, modified_ms=0, modified_ns=0, mode=0o644, uid=facts.uid, gid=facts.gid
        )

    def metadata_dir(self) -> Path | None:
        """The cluster metadata log, when it lives here."""
        path = self.path / CLUSTER_METADATA_DIR
        return path if self.fs.is_directory(path) else None


def is_log_dir(path: Path, *, fs: FileSystem = OS) -> bool:
    """Whether a directory has a file that only an entry of log.dirs has."""
    return any(fs.exists(path / name) for name in _LOG_DIR_FILES)


def is_partition_dir(path: Path, *, fs: FileSystem = OS) -> bool:
    """Whether a directory holds a partition: its name says so, and it has a segment.

    One that cannot be read holds none.
    """
    if not TopicPartition.is_name(path.name):
        return False
    try:
        return any(_SEGMENT_LOG.fullmatch(name) for name in fs.names_in(path))
    except OSError:
        return False


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


def _named_partition(path: Path, fs: FileSystem) -> Path | None:
    """The partition's directory that `path` names, below its log directory; None for another."""
    named, real = path.absolute(), path.resolve()
    if named.name != ".." and is_log_dir(named.parent, fs=fs) and is_partition_dir(named, fs=fs):
        return named
    return real if is_partition_dir(real, fs=fs) else None


def _partition_dir(path: Path, fs: FileSystem) -> PartitionDir:
    for suffix in _SUFFIXED:
        if path.name.endswith(suffix):
            stem = path.name.rpartition(".")[0] or path.name
            try:
                partition = TopicPartition.parse(stem)
            except CordwoodError:
                partition = TopicPartition(stem, 0)
            return PartitionDir(
                path=path,
                topic_partition=partition,
                left_alone=f"its directory is marked {suffix.removeprefix('-')}",
            )
    try:
        partition = TopicPartition.parse(path.name)
    except CordwoodError:
        raise NotALogDirError(
            f"Found directory {path}, '{path.name}' is not in the form of topic-partition or "
            "topic-partition.uniqueId-delete (if marked for deletion). Kafka's log directories "
            "should only contain Kafka topic data."
        ) from None
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
