"""Where removed files go that are not to be deleted, and the notes of how they can come back.

A removal is noted before a file of it is touched; `trash_restore` undoes it.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from cordwood.format.crc32c import crc32c
from cordwood.format.file_names import (
    DELETED_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    TRASH_NOTES,
    segment_file_name,
)
from cordwood.format.partition_metadata import parse_partition_metadata
from cordwood.format.trash_notes import (
    COMPACTION,
    Removal,
    Rewritten,
    TrashedFile,
    build_trash_notes,
    parse_trash_notes,
)
from cordwood.model.errors import ConfigError, CorruptError, NoSpaceError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import uuid_text
from cordwood.storage.filesystem import OS, FileSystem, FileWriter
from cordwood.storage.log_directory import is_log_directory, is_partition_directory
from cordwood.storage.replace import SEGMENT_SUFFIXES

_PROBE_NAME = ".cordwood-probe"
_PROBE_BYTES = 4096
_COPY_BYTES = 1 << 20


class Trash:
    """Disposes of files by moving them to `<directory>/<topic>-<partition>/<name>`.

    A number is added to a name that is taken. `TrashedPartition` reads what is there.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def prepare(
        self, log_dirs: Sequence[Path], *, read_only: bool = False, fs: FileSystem = OS
    ) -> list[str]:
        """Makes the directory, and checks that it can take files; before anything is moved there.

        Kafka does not start on a log directory that holds a directory without a partition's name,
        and takes one with such a name for a partition: so the trash lies in none.

        Args:
            log_dirs: those that are cleaned.
            read_only: only check where it lies.
            fs: where it is.

        Returns:
            A warning for each log directory on the trash's own file system, where moving files
            frees no space.

        Raises:
            ConfigError: it lies in a log directory, or cannot be written to; it is then not made.
        """
        self._require_outside(log_dirs, fs)
        if read_only:
            return self._warnings(log_dirs)
        probe = self.directory / _PROBE_NAME
        is_new = not fs.exists(self.directory)
        try:
            fs.make_directory(self.directory)
            try:
                fs.write_durably(probe, bytes(_PROBE_BYTES))
            finally:
                fs.remove(probe)
        except NoSpaceError as error:
            if is_new:
                with suppress(OSError):
                    fs.remove_directory(self.directory)
            raise ConfigError(
                f"--trash {self.directory}: the file system is full; name a directory on another "
                "file system, or leave --trash out, and what is removed is deleted"
            ) from error
        except OSError as error:
            raise ConfigError(f"--trash {self.directory}: cannot be written to: {error}") from error
        return self._warnings(log_dirs)

    def _warnings(self, log_dirs: Sequence[Path]) -> list[str]:
        real = self.directory.resolve()
        device = next(path for path in (real, *real.parents) if path.exists()).stat().st_dev
        return [
            f"--trash {self.directory} is on the file system of {path}: what is moved there "
            "frees no space"
            for path in log_dirs
            if path.stat().st_dev == device
        ]

    def _require_outside(self, log_dirs: Sequence[Path], fs: FileSystem) -> None:
        real = self.directory.resolve()
        cleaned = {fs.identity_of(path) for path in log_dirs}
        for path in (real, *real.parents):
            if not fs.exists(path):
                continue
            is_in_log_dir = fs.identity_of(path) in cleaned or is_log_directory(path, fs=fs)
            if is_in_log_dir or is_partition_directory(path, fs=fs):
                raise ConfigError(
                    f"--trash {self.directory}: it lies in the log directory {path}, where Kafka "
                    "takes every directory for a partition; name a directory elsewhere"
                )
        for path in log_dirs:
            log_dir = path.resolve()
            if log_dir.parent == real and TopicPartition.is_name(log_dir.name):
                raise ConfigError(
                    f"--trash {self.directory}: files of a partition {log_dir.name} would go to "
                    f"the log directory {path}; name a directory elsewhere"
                )

    def __call__(self, path: Path) -> None:
        """Moves one `.deleted` file."""
        directory = self.directory / path.parent.name
        name = path.name.removesuffix(DELETED_SUFFIX)
        move_file(path, directory / _free_name(directory, name))

    def note(self, directory: Path, removal: Removal, *, keep_first_snapshot: bool = False) -> None:
        """Notes what is about to be removed from a partition; on return the note lasts.

        Args:
            directory: the partition's.
            removal: without `files` and `topic_id`, which are read from the directory.
            keep_first_snapshot: the producer snapshot of the first segment is not removed.

        Raises:
            CorruptError: the notes, or `partition.metadata`, cannot be understood.
            OSError, NoSpaceError: it cannot be written.
        """
        trashed = TrashedPartition(self.directory / directory.name)
        OS.make_directory_durably(trashed.directory)
        files = []
        for number, base in enumerate(removal.segments):
            for suffix in (*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX):
                path = directory / segment_file_name(base, suffix)
                is_kept = suffix == PRODUCER_SNAPSHOT_SUFFIX and keep_first_snapshot and not number
                if not is_kept and OS.exists(path):
                    files.append(_file_of(path, stored=_free_name(trashed.directory, path.name)))
        trashed.add(replace(removal, files=tuple(files), topic_id=topic_id_of(directory)))


