"""The log directories of a cleaning: each once, and locked with every directory that it leads into.

A path says little about which broker uses a directory: LOG_DIR may be given twice, a partition may
be a symbolic link into another log directory, a mount may show one directory in two places. So
directories are identified by device and inode, and a partition is cleaned only while the `.lock` of
the directory that really holds it is held.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cordwood.cleanup.access.offline.log_directory import (
    OfflineLogDirectory,
    PartitionDir,
    require_closed,
)
from cordwood.storage.filesystem import OS, Lock
from cordwood.storage.log_directory import InUse, is_log_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A partition's directory in a log directory; `refused` says why it cannot be cleaned."""

    log_dir: OfflineLogDirectory
    partition: PartitionDir
    refused: str | None = None


def open_log_dirs(paths: Sequence[Path]) -> list[OfflineLogDirectory]:
    """The log directories that `paths` name, each once, in the order of the paths.

    A directory that is named together with some of its partitions stands for all of them.

    Raises:
        NotALogDirError: a path names neither a log directory nor a partition.
        OSError: a directory cannot be read.
    """
    found: dict[object, OfflineLogDirectory] = {}
    for path in paths:
        log_dir = OfflineLogDirectory(path)
        first = found.setdefault(OS.identity_of(log_dir.path), log_dir)
        if first is not log_dir:
            first.include(log_dir)
    return list(found.values())


def find_places(log_dirs: Sequence[OfflineLogDirectory]) -> list[Place]:
    """The partitions of all log directories.

    Refused are those that cannot be read, one directory under several names, and the second
    directory of a partition that has two.

    Raises:
        NotALogDirError: a directory is there that no Kafka would start with.
        OSError: a log directory cannot be read.
    """
    places = [
        Place(log_dir=log_dir, partition=partition, refused=partition.unreadable)
        for log_dir in log_dirs
        for partition in log_dir.partitions()
    ]
    by_identity: dict[object, list[Path]] = defaultdict(list)
    for place in places:
        path = place.partition.path
        if place.refused is None:
            with suppress(FileNotFoundError):  # beside a running broker it may be gone by now
                by_identity[OS.identity_of(path)].append(path)
    shared = {path: paths for paths in by_identity.values() if len(paths) > 1 for path in paths}
    first: dict[str, Path] = {}
    found = []
    for place in places:
        partition = place.partition
        refused = place.refused
        if refused is None and partition.path in shared:
            names = ", ".join(map(str, shared[partition.path]))
            refused = f"{names} are the same directory; remove the wrong links"
        if refused is None and partition.left_alone is None:
            other = first.setdefault(str(partition.topic_partition), partition.path)
            if other != partition.path:
                refused = (
                    f"Duplicate log directories found: {other}, {partition.path}! Kafka would not "
                    "start with both; remove the stale one"
                )
        found.append(replace(place, refused=refused))
    return found


class Locks:
    """The `.lock` files that a cleaning holds; a dry run takes none, and notes who holds them.

    `in_use` are the directories that another process uses.
    """

    def __init__(self, *, dry_run: bool) -> None:
        self._dry_run = dry_run
        self._held: dict[object, Lock | None] = {}
        self._real_homes: dict[Path, Path] = {}
        self.in_use: list[InUse] = []

    def take(self, directory: Path) -> None:
        """Locks a directory that is not locked yet.

        Raises:
            DirectoryInUseError: another process holds its lock.
            OSError: the `.lock` file cannot be written.
        """
        identity = OS.identity_of(directory)
        if identity in self._held:
            return
        if not self._dry_run:
            self._held[identity] = OS.lock(directory)
            return
        self._held[identity] = None
        pid = OS.lock_holder(directory)
        if pid is not None:
            self.in_use.append(InUse(log_dir=str(directory), pid=pid))

    def take_for(self, place: Place) -> str | None:
        """Locks the directory that really holds a partition; why it may not be cleaned, or None.

        Raises:
            DirectoryInUseError: that directory, or the partition itself, is in use.
        """
        home = place.log_dir.path
        try:
            real = self._real(place)
            is_foreign = real.parent != self._real_homes[home] and (
                OS.identity_of(real.parent) != OS.identity_of(home)
            )
            self.take(real.parent)
            if not self._dry_run:
                require_closed(real)
        except OSError as error:
            return f"it cannot be locked: {error}"
        if is_foreign and is_log_directory(real.parent):
            return (
                f"{place.partition.path} is a link into the log directory {real.parent}, whose "
                f"checkpoints are not those of {home}; clean {real} instead"
            )
        return None

    def _real(self, place: Place) -> Path:
        """The directory that a partition's path leads to; links above it are followed once."""
        home, path = place.log_dir.path, place.partition.path
        if home not in self._real_homes:
            self._real_homes[home] = home.resolve()
        return path.resolve() if path.is_symlink() else self._real_homes[home] / path.name

    def release(self) -> None:
        """Releases all of them."""
        held, self._held = self._held, {}
        for lock in held.values():
            if lock is not None:
                lock.release()


@contextmanager
def locked(log_dirs: Sequence[OfflineLogDirectory], *, dry_run: bool) -> Iterator[Locks]:
    """The locks of log directories, to which those of other directories may be added.

    Raises:
        DirectoryInUseError: another process holds one of them.
        OSError: a `.lock` file cannot be written.
    """
    locks = Locks(dry_run=dry_run)
    try:
        for path in sorted(log_dir.path.resolve() for log_dir in log_dirs):
            locks.take(path)
        yield locks
    finally:
        locks.release()
