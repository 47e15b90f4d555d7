"""Timers: calls that are due later and can be cancelled until then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> object:
        """Cancels the call; has no effect after the call."""


CallLater = Callable[[int, Callable[[], None]], Timer]
"""Calls a function after a delay in ms of real time, on the thread that owns the caller."""
