"""The thread that owns a node's state, which is the thread of the event loop.

Source: kafka.server.KafkaRequestHandler and the timers of org.apache.kafka.server.util.timer. Kafka
has many such threads, and locks; here one thread owns the state.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from cordwood.model.clock import Clock
from cordwood.model.timers import Timer
from cordwood.serving.event_loop import iterations_of
from cordwood.serving.slices import Slices
from cordwood.storage.scheduler import Scheduler

_log = logging.getLogger(__name__)

T = TypeVar("T")


class NodeThread:
    """Calls functions on the event loop's thread: soon, later, periodically or in slices."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        slices: Slices,
        clock: Clock,
        scheduler: Scheduler,
    ) -> None:
        """Nothing is scheduled yet.

        Args:
            loop: the event loop.
            slices: runs long work between the turns of the loop.
            clock: the time of records, retention and expiry; tests move it.
            scheduler: runs periodic work by that clock.
        """
        self.loop = loop
        self.slices = slices
        self.clock = clock
        self.iterations = iterations_of(loop)
        self.iterations.cpu_elsewhere_s = lambda: slices.cpu_s
        self._scheduler = scheduler
        self._wait_for_input: Callable[[Callable[[], None]], None] | None = None

    def call_soon(self, run: Callable[[], Any]) -> None:
        """Calls `run` on the event loop's thread, from any thread."""
        self.loop.call_soon_threadsafe(run)

    def call_later_ms(self, delay_ms: float, run: Callable[[], Any]) -> Timer:
        """Calls `run` after `delay_ms` of real time."""
        return self.loop.call_later(delay_ms / 1000, run)

    def create_future(self) -> asyncio.Future[Any]:
        """A future of the event loop."""
        return self.loop.create_future()

    def read_input_with(self, after_input: Callable[[Callable[[], None]], None]) -> None:
        """Sets the function that reads the requests that have arrived before it calls another."""
        self._wait_for_input = after_input

    def after_input(self, run: Callable[[], None]) -> None:
        """Calls `run` when the requests that have arrived by now are read."""
        if self._wait_for_input is None:  # no socket is read yet
            run()
        else:
            self._wait_for_input(run)

    def run_in_slices(self, run: Callable[[], Any]) -> None:
        """Runs `run` in slices, and logs its error."""

        def ended(work: asyncio.Future[Any]) -> None:
            if not work.cancelled() and work.exception() is not None:
                _log.error("Background work failed", exc_info=work.exception())

        self.slices.run(run).add_done_callback(ended)

    def result_of(self, run: Callable[[], T]) -> concurrent.futures.Future[T]:
        """Runs `run` in slices, from any thread; the future has its result.

        Raises:
            RuntimeError: the event loop has ended.
        """

        async def work() -> T:
            return await self.slices.run(run)

        working = work()
        try:
            return asyncio.run_coroutine_threadsafe(working, self.loop)
        except RuntimeError:
            working.close()
            raise

    def schedule(self, name: str, period_ms: int, run: Callable[[], Any]) -> Timer:
        """Calls `run` on the event loop's thread in every period of the movable clock."""
        return self._scheduler.schedule(
            name, lambda: self.call_soon(run), delay_ms=period_ms, period_ms=period_ms
        )
