"""The history of a run: what happened when, and to whom. Checkers receive each event."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from support.simulation.events import Event, Replica


class ViolationError(AssertionError):
    """A checker has found what must not be."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


class Checker(Protocol):
    """Looks at events, and knows nothing of the actors."""

    def take(self, event: Event, /) -> None:
        """Looks at an event.

        Raises:
            ViolationError: a guarantee is broken.
        """


class History:
    """Events in order; `digest` differs where two histories do."""

    def __init__(
        self,
        now_ms: Callable[[], float],
        checkers: Sequence[Checker],
        show: Callable[[str], object] | None = None,
    ) -> None:
        """Nothing has happened.

        Args:
            now_ms: the time.
            checkers: see each event.
            show: is given a line for each event.
        """
        self._now_ms = now_ms
        self._checkers = checkers
        self._show = show
        self._hash = hashlib.sha256()
        self.count = 0
        self.violation: ViolationError | None = None
        self.violated_ms = 0.0

    def note(self, actor: str, event: Event) -> None:
        """Something has happened; the first violation is kept."""
        line = f"{self._now_ms():12.3f} {actor:14} {event}"
        if not isinstance(event, Replica):
            self.count += 1
        self._hash.update(line.encode())
        if self._show is not None:
            self._show(line)
        if self.violation is not None:
            return
        for checker in self._checkers:
            try:
                checker.take(event)
            except ViolationError as violation:
                # Without the frames that it was raised in, which refer to the whole run.
                self.violation = violation.with_traceback(None)
                self.violated_ms = self._now_ms()
                if self._show is not None:
                    self._show(f"{self._now_ms():12.3f} VIOLATION      {violation}")
                return

    @property
    def digest(self) -> str:
        """A hash of all lines."""
        return self._hash.hexdigest()
