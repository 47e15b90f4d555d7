"""Access of the HTTP endpoint's threads to state that belongs to the event loop's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


class OnLoop(Protocol):
    """Calls a function while the event loop waits, and returns its result."""

    def __call__(self, work: Callable[[], T], /) -> T:
        """The result of `work`, which runs in slices: `pauses.pause` gives the loop its turn.

        Raises:
            Refusal: the loop is busy, or stopped.
        """
