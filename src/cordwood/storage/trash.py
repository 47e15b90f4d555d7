"""Directory of removed files that are not deleted, and the notes for their restoration.

A removal is noted before a file of it is touched. `cleanup/access/offline` undoes it.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

from cordwood.format.crc32c import crc32c
from cordwood.format.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
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
from cordwood.storage.replace import SEGMENT_SUFFIXES, StagedSegment

_PROBE_NAME = ".cordwood-probe"
_PROBE_BYTES = 4096
_COPY_BYTES = 1 << 20


class Trash:
    """Disposes of files by moving them to `<directory>/<topic>-<partition>/<name>`.

    A number is added to a name that is taken. `TrashedPartition` reads what is there.
    """

    def __init__(self, directory: Path, *, named: str = "--trash", fs: FileSystem = OS) -> None:
        """Takes the directory, and the option or setting that names it."""
        self.directory = directory
        self._named = named
        self._fs = fs

    def prepare(self, log_dirs: Sequence[Path], *, read_only: bool = False) -> list[str]:
        """Makes the trash; only checks where it lies if `read_only`.

        Returns:
            A warning for each log directory on the trash's own file system, where moving files
            frees no space.

        Raises:
            ConfigError: as `make`.
        """
        if read_only:
            self.require_outside(log_dirs)
        else:
            self.make(log_dirs)
        return self._warnings(log_dirs)

    def make(self, log_dirs: Sequence[Path]) -> None:
        """Makes the directory, and checks that it can take files; before anything is moved there.

        Kafka does not start on a log directory that holds a directory without a partition's name,
        and takes one with such a name for a partition: so the trash lies in none.

        Args:
            log_dirs: those that are cleaned.

        Raises:
            ConfigError: it lies in a log directory, or cannot be written to; it is then not made.
        """
        fs = self._fs
        self.require_outside(log_dirs)
        probe = self.directory / _PROBE_NAME
        is_new = not fs.exists(self.directory)
        try:
            fs.make_directory_durably(self.directory)
            try:
                fs.write_durably(probe, bytes(_PROBE_BYTES))
            finally:
                fs.remove(probe)
        except NoSpaceError as error:
            if is_new:
                with suppress(OSError):
                    fs.remove_directory(self.directory)
            raise ConfigError(
                f"{self._named} {self.directory}: the file system is full; name a directory on "
                f"another file system, or leave {self._named} out, and what is removed is deleted"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"{self._named} {self.directory}: cannot be written to: {error}"
            ) from error

    def _warnings(self, log_dirs: Sequence[Path]) -> list[str]:
        real = self.directory.resolve()
        device = next(path for path in (real, *real.parents) if path.exists()).stat().st_dev
        return [
            f"{self._named} {self.directory} is on the file system of {path}: what is moved there "
            "frees no space"
            for path in log_dirs
            if path.stat().st_dev == device
        ]

    def require_outside(self, log_dirs: Sequence[Path]) -> None:
        """Requires that it lies in no log directory.

        Raises:
            ConfigError: it does.
        """
        fs = self._fs
        real = self.directory.resolve()
        cleaned = {fs.identity_of(path) for path in log_dirs}
        for path in (real, *real.parents):
            if not fs.exists(path):
                continue
            is_in_log_dir = fs.identity_of(path) in cleaned or is_log_directory(path, fs=fs)
            if is_in_log_dir or is_partition_directory(path, fs=fs):
                raise ConfigError(
                    f"{self._named} {self.directory}: it lies in the log directory {path}, where "
                    "Kafka takes every directory for a partition; name a directory elsewhere"
                )
        for path in log_dirs:
            log_dir = path.resolve()
            if log_dir.parent == real and TopicPartition.is_name(log_dir.name):
                raise ConfigError(
                    f"{self._named} {self.directory}: files of a partition {log_dir.name} would go "
                    f"to the log directory {path}; name a directory elsewhere"
                )

    def __call__(self, path: Path) -> None:
        """Moves one `.deleted` file."""
        directory = self.directory / path.parent.name
        name = path.name.removesuffix(DELETED_SUFFIX)
        move_file(path, directory / _free_name(directory, name, self._fs), fs=self._fs)

    def note(self, directory: Path, removal: Removal) -> None:
        """Notes what is about to be removed from a partition; on return the note lasts.

        Producer snapshots of segments that others take the place of, with the same base offset,
        are not removed.

        Args:
            directory: the partition's.
            removal: without `files` and `topic_id`, which are read from the directory.

        Raises:
            CorruptError: the notes, or `partition.metadata`, cannot be understood.
            OSError, NoSpaceError: it cannot be written.
        """
        fs = self._fs
        trashed = TrashedPartition(self.directory / directory.name, fs=fs)
        fs.make_directory_durably(trashed.directory)
        files = []
        replaced = {each.base_offset for each in removal.rewritten}
        for base in removal.segments:
            for suffix in (*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX):
                path = directory / segment_file_name(base, suffix)
                is_kept = suffix == PRODUCER_SNAPSHOT_SUFFIX and base in replaced
                if not is_kept and fs.exists(path):
                    stored = _free_name(trashed.directory, path.name, fs)
                    files.append(_file_of(path, stored=stored, fs=fs))
        topic_id = topic_id_of(directory, fs=fs)
        trashed.add(replace(removal, files=tuple(files), topic_id=topic_id))


class TrashedPartition:
    """The part of a trash with one partition, a directory with its name."""

    def __init__(self, directory: Path, *, fs: FileSystem = OS) -> None:
        self.directory = directory
        self._fs = fs
        self.topic_partition = TopicPartition.parse(directory.name)

    def removals(self) -> list[Removal]:
        """The noted removals, the oldest first.

        Raises:
            CorruptError: the notes cannot be understood.
        """
        path = self.directory / TRASH_NOTES
        try:
            return parse_trash_notes(self._fs.read_bytes(path))
        except FileNotFoundError:
            return []
        except CorruptError as error:
            raise error.located(path=str(path)) from error

    def unknown(self) -> list[str]:
        """The names of files that no note describes."""
        noted = {each.stored for removal in self.removals() for each in removal.files}
        names = [
            entry.name for entry in self._fs.entries_in(self.directory) if not entry.is_directory
        ]
        return [name for name in names if name not in {*noted, TRASH_NOTES}]

    def place_of(self, name: str) -> Path | None:
        """The path for a file that was removed under this name; None if no note waits for it."""
        for removal in reversed(self.removals()):
            for each in removal.files:
                if each.name == name and not self._fs.exists(self.directory / each.stored):
                    return self.directory / each.stored
        return None

    def dispose(self, path: Path) -> None:
        """Moves a `.deleted` file of the log here if a note waits for it; removes it otherwise."""
        place = self.place_of(path.name.removesuffix(DELETED_SUFFIX))
        if place is None:
            self._fs.remove(path)
        else:
            move_file(path, place, fs=self._fs)

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
            self._fs.remove(self.directory / each.stored)
        self._write([each for each in self.removals() if each != removal])

    def _write(self, removals: list[Removal]) -> None:
        path = self.directory / TRASH_NOTES
        if removals:
            self._fs.replace_durably(path, build_trash_notes(removals))
            return
        self._fs.remove(path)
        if not self._fs.entries_in(self.directory):
            self._fs.remove_directory(self.directory)


def trashed_partitions(trash: Path, *, fs: FileSystem = OS) -> list[TrashedPartition]:
    """The partitions of which a trash has something, by name.

    Raises:
        ConfigError: there is no such directory, or it is a log directory.
    """
    if not fs.exists(trash) or not fs.is_directory(trash):
        raise ConfigError(f"{trash}: there is no such directory")
    if is_log_directory(trash, fs=fs):
        raise ConfigError(f"{trash}: a log directory, not the directory of a --trash")
    names = [entry.name for entry in fs.entries_in(trash) if entry.is_directory]
    return [TrashedPartition(trash / name, fs=fs) for name in names if TopicPartition.is_name(name)]


def topic_id_of(directory: Path, *, fs: FileSystem = OS) -> str | None:
    """The id of a partition's topic; None if its directory has no `partition.metadata`.

    Raises:
        CorruptError: the file cannot be understood.
    """
    path = directory / PARTITION_METADATA
    try:
        return uuid_text(parse_partition_metadata(fs.read_bytes(path)).topic_id)
    except FileNotFoundError:
        return None
    except CorruptError as error:
        raise error.located(path=str(path)) from error


def crc_of(path: Path, *, fs: FileSystem = OS) -> int:
    """The CRC-32C of a file."""
    crc, position = 0, 0
    with closing(fs.open(path)) as file:
        while data := file.read_at(_COPY_BYTES, position):
            crc, position = crc32c(data, value=crc), position + len(data)
    return crc


def rewritten_of(staged: Iterable[StagedSegment], *, fs: FileSystem = OS) -> tuple[Rewritten, ...]:
    """The facts of the logs of segments that take the place of others."""

    def one(segment: StagedSegment) -> Rewritten:
        path = segment.paths()[LOG_SUFFIX]
        facts = fs.facts_of(path)
        return Rewritten(
            base_offset=segment.base_offset,
            size_bytes=facts.size_bytes,
            modified_ns=facts.modified_ns,
            crc=crc_of(path, fs=fs),
        )

    return tuple(map(one, staged))


def _file_of(path: Path, *, stored: str, fs: FileSystem) -> TrashedFile:
    facts = fs.facts_of(path)
    return TrashedFile(
        name=path.name,
        stored=stored,
        size_bytes=facts.size_bytes,
        modified_ns=facts.modified_ns,
    )


def _free_name(directory: Path, name: str, fs: FileSystem) -> str:
    """The name itself, or with a number if it is taken: by a segment that was rewritten before."""
    number, free = 0, name
    while fs.exists(directory / free):
        number += 1
        free = f"{name}.{number}"
    return free


def move_file(path: Path, target: Path, *, fs: FileSystem = OS) -> None:
    """Moves a file to another folder, perhaps on another file system, owner and times kept.

    At any moment, after a crash too, one of the two names is the whole file.

    Raises:
        NoSpaceError: the other file system is full; `path` is as it was, there is no `target`.
    """
    fs.make_directory(target.parent)
    try:
        fs.rename(path, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy_file(path, target, fs=fs)
        fs.sync_directory(target.parent)
        fs.remove(path)


def copy_file(path: Path, target: Path, *, fs: FileSystem = OS) -> None:
    """Copies a file, or a link, with owner and times; on return its bytes are on disk.

    Raises:
        NoSpaceError: the file system is full; there is no `target`, or an older one.
    """
    temporary = target.with_name(f"{target.name}.tmp")
    fs.remove(temporary)  # of a move that was cut off
    try:
        if path.is_symlink():
            OS.copy_link(path, temporary)
        else:
            _copy_bytes(path, temporary, fs)
        fs.rename(temporary, target)
    except BaseException:
        fs.remove(temporary)
        raise


def _copy_bytes(path: Path, target: Path, fs: FileSystem) -> None:
    facts = fs.facts_of(path)
    with closing(fs.open(path)) as source, closing(FileWriter(target, fs=fs)) as writer:
        position = 0
        while data := source.read_at(_COPY_BYTES, position):
            writer.write(data)
            position += len(data)
    fs.take_after(target, facts)
    fs.set_modified(target, facts.modified_ns)


def move_directory(
    directory: Path,
    target: Path,
    *,
    temporary: Path,
    fs: FileSystem = OS,
    keeps_copy: bool = False,
) -> None:
    """Moves a directory of files to another folder, perhaps on another file system.

    At any moment, after a crash too, one of the two names is the whole directory. Where it has to
    be copied, the copy is made as `temporary`; the original stays if `keeps_copy`.

    Raises:
        NoSpaceError: the other file system is full; `directory` is as it was, there is no `target`.
        OSError: a file cannot be read or written; likewise.
    """
    try:
        fs.rename(directory, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy_directory(directory, temporary, fs)
        if temporary != target:
            fs.rename(temporary, target)
            fs.sync_directory(target.parent)
        if not keeps_copy:
            fs.remove_tree(directory)
    fs.sync_directory(target.parent)
    fs.sync_directory(directory.parent)


def _copy_directory(directory: Path, target: Path, fs: FileSystem) -> None:
    fs.remove_tree(target)  # of a move that was cut off
    fs.make_directory_durably(target)
    try:
        for name in fs.names_in(directory):
            copy_file(directory / name, target / name, fs=fs)
        fs.take_after(target, fs.facts_of(directory))
        fs.sync_directory(target)
    except BaseException:
        fs.remove_tree(target)
        raise
