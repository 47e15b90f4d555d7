"""Places that options name for files that are written at the end of a command."""

from __future__ import annotations

import errno
import os
import secrets
from pathlib import Path

from cordwood.model.errors import ConfigError, NoSpaceError
from cordwood.storage.filesystem import OS


def require_writable(option: str, path: Path) -> None:
    """Requires that a file can be written there when the work is done, by writing one beside it.

    Raises:
        ConfigError: it cannot.
    """
    trial = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        if OS.is_directory(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        OS.write_file(trial, b"")
        OS.remove(trial)
    except (OSError, NoSpaceError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{option} {path}: cannot be written: {reason}") from error
