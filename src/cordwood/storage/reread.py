"""Reads of files that another process may change meanwhile, tried again until one is sound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from cordwood.model.clock import pause
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, FileSystem

T = TypeVar("T")

_ATTEMPTS = 10
_PAUSE_S = 0.02


def reread(read: Callable[[], T], *, directory: Path | None = None, fs: FileSystem = OS) -> T:
    """The result of `read`, which is retried if a file vanished or seemed damaged.

    A file that a broker is appending to may end in half a batch for a moment. With `directory` the
    names in that directory must be the same before and after.

    Raises:
        CorruptError, FileNotFoundError: that of the last attempt.
        OSError: the disk refused.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            before = fs.names_in(directory) if directory else []
            found = read()
            if not directory or fs.names_in(directory) == before:
                return found
        except (CorruptError, FileNotFoundError):
            pass
        pause(_PAUSE_S)
    return read()
