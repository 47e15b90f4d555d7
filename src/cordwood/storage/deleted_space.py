"""Space that a log directory will have when what is deleted has been removed from the disk."""

from __future__ import annotations

from pathlib import Path

from cordwood.format.file_names import DELETE_DIR_SUFFIX, DELETED_SUFFIX
from cordwood.storage.broker_trash import BrokerTrash
from cordwood.storage.filesystem import FileSystem


def free_bytes_soon(
    log_dir: Path, *, fs: FileSystem, enough_bytes: int, trash: BrokerTrash | None = None
) -> int:
    """The free space of a log directory, with what waits there for file.delete.delay.ms.

    Files are only looked for where less than `enough_bytes` are free. Then a trash on the same file
    system is emptied first, the oldest first, and what waits does not count, as it goes there.

    Raises:
        OSError: the directory cannot be read.
    """
    free = fs.free_bytes(log_dir)
    if free >= enough_bytes:
        return free
    if trash is not None and _keeps_all(trash, fs):
        return free
    if trash is not None and fs.is_same_file_system(log_dir, trash.directory):
        while free < enough_bytes and trash.remove_oldest():
            free = fs.free_bytes(log_dir)
        return free
    return free + _all_waiting_bytes(log_dir, fs=fs)


def free_bytes_foreseen(
    log_dir: Path, *, fs: FileSystem, trash: BrokerTrash | None = None
) -> tuple[int, bool]:
    """(bytes that `free_bytes_soon` counts on, whether files that are deleted later add to them).

    Nothing is removed: a trash on the same file system counts with all that is in it.

    Raises:
        OSError: the directory cannot be read.
        TrashError: the trash cannot be read.
    """
    free = fs.free_bytes(log_dir)
    if trash is not None and _keeps_all(trash, fs):
        return free, False
    if trash is not None and fs.is_same_file_system(log_dir, trash.directory):
        return free + trash.size_bytes, False
    return free + _all_waiting_bytes(log_dir, fs=fs), True


def _keeps_all(trash: BrokerTrash, fs: FileSystem) -> bool:
    """Whether the trash is missing, so that what is removed stays in the log directories."""
    return trash.is_missing or not fs.exists(trash.directory)


def _all_waiting_bytes(log_dir: Path, *, fs: FileSystem) -> int:
    return sum(
        _waiting_bytes(log_dir / entry.name, fs=fs)
        for entry in fs.entries_in(log_dir)
        if entry.is_directory
    )


def _waiting_bytes(directory: Path, *, fs: FileSystem) -> int:
    """Bytes of the deleted files of a partition; of all its files if the partition is deleted."""
    found = 0
    try:
        for name in fs.names_in(directory):
            if name.endswith(DELETED_SUFFIX) or directory.name.endswith(DELETE_DIR_SUFFIX):
                try:
                    found += fs.facts_of(directory / name).size_bytes
                except FileNotFoundError:  # removed meanwhile: it is free space now
                    continue
    except FileNotFoundError:
        return 0
    return found
