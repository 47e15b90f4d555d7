"""The progress of a task, and its pace."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from cordwood.cleanup.access.announcements import (
    progress_path,
    require_wanted,
    write_progress,
)
from cordwood.model.clock import Clock, SystemClock, pause
from cordwood.model.errors import EngineError, NoSpaceError
from cordwood.storage.filesystem import OS, FileSystem

_THROTTLE_STEP_S = 0.2
_LOOK_AGAIN_S = 0.2


# What a task did not use of its rate for longer is lost, as in Kafka's Throttler.
_THROTTLE_WINDOW_S = 0.3


class ProgressFile:
    """Counts the bytes a task has worked through, in a file that its driver looks at.

    The file stays when the task ends, so that the driver counts what was done.

    With `bytes_per_s` it makes the task wait when what it has read and written is ahead of its
    time. A task that was slow to begin, or had to wait, does not go faster afterwards. A task whose
    compaction is given up meanwhile ends.

    Source: org.apache.kafka.storage.internals.utils.Throttler, with its window of 300 ms.
    """

    def __init__(
        self,
        directory: str,
        attempt: str,
        phase: str,
        *,
        bytes_per_s: int | None = None,
        fs: FileSystem = OS,
        clock: Clock | None = None,
    ) -> None:
        self._directory = Path(directory)
        self._attempt = attempt
        self._fs = fs
        self._path = progress_path(self._directory, phase)
        self._bytes = 0
        self._clock = clock or SystemClock()
        self._bytes_per_s = bytes_per_s
        # When all that was moved is in time; None before the first move.
        self._in_time_at_s: float | None = None
        self._written_at = 0.0
        self._look_again_s = max(_LOOK_AGAIN_S, fs.look_again_s(self._directory))
        self._is_discarded = False

    def __call__(self, count: int) -> None:
        """Counts `count` bytes more that were read.

        Raises:
            EngineError: the owner of the log gave up the compaction.
        """
        self._bytes += count
        now = self._clock.monotonic_s()
        if now - self._written_at > self._look_again_s:
            self._written_at = now
            self._require_wanted()
            write_progress(self._path, self._bytes, fs=self._fs)
        self._keep_pace(count)

    def wrote(self, count: int) -> None:
        """Counts `count` bytes that were written, for the pace alone.

        Raises:
            EngineError: the owner of the log gave up the compaction.
        """
        self._keep_pace(count)

    def _keep_pace(self, count: int) -> None:
        if not self._bytes_per_s:
            return
        now_s = self._clock.monotonic_s()
        since_s = now_s if self._in_time_at_s is None else self._in_time_at_s
        self._in_time_at_s = max(since_s, now_s - _THROTTLE_WINDOW_S) + count / self._bytes_per_s
        while (ahead_s := self._in_time_at_s - self._clock.monotonic_s()) > 0:
            self._require_wanted()
            pause(min(ahead_s, _THROTTLE_STEP_S))

    def _require_wanted(self) -> None:
        require_wanted(self._directory, self._attempt, fs=self._fs)

    def close(self) -> None:
        """Reports the rest. The file goes with the other staged ones, at once if nobody looks.

        After `discard` there is nothing to report.
        """
        if self._is_discarded:
            return
        try:
            self._require_wanted()
        except EngineError:
            self._remove()
        else:
            write_progress(self._path, self._bytes, fs=self._fs)

    def discard(self) -> None:
        """Takes back what was reported: the work is done again from its beginning."""
        self._is_discarded = True
        self._remove()

    def _remove(self) -> None:
        with suppress(OSError, NoSpaceError):
            self._fs.remove(self._path)
