"""The operating system's files, in one place: everything that opens, writes, renames or removes.

Durability is explicit: `write_durably` and `replace_durably` return after fsync, `sync_directory`
makes renames and removals last. Source of the replace: org.apache.kafka.common.utils.Utils
(atomicMoveWithFallback) and org.apache.kafka.server.common.CheckpointFile.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cordwood.model.errors import DirectoryInUseError, NoSpaceError

_FULL = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What a directory says of a file."""

    size_bytes: int
    modified_ms: int
    modified_ns: int
    mode: int
    uid: int
    gid: int


def facts_of(path: Path) -> FileFacts:
    """Size, modification time, owner and mode of a file.

    Raises:
        OSError: the file cannot be reached.
    """
    status = path.stat()
    return FileFacts(
        size_bytes=status.st_size,
        modified_ms=status.st_mtime_ns // 1_000_000,
        modified_ns=status.st_mtime_ns,
        mode=status.st_mode & 0o7777,
        uid=status.st_uid,
        gid=status.st_gid,
    )


def take_after(path: Path, model: FileFacts) -> None:
    """Gives `path` the owner, group and mode of `model`; changing the owner needs root."""
    if os.geteuid() == 0:
        os.chown(path, model.uid, model.gid)
    path.chmod(model.mode)


def set_modified(path: Path, modified_ns: int) -> None:
    """Sets a file's modification time, nanoseconds since the epoch."""
    os.utime(path, ns=(modified_ns, modified_ns))


def sync_directory(path: Path) -> None:
    """Makes renames and removals in a directory last through a power loss."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FileWriter:
    """A new file, written once from start to end.

    Raises:
        NoSpaceError: the file system is full.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size_bytes = 0
        with room_for(path):
            self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def write(self, data: bytes | memoryview) -> None:
        """Appends all of `data`."""
        view = memoryview(data).cast("B")
        with room_for(self.path):
            while view:
                view = view[os.write(self._handle, view) :]
        self.size_bytes += memoryview(data).nbytes

    def close(self, *, durably: bool = True) -> None:
        """Closes the file, after fsync unless told otherwise."""
        try:
            if durably:
                with room_for(self.path):
                    os.fsync(self._handle)
        finally:
            os.close(self._handle)


class FileReader:
    """Sequential reads of a file into the caller's buffer."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDONLY)
        with suppress(OSError):
            os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def read_into(self, view: memoryview, position: int) -> int:
        """Reads from `position`; returns how many bytes came, 0 at the end of the file."""
        return os.preadv(self._handle, [view], position)

    def close(self) -> None:
        """Closes the file."""
        os.close(self._handle)


@contextmanager
def room_for(path: Path) -> Iterator[None]:
    """Turns the system's word for a full disk into `NoSpaceError`."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise NoSpaceError(f"{path}: the file system is full") from error
        raise


def write_durably(path: Path, data: bytes) -> None:
    """Writes a whole file and its directory entry; on return both are on disk."""
    writer = FileWriter(path)
    try:
        writer.write(data)
    finally:
        writer.close()
    sync_directory(path.parent)


def replace_durably(path: Path, data: bytes, *, model: FileFacts | None = None) -> None:
    """Replaces a small file at once: a crash leaves the old content or the new, never a mixture.

    The new file takes owner and mode of the one it replaces, or of `model` when there is none.
    """
    temporary = path.with_name(path.name + ".tmp")
    with suppress(FileNotFoundError):
        model = facts_of(path)
    writer = FileWriter(temporary)
    try:
        writer.write(data)
    finally:
        writer.close()
    if model is not None:
        take_after(temporary, model)
    temporary.replace(path)
    sync_directory(path.parent)


def rename(path: Path, target: Path) -> None:
    """Renames a file, replacing `target`; lasting only after `sync_directory`."""
    path.replace(target)


def append_durably(path: Path, data: bytes) -> None:
    """Adds to the end of a small file; on return it is on disk."""
    with room_for(path), path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def move_away(path: Path, target: Path) -> None:
    """Moves a file to another folder, perhaps on another file system, owner and times kept."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with room_for(target):
        shutil.move(path, target)


def remove(path: Path) -> None:
    """Removes a file; one that is gone already is no error."""
    path.unlink(missing_ok=True)


def free_bytes(path: Path) -> int:
    """What may still be written to the file system that holds `path`."""
    return shutil.disk_usage(path).free


class DirectoryLock:
    """Kafka's `.lock`: while held, no broker starts on the directory, nor a second `clean`.

    Source: org.apache.kafka.storage.internals.utils.FileLock (a POSIX record lock on an empty
    file, removed again when released).
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / ".lock"
        existed = self._path.exists()
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            if error.errno not in {errno.EACCES, errno.EAGAIN}:
                raise
            raise DirectoryInUseError(
                f"Failed to acquire lock on file .lock in {directory}. A Kafka instance in another "
                "process or thread is using this directory."
            ) from None
        if not existed:
            take_after_directory(self._path, directory)

    @classmethod
    def require_free(cls, directory: Path) -> None:
        """Checks that nobody holds the lock, and touches nothing.

        Raises:
            DirectoryInUseError: somebody does.
        """
        if not (directory / ".lock").exists():
            return
        lock = cls(directory)
        os.close(lock._handle)

    def release(self) -> None:
        """Removes the file and lets go of the lock."""
        self._path.unlink(missing_ok=True)
        os.close(self._handle)


def take_after_directory(path: Path, directory: Path) -> None:
    """Gives a file the owner and group of its directory; needs root, else does nothing."""
    if os.geteuid() == 0:
        owner = directory.stat()
        os.chown(path, owner.st_uid, owner.st_gid)
