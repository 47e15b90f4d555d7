"""A process that does not outlive this one.

The kernel kills a child of this kind when the thread that started it ends (PR_SET_PDEATHSIG), so
one thread, which lives as long as this process, starts all of them. Each leads a session of its
own: Ctrl-C at a terminal reaches this process alone, which stops its children in order.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from cordwood.cleanup.engine.child_session import end_session

#: Asks the kernel for its end with its parent, and becomes the program: `die_with` without imports.
_LAUNCH: Final = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9);"
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execvp(sys.argv[2], sys.argv[2:])"
)
_LOG_END_BYTES: Final = 4096
_LOG_END_LINES: Final = 15

_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starts-children")


class ChildProcess:
    """A process from its start on; what it prints is appended to a file."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_file: Path,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it.

        Args:
            command: the program and its arguments.
            log_file: gets its standard output and standard error.
            environment: variables besides those of this process.
        """
        self._log_file = log_file
        self._log_start = log_file.stat().st_size if log_file.exists() else 0
        self._process = _starter.submit(self._start, command, {**(environment or {})}).result()

    def _start(
        self, command: Sequence[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        with self._log_file.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-IS", "-c", _LAUNCH, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; after a signal ended it, that signal's number below 0."""
        return self._process.poll()

    @property
    def log(self) -> str:
        """The output of the process since its start."""
        with self._log_file.open("rb") as file:
            file.seek(self._log_start)
            return file.read().decode("utf-8", "replace")

    @property
    def end_of_log(self) -> str:
        """The last lines that it has printed."""
        with self._log_file.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, end - _LOG_END_BYTES))
            text = file.read().decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-_LOG_END_LINES:])

    def pause(self) -> None:
        """Suspends it (SIGSTOP)."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues it (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """Sends SIGTERM, which a suspended process takes when it continues."""
        self._signal(signal.SIGTERM)
        self.resume()

    def wait(self, timeout_s: float) -> int | None:
        """The exit code; None if it runs for longer than this."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """Ends it and the processes that it has started (SIGKILL), and waits for its end."""
        if self._process.poll() is None:
            end_session(self._process.pid)
            self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            self._process.send_signal(number)
