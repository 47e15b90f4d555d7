"""The progress of loading logs: a bar on a terminal, otherwise a line every few seconds.

Source: org.apache.kafka.storage.internals.log.LogManager.loadLogs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cordwood.model.clock import Clock, SystemClock
from cordwood.model.errors import CordwoodError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from cordwood.storage.loaded_log_directory import LoadProgress

_log = logging.getLogger("cordwood.serve")

_LINE_EVERY_S = 5.0


class StoppedLoadingError(CordwoodError):
    """The process was stopped while it loaded logs; the logs are left as after a crash."""


class StoppableLoading:
    """Forwards to another listener, and ends the loading once `should_stop` returns true."""

    def __init__(self, listener: LoadProgress, should_stop: Callable[[], bool]) -> None:
        self._listener = listener
        self._should_stop = should_stop

    def begin(self, log_dir: Path, total: int) -> None:
        """Forwards the call.

        Raises:
            StoppedLoadingError: the loading has to stop; other calls raise it too.
        """
        self._go_on()
        self._listener.begin(log_dir, total)

    def advance(self, log_dir: Path, name: str) -> None:
        """Forwards the call."""
        self._go_on()
        self._listener.advance(log_dir, name)

    def segment(self, name: str, number: int, total: int) -> None:
        """Forwards the call."""
        self._go_on()
        self._listener.segment(name, number, total)

    def _go_on(self) -> None:
        if self._should_stop():
            raise StoppedLoadingError("stopped while logs were being loaded")


class LoadLines:
    """Logs a line for each directory, and a line every few seconds during the loading."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._totals: dict[Path, int] = {}
        self._done: dict[Path, int] = {}
        self._last_s = self._clock.monotonic_s()

    def begin(self, log_dir: Path, total: int) -> None:
        """Logs the number of logs in a directory."""
        self._totals[log_dir] = total
        self._done[log_dir] = 0
        _log.info("Loading %s logs from %s", total, log_dir)

    def advance(self, log_dir: Path, name: str) -> None:
        """Counts a loaded log; logs the progress every few seconds."""
        with self._lock:
            self._done[log_dir] += 1
            if not self._is_time():
                return
        _log.info(
            "Completed load of %s (%s/%s completed in %s)",
            name,
            self._done[log_dir],
            self._totals[log_dir],
            log_dir,
        )

    def segment(self, name: str, number: int, total: int) -> None:
        """Logs which segment is being recovered, every few seconds."""
        with self._lock:
            if not self._is_time():
                return
        _log.info("Recovering segment %s of %s of %s", number, total, name)

    def _is_time(self) -> bool:
        now_s = self._clock.monotonic_s()
        if now_s - self._last_s < _LINE_EVERY_S:
            return False
        self._last_s = now_s
        return True


class LoadBars:
    """A bar for each directory, on a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[Path, TaskID] = {}

    def begin(self, log_dir: Path, total: int) -> None:
        """Adds the directory's bar."""
        self._tasks[log_dir] = self._progress.add_task(f"Loading {log_dir}", total=total)

    def advance(self, log_dir: Path, name: str) -> None:
        """Advances the bar."""
        del name
        self._progress.update(self._tasks[log_dir], advance=1, description=f"Loading {log_dir}")

    def segment(self, name: str, number: int, total: int) -> None:
        """Shows the segment that is being recovered beside the bar."""
        for task in self._tasks.values():
            self._progress.update(task, description=f"Recovering {name}: {number} of {total}")
