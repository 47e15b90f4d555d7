"""Time, passed in: the only module that asks the operating system for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where `now` comes from."""

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


def pause(seconds: float) -> None:
    """Lets other processes go on for a moment, while waiting for what they make."""
    time.sleep(seconds)
