"""A clock that stands still until a test advances it."""

from __future__ import annotations


class ManualClock:
    """A `cordwood.model.clock.Clock` in a test's hand; `now_ms` is milliseconds since the epoch."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._passed_ms = 0

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """Seconds since the clock was made."""
        return self._passed_ms / 1000

    def advance(self, ms: int) -> None:
        """Lets `ms` milliseconds pass, on both counts."""
        assert ms >= 0, f"time does not run backwards: {ms} ms"
        self._now_ms += ms
        self._passed_ms += ms

    def set(self, now_ms: int) -> None:
        """Puts the wall clock to `now_ms`, back too, as a machine's may be; nothing else passes."""
        self._now_ms = now_ms
