"""Answers of brokers, for a thread that waits for them while the event loop asks.

`BrokerChannels` and the coordinators belong to the event loop; the check of retention and what
serves HTTP run in other threads.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from typing import Final

from cordwood.serving.node_thread import NodeThread

_log = logging.getLogger(__name__)

_WAIT_S: Final = 10.0


class BrokerAnswers:
    """Collects the answers of brokers, for a thread that waits for all of them."""

    def __init__(self) -> None:
        """Begins with no broker asked."""
        self._asked: frozenset[int] | None = None  # they are not known yet
        self._answered: set[int] = set()
        self._done = threading.Event()

    def gather(self, thread: NodeThread, ask: Callable[[], Collection[int]]) -> str | None:
        """Has the event loop ask, and waits until all have answered, ten seconds at most.

        To be called once, by any thread but the event loop's.

        Args:
            thread: the event loop's.
            ask: called there; asks brokers, and returns their ids. `answered` may be called before
                it returns.

        Returns:
            Why nobody, or perhaps not everybody, was asked; None if all were.
        """
        failure: list[str] = []

        def begin() -> None:
            try:
                self._asked = frozenset(ask())
            except Exception as error:  # the thread that waits must not wait for nothing
                _log.exception("Error while asking brokers")
                failure.append(str(error) or type(error).__name__)
                self._done.set()
            else:
                self._end_if_complete()

        try:
            thread.call_soon(begin)
        except RuntimeError as error:  # the event loop has ended
            _log.debug("No broker is asked: %s", error)
            return str(error)
        self._done.wait(_WAIT_S)
        return failure[0] if failure else None

    def answered(self, broker_id: int) -> None:
        """Notes that a broker has answered, or will not. For the event loop's thread."""
        self._answered.add(broker_id)
        self._end_if_complete()

    @property
    def late(self) -> frozenset[int]:
        """The brokers that were asked and have not answered yet."""
        return (self._asked or frozenset()) - self._answered.copy()

    def _end_if_complete(self) -> None:
        if self._asked is not None and self._asked <= self._answered:
            self._done.set()
