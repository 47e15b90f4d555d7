"""A temporary directory of one run: locked while the run lives, removed when it ends.

Spark, its workers and the libraries in its virtual machine put every temporary file into it. A run
that is killed leaves its directory behind; a later run removes it. A directory is in use as long as
its lock is held, by the run or by a process that inherited `lock` from it. A virtual machine that
is starting outlives a killed run for a moment, and never ends if it cannot write to the directory.
The kernel releases the lock when the last of these processes has ended.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

PREFIX = "cordwood-run-"


class RunDirectory:
    """A new directory below the system's directory for temporary files; a context manager."""

    def __init__(self) -> None:
        """Creates the directory and removes those of runs that were killed.

        Raises:
            OSError: no directory can be created.
        """
        remove_leftovers()
        while True:
            path = Path(tempfile.mkdtemp(prefix=PREFIX))
            lock = _lock(path)
            # Another process may take a directory that is not locked yet for a leftover.
            if lock is not None:
                break
        self.path = path
        self._lock: int | None = lock

    @property
    def lock(self) -> int:
        """The descriptor that holds the lock, for processes that use the directory to inherit."""
        assert self._lock is not None, "the directory was removed"
        return self._lock

    def remove(self) -> None:
        """Removes the directory and all that is in it; a second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()


def temporary_directory() -> Path:
    """The system's directory for temporary files, in which those of runs are."""
    return Path(tempfile.gettempdir())


def remove_leftovers() -> None:
    """Removes the directories of this user's runs that have ended without removing them."""
    for path in temporary_directory().glob(f"{PREFIX}*"):
        lock = _lock(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock(path: Path) -> int | None:
    """The descriptor that holds the directory's lock; None if it is in use, gone, or not ours."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        facts = os.fstat(handle)
        if facts.st_uid == os.geteuid() and os.path.samestat(facts, path.stat()):
            return handle
    os.close(handle)
    return None
