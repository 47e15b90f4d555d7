"""Runs a program as a container does, by bubblewrap: as process 1, with as little as can be.

The root directory cannot be written, the user has neither a name nor a home, and there is no
environment but PATH.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

UID = 12345
_PATH = "/usr/local/bin:/usr/bin:/bin"


def contained(*command: str, writable: Sequence[Path] = ()) -> list[str]:
    """The command line that runs `command` in a container, in which `writable` can be written."""
    binds = [part for path in writable for part in ("--bind", str(path), str(path))]
    return [
        *("bwrap", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", *binds),
        *("--unshare-user", "--uid", str(UID), "--gid", str(UID), "--unshare-pid", "--as-pid-1"),
        *("--die-with-parent", "--clearenv", "--setenv", "PATH", _PATH),
        *command,
    ]


def require_containers() -> None:
    """Skips the test where this machine cannot make containers."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is missing: apt-get install bubblewrap")
    tried = subprocess.run(contained("true"), capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this machine refuses namespaces to bubblewrap: {tried.stderr.strip()}")
