"""Time, passed in: the only module that asks the operating system for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The source of the current time."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start, never going back."""


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        return time.monotonic()


class FixedClock:
    """One moment: for work that is done as of a time that the caller chooses."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start; always the same."""
        return 0.0


class MovableClock:
    """The machine's clock, some time ahead of it: for trying out what happens in a week."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self._machine = SystemClock()
        self._ahead_ms = ahead_ms

    @property
    def ahead_ms(self) -> int:
        """The time in ms by which the clock has been advanced."""
        return self._ahead_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._machine.now_ms() + self._ahead_ms

    def monotonic_s(self) -> float:
        """Seconds from an arbitrary start, never going back."""
        return self._machine.monotonic_s() + self._ahead_ms / 1000

    def advance(self, ms: int) -> None:
        """Advances the clock by so many milliseconds.

        Raises:
            ValueError: `ms` is negative; time does not run backwards.
        """
        if ms < 0:
            raise ValueError(f"a clock cannot be moved back: {ms} ms")
        self._ahead_ms += ms


def thread_cpu_s() -> float:
    """Processor time that the calling thread has used, in seconds."""
    return time.thread_time()


def pause(seconds: float) -> None:
    """Sleeps, to let other processes run while waiting for their output."""
    time.sleep(seconds)