class TrashedPartition:
    """What a trash has of one partition, in a directory with its name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.topic_partition = TopicPartition.parse(directory.name)

    def removals(self) -> list[Removal]:
        """The noted removals, the oldest first.

        Raises:
            CorruptError: the notes cannot be understood.
        """
        path = self.directory / TRASH_NOTES
        try:
            return parse_trash_notes(OS.read_bytes(path))
        except FileNotFoundError:
            return []
        except CorruptError as error:
            raise error.located(path=str(path)) from error

    def unknown(self) -> list[str]:
        """The names of files that no note describes."""
        noted = {each.stored for removal in self.removals() for each in removal.files}
        names = [entry.name for entry in OS.entries_in(self.directory) if not entry.is_directory]
        return [name for name in names if name not in {*noted, TRASH_NOTES}]

    def add(self, removal: Removal) -> None:
        """Adds a note, in place of those of removals that were not carried out.

        One was not if its names in the trash are still free. Of a retention that was interrupted,
        the new one is the rest: then they are one removal.
        """
        stored = {each.stored for each in removal.files}
        kept = []
        for old in self.removals():
            if stored.isdisjoint(each.stored for each in old.files):
                kept.append(old)
                continue
            done = [each for each in old.files if each.stored not in stored]
            if old.why == removal.why != COMPACTION and done:
                removal = replace(
                    old,
                    segments=tuple(sorted({*old.segments, *removal.segments})),
                    end_offset=removal.end_offset,
                    files=(*done, *removal.files),
                    rolled=removal.rolled,
                )
        self._write([*kept, removal])

    def forget(self, removal: Removal) -> None:
        """Removes the files of a removal, as far as they are there, and its note."""
        for each in removal.files:
            OS.remove(self.directory / each.stored)
        self._write([each for each in self.removals() if each != removal])

    def _write(self, removals: list[Removal]) -> None:
        path = self.directory / TRASH_NOTES
        if removals:
            OS.replace_durably(path, build_trash_notes(removals))
            return
        OS.remove(path)
        if not OS.entries_in(self.directory):
            OS.remove_directory(self.directory)


def trashed_partitions(trash: Path) -> list[TrashedPartition]:
    """The partitions of which a trash has something, by name.

    Raises:
        ConfigError: there is no such directory, or it is a log directory.
    """
    if not OS.exists(trash) or not OS.is_directory(trash):
        raise ConfigError(f"{trash}: there is no such directory")
    if is_log_directory(trash):
        raise ConfigError(f"{trash}: a log directory, not the directory of a --trash")
    names = [entry.name for entry in OS.entries_in(trash) if entry.is_directory]
    return [TrashedPartition(trash / name) for name in names if TopicPartition.is_name(name)]


def topic_id_of(directory: Path) -> str | None:
    """The id of a partition's topic; None if its directory has no `partition.metadata`.

    Raises:
        CorruptError: the file cannot be understood.
    """
    path = directory / PARTITION_METADATA
    try:
        return uuid_text(parse_partition_metadata(OS.read_bytes(path)).topic_id)
    except FileNotFoundError:
        return None
    except CorruptError as error:
        raise error.located(path=str(path)) from error


def crc_of(path: Path) -> int:
    """The CRC-32C of a file."""
    crc, position = 0, 0
    with closing(OS.open(path)) as file:
        while data := file.read_at(_COPY_BYTES, position):
            crc, position = crc32c(data, value=crc), position + len(data)
    return crc


def rewritten_of(path: Path, *, base_offset: int) -> Rewritten:
    """The facts of the log of a segment that takes the place of others."""
    facts = OS.facts_of(path)
    return Rewritten(
        base_offset=base_offset,
        size_bytes=facts.size_bytes,
        modified_ns=facts.modified_ns,
        crc=crc_of(path),
    )


def _file_of(path: Path, *, stored: str) -> TrashedFile:
    facts = OS.facts_of(path)
    return TrashedFile(
        name=path.name,
        stored=stored,
        size_bytes=facts.size_bytes,
        modified_ns=facts.modified_ns,
    )


def _free_name(directory: Path, name: str) -> str:
    """The name itself, or with a number if it is taken: by a segment that was rewritten before."""
    number, free = 0, name
    while OS.exists(directory / free):
        number += 1
        free = f"{name}.{number}"
    return free


def move_file(path: Path, target: Path) -> None:
    """Moves a file to another folder, perhaps on another file system, owner and times kept.

    At any moment, after a crash too, one of the two names is the whole file.

    Raises:
        NoSpaceError: the other file system is full; `path` is as it was, there is no `target`.
    """
    OS.make_directory(target.parent)
    try:
        OS.rename(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy_file(path, target)
        OS.sync_directory(target.parent)
        OS.remove(path)


def copy_file(path: Path, target: Path) -> None:
    """Copies a file, or a link, with owner and times; on return its bytes are on disk.

    Raises:
        NoSpaceError: the file system is full; there is no `target`, or an older one.
    """
    temporary = target.with_name(f"{target.name}.tmp")
    OS.remove(temporary)  # of a move that was cut off
    try:
        if path.is_symlink():
            OS.copy_link(path, temporary)
        else:
            _copy_bytes(path, temporary)
        OS.rename(temporary, target)
    except BaseException:
        OS.remove(temporary)
        raise


def _copy_bytes(path: Path, target: Path) -> None:
    facts = OS.facts_of(path)
    with closing(OS.open(path)) as source, closing(FileWriter(target)) as writer:
        position = 0
        while data := source.read_at(_COPY_BYTES, position):
            writer.write(data)
            position += len(data)
    OS.take_after(target, facts)
    OS.set_modified(target, facts.modified_ns)
