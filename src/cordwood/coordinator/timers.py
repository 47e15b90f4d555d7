"""Named timers: setting a timer replaces the timer with the same name.

A timer may fire late, after the event loop or the machine was stopped, and the input that would
have cancelled it may have arrived in the meantime. So a due timer first lets the event loop read
all input that has arrived, and fires only if it is still set after that.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from cordwood.model.timers import CallLater, Timer

AfterInput = Callable[[Callable[[], None]], None]
"""Calls a function when the requests that have arrived by now have been read."""


def at_once(run: Callable[[], None]) -> None:
    """Runs the function, for timers whose owner has no input to wait for."""
    run()


class Timers:
    """Timers by key."""

    def __init__(self, call_later_ms: CallLater, after_input: AfterInput = at_once) -> None:
        self._call_later_ms = call_later_ms
        self._after_input = after_input
        self._pending: dict[Hashable, Timer] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, key: object) -> bool:
        return key in self._pending

    def count_of(self, kind: str) -> int:
        """The number of timers whose key is a tuple that begins with `kind`."""
        return sum(isinstance(key, tuple) and key[0] == kind for key in self._pending)

    def set(self, key: Hashable, delay_ms: int, fn: Callable[[], None]) -> None:
        """Calls `fn` after `delay_ms`, unless the timer is cancelled or set again before."""
        self.cancel(key)

        def ring() -> None:
            if self._pending.get(key) is handle:
                del self._pending[key]
                fn()

        def due() -> None:
            if self._pending.get(key) is handle:
                self._after_input(ring)

        handle = self._call_later_ms(delay_ms, due)
        self._pending[key] = handle

    def cancel(self, key: Hashable) -> None:
        """Stops a timer, if it is set."""
        handle = self._pending.pop(key, None)
        if handle is not None:
            handle.cancel()

    def cancel_all(self) -> None:
        """Stops them all."""
        for key in list(self._pending):
            self.cancel(key)
