"""Kafka's `.lock` of a log directory.

Source: org.apache.kafka.storage.internals.utils.FileLock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import ClassVar

from cordwood.model.errors import DirectoryInUseError
from cordwood.storage.filesystem import OS, room_for

# Linux's struct flock of 64 bits: type, whence, start, length, process.
_FLOCK = "hhqqi4x"


class DirectoryLock:
    """Kafka's `.lock`: while held, no broker starts on the directory, nor a second `clean`.

    Source: org.apache.kafka.storage.internals.utils.FileLock (a POSIX record lock on an empty
    file, removed again when released).
    """

    # A process does not exclude itself by such a lock, and loses it when it closes the file again.
    # The value is the process: a forked child has the names, and not the locks.
    _held: ClassVar[dict[Path, int]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, directory: Path) -> None:
        self._path = directory.resolve() / ".lock"
        with self._guard:
            if self._held.get(self._path) == os.getpid():
                raise self._in_use(directory)
            existed = self._path.exists()
            with room_for(self._path):
                self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(self._handle)
                if error.errno not in {errno.EACCES, errno.EAGAIN}:
                    raise
                raise self._in_use(directory) from None
            self._held[self._path] = os.getpid()
        if not existed:
            OS.take_after_directory(self._path, directory)

    @staticmethod
    def _in_use(directory: Path) -> DirectoryInUseError:
        return DirectoryInUseError(
            f"Failed to acquire lock on file .lock in {directory}. A Kafka instance in another "
            "process or thread is using this directory."
        )

    @classmethod
    def holder(cls, directory: Path) -> int | None:
        """The process that holds the lock, None if none does; the lock is not taken to see it.

        0 stands for a process of another machine or container.

        Raises:
            OSError: the file cannot be opened.
        """
        path = directory.resolve() / ".lock"
        with cls._guard:
            if cls._held.get(path) == os.getpid():  # closing the file would let go of the lock
                return os.getpid()
            try:
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return None
            try:
                asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
                kind, _, _, _, pid = struct.unpack(
                    _FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked)
                )
            finally:
                os.close(handle)
        return None if kind == fcntl.F_UNLCK else max(0, pid)

    def release(self) -> None:
        """Removes the file and lets go of the lock, of this even if the file cannot be removed."""
        try:
            OS.remove(self._path)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        with self._guard:
            self._held.pop(self._path, None)
            os.close(self._handle)
