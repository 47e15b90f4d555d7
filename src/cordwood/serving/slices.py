"""Long work of requests, in slices between iterations of the event loop.

A request whose work may be long runs on a thread of its own, but not at the same time as the event
loop: the loop hands its turn to the thread and waits, and the thread hands it back when it has run
for a slice (`model.pauses.pause`), when it does something that needs no shared state
(`model.pauses.background`), or at its end. At any moment one thread works on the broker's state, so
that handlers need no locks whether they run in slices or not. After each slice the loop reads and
writes its sockets before another slice begins.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from cordwood.model import pauses
from cordwood.model.clock import SystemClock, thread_cpu_s
from cordwood.serving.request_errors import UnansweredRequestError

T = TypeVar("T")

SLICE_S: Final = 0.002
_THREADS_MAX: Final = 32


class Slices:
    """Runs work in slices; belongs to the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, slice_s: float = SLICE_S) -> None:
        """No thread is started before there is work.

        Args:
            loop: the event loop.
            slice_s: the seconds that work runs before the next iteration.
        """
        self._loop = loop
        self._slice_s = slice_s
        self._pool = ThreadPoolExecutor(_THREADS_MAX, "request-in-slices")
        self._ready: deque[_Work] = deque()
        self._is_due = False
        self._is_closed = False
        self._unfinished: set[_Work] = set()
        self.cpu_s = 0.0
        self.count = 0

    @property
    def unfinished_count(self) -> int:
        """The amount of work that has begun, or waits to begin."""
        return len(self._unfinished)

    def run(self, run: Callable[[], T]) -> asyncio.Future[T]:
        """A future of the result of `run`, which begins in a later iteration of the loop.

        Work that has started is finished even if the future is cancelled.
        """
        work = _Work(self, run, self._loop.create_future())
        if self._is_closed:
            _fail(work.done, UnansweredRequestError("the broker is shutting down"))
            return work.done
        self._unfinished.add(work)
        self._pool.submit(work.main)
        return work.done

    async def finish(self) -> None:
        """Returns when no work is left; what comes later fails with UnansweredRequestError."""
        self._is_closed = True
        while self._unfinished:
            await asyncio.wait([work.ended for work in self._unfinished])
        self._pool.shutdown(wait=True)  # its threads have no work left

    def wait_for_turn(self, work: _Work) -> None:
        """Queues the work behind the works that wait already, from the work's thread."""
        self._loop.call_soon_threadsafe(self._add, work)

    def _add(self, work: _Work) -> None:
        self._ready.append(work)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        """One slice of the work that has waited longest."""
        self._is_due = False
        work = self._ready.popleft()
        self.count += 1
        self.cpu_s += work.step(self._slice_s)
        if work.is_finished:
            self._unfinished.discard(work)
            work.deliver()
        elif work.wants_more:
            self._ready.append(work)
        if self._ready:
            self._schedule()


class _Work:
    """One piece of work, its thread, and the turn that both threads pass to each other."""

    def __init__(self, slices: Slices, run: Callable[[], Any], done: asyncio.Future[Any]) -> None:
        self.done = done
        self.ended: asyncio.Future[None] = done.get_loop().create_future()
        self.is_finished = False
        self.wants_more = False
        self._slices = slices
        self._run = run
        self._value: Any = None
        self._error: BaseException | None = None
        self._clock = SystemClock().monotonic_s
        self._ends_at_s = 0.0
        self._slice_s = 0.0
        self._cpu_begun_s = 0.0
        self._cpu_s = 0.0
        self._go = threading.Semaphore(0)
        self._back = threading.Semaphore(0)

    # ---- on the event loop's thread

    def step(self, slice_s: float) -> float:
        """Lets the work run until its slice ends; returns the processor time it took."""
        self._slice_s = slice_s
        self._go.release()
        self._back.acquire()
        return self._cpu_s

    def deliver(self) -> None:
        """Completes the futures with the value or the error."""
        if not self.ended.done():
            self.ended.set_result(None)
        if self.done.cancelled():
            return
        if self._error is not None:
            _fail(self.done, self._error)
        else:
            self.done.set_result(self._value)

    # ---- on the work's thread

    def main(self) -> None:
        """Runs the work, to its end."""
        self.come_back()
        try:
            with pauses.running(self):
                self._value = self._run()
        except BaseException as error:  # raised where the work is awaited
            self._error = error
        self.is_finished = True
        self._hand_back()

    def pause(self) -> None:
        """Gives the loop an iteration, if the slice is over."""
        if self._clock() < self._ends_at_s:
            return
        self.wants_more = True
        self._hand_back()
        self._begin_slice()

    def leave(self) -> None:
        """Lets the loop run beside what follows, which uses no shared state."""
        self.wants_more = False
        self._hand_back()

    def come_back(self) -> None:
        """Waits for a slice."""
        self._slices.wait_for_turn(self)
        self._begin_slice()

    def _hand_back(self) -> None:
        self._cpu_s = thread_cpu_s() - self._cpu_begun_s
        self._back.release()

    def _begin_slice(self) -> None:
        self._go.acquire()
        self.wants_more = False
        self._ends_at_s = self._clock() + self._slice_s
        self._cpu_begun_s = thread_cpu_s()


def _fail(done: asyncio.Future[Any], error: BaseException) -> None:
    """Completes a future with an error that asyncio does not report if the client has gone."""
    done.set_exception(error)
    done.exception()
