"""A process that may be killed at any time, and reports what it does in lines of JSON.

Role: the workers of soaks.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any


class ReportingProcess:
    """A Python module that runs; `take` is called with each line in a thread of its own."""

    def __init__(
        self, module: str, arguments: Sequence[str], take: Callable[[Any], object], *, wait_s: float
    ) -> None:
        """Args: `wait_s` is how long it has to end after a signal before it is killed."""
        self._process = subprocess.Popen(
            # Beside the broker that it loads: what is tried has the processor first.
            ["nice", "-n", "10", sys.executable, "-m", module, *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._take = take
        self._wait_s = wait_s
        self.ended_s = 0.0
        """When it was no more, on the monotonic clock."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def has_ended(self) -> bool:
        """Whether the process is no more."""
        return self._process.poll() is not None

    def send_signal(self, number: int) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kills it, and takes what it has reported."""
        self._process.kill()
        self._end()

    def stop(self) -> None:
        """Has it end by SIGTERM, and takes what it has reported."""
        self._process.terminate()
        self._end()

    def _end(self) -> None:
        try:
            self._process.wait(self._wait_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.ended_s = time.monotonic()
        self._thread.join(self._wait_s)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.endswith("\n"):  # else it was killed in the middle of it
                    self._take(json.loads(line))
