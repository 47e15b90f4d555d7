"""Admits one request at a time of those whose work grows with the node's size.

All threads of a process share the interpreter: sixteen requests that compute side by side would
each take their turn before the event loop gets its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cordwood.surfaces.http.server import Refusal

_RETRY_AFTER_S: Final = 1


class Lane:
    """Lets one thread in at a time; thread-safe.

    `size_max` is how many there may be: the one that is in, and those that wait.
    """

    def __init__(self, what: str, *, waiting_max: int) -> None:
        """Creates the lane, in which no thread is.

        Args:
            what: the requests, in the plural, for the text of a refusal.
            waiting_max: how many may wait beside the one that is in.
        """
        self._what = what
        self.size_max = waiting_max + 1
        self._counting = threading.Lock()
        self._count = 0
        self._running = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """A block that one request at a time runs, in the order of their arrival.

        Raises:
            Refusal: so many wait already: 503, with a Retry-After.
        """
        with self._counting:
            if self._count >= self.size_max:
                raise Refusal(
                    503,
                    f"{self._count} {self._what} are answered or wait, one at a time: try again "
                    "later",
                    retry_after_s=_RETRY_AFTER_S,
                )
            self._count += 1
        try:
            with self._running:
                yield
        finally:
            with self._counting:
                self._count -= 1
