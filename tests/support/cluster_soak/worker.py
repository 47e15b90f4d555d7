"""A client of a cluster soak, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Worker:
    """A thread that works until it is stopped; an error of its own is kept in `failure`."""

    def __init__(self, run: Callable[[threading.Event], None]) -> None:
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._run = run
        self._thread = threading.Thread(target=self._main)
        self._thread.start()

    def stop(self) -> None:
        """Returns when what it has begun has ended.

        Raises:
            BaseException: what has ended it before.
        """
        self._stopping.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _main(self) -> None:
        try:
            self._run(self._stopping)
        except BaseException as error:  # raised by `stop`
            self.failure = error


def stop_all(workers: list[Worker]) -> None:
    """Stops all, and raises the first error of one."""
    failures: list[BaseException] = []
    while workers:
        try:
            workers.pop().stop()
        except BaseException as error:  # the others must be stopped, too
            failures.append(error)
    if failures:
        raise failures[0]
