"""Runs a command in a pseudo-terminal of a given size, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_READ_BYTES = 1 << 16
_SECONDS_MAX = 120


class Shown(NamedTuple):
    """Output of a command: lines of standard output, standard error, and the exit code."""

    lines: list[str]
    stderr: str
    code: int


def in_terminal(
    arguments: Sequence[object], *, columns: int, rows: int = 40, cwd: Path | None = None
) -> Shown:
    """Runs `cordwood` in a directory, with standard output on a terminal of that size.

    The lines are those that were written: a terminal breaks one that is wider than it is.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {
        name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "cordwood", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=environment | {"TERM": "xterm", "PYTHONUTF8": "1"},
    )
    os.close(theirs)
    shown = bytearray()
    with os.fdopen(ours, "rb", buffering=0) as terminal:
        while True:
            try:
                part = terminal.read(_READ_BYTES)
            except OSError:  # Linux reports so that nobody writes any more
                break
            if not part:
                break
            shown += part
    _, stderr = process.communicate(timeout=_SECONDS_MAX)
    text = _CONTROL.sub("", shown.decode()).replace("\r\n", "\n")
    return Shown(text.splitlines(), stderr.decode(), process.returncode)
