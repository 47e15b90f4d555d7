"""The event loop of a node, and how long its iterations are.

An iteration is what runs between two looks at the sockets. A long one holds up every client, so
iterations of more than `LONG_ITERATION_S` are counted, and logged with what ran: as a warning if
they took processor time, or a second. `EventLoop` is a uvloop that measures its iterations; a node
in any other loop counts none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, TypeVarTuple

import uvloop

from cordwood.model.clock import SystemClock, thread_cpu_s

_log = logging.getLogger(__name__)

_Ts = TypeVarTuple("_Ts")

LONG_ITERATION_S: Final = 0.05
_LOG_INTERVAL_S: Final = 1.0
_STANDSTILL_S: Final = 1.0


class LoopIterations:
    """Counts iterations and measures them.

    `cpu_elsewhere_s` returns the processor time of other threads that work for the loop.

    Times are in seconds. `longest_s` and `longest_cpu_s` are of the iterations since
    `take_longest`; `long_count` is the number of those longer than `LONG_ITERATION_S`.
    """

    def __init__(self, now_s: Callable[[], float] | None = None) -> None:
        """`now_s` returns the time; the machine's if None."""
        self.count = 0
        self.long_count = 0
        self.longest_s = 0.0
        self.longest_cpu_s = 0.0
        self.cpu_elsewhere_s: Callable[[], float] = lambda: 0.0
        self._clock = now_s or SystemClock().monotonic_s
        self._begun_s = 0.0
        self._begun_cpu_s = 0.0
        self._what: list[tuple[float, str]] = []
        self._log_after_s = 0.0
        self._unlogged = 0
        self._is_paused = False

    def pause(self) -> None:
        """Counts no iteration until `resume`: a node that starts or stops serves nobody."""
        self._is_paused = True

    def resume(self) -> None:
        """Counts iterations, the rest of this one first."""
        self._is_paused = False
        self.begin()

    def begin(self) -> None:
        """Notes that an iteration begins."""
        self._what.clear()
        self._begun_cpu_s = thread_cpu_s() + self.cpu_elsewhere_s()
        self._begun_s = self._clock()

    def note(self, what: str, seconds: float) -> None:
        """Notes something that ran in this iteration, and for how long."""
        self._what.append((seconds, what))

    def end(self) -> None:
        """Notes that the iteration ends."""
        if self._is_paused:
            return
        now_s = self._clock()
        taken_s = now_s - self._begun_s
        self.count += 1
        cpu_s = thread_cpu_s() + self.cpu_elsewhere_s() - self._begun_cpu_s
        self.longest_cpu_s = max(self.longest_cpu_s, cpu_s)
        self.longest_s = max(self.longest_s, taken_s)
        if taken_s > LONG_ITERATION_S:
            self.long_count += 1
            self._report(now_s, taken_s, cpu_s)

    def take_longest(self) -> float:
        """The duration of the longest iteration since the last call."""
        longest, self.longest_s, self.longest_cpu_s = self.longest_s, 0.0, 0.0
        return longest

    def _description(self) -> str:
        if not self._what:
            return "no request"
        seconds, what = max(self._what)
        return f"{what} for {seconds * 1000:.0f} ms, the longest of {len(self._what)}"

    def _report(self, now_s: float, taken_s: float, cpu_s: float) -> None:
        """Logs long iterations, one line a second at most."""
        if now_s < self._log_after_s:
            self._unlogged += 1
            return
        # An iteration that took little processor time has waited for a busy machine or a slow disk.
        is_busy = cpu_s > LONG_ITERATION_S / 2 or taken_s >= _STANDSTILL_S
        _log.log(
            logging.WARNING if is_busy else logging.INFO,
            "The event loop was busy for %.0f ms (%.0f ms of processor time) with %s%s",
            taken_s * 1000,
            cpu_s * 1000,
            self._description(),
            f"; {self._unlogged} more since the last such message" if self._unlogged else "",
        )
        self._unlogged = 0
        self._log_after_s = now_s + _LOG_INTERVAL_S


class EventLoop(uvloop.Loop):
    """A uvloop whose iterations are measured by `iterations`.

    Every callback that reaches Python is wrapped. The first of an iteration begins it; a callback
    that it leaves to be run before the next look at the sockets ends it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.iterations = LoopIterations()
        self._in_iteration = False

    def _end_iteration(self) -> None:
        self._in_iteration = False
        self.iterations.end()

    def _measured(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> None:
            if not self._in_iteration:
                self._in_iteration = True
                uvloop.Loop.call_soon(self, self._end_iteration)
                self.iterations.begin()
            callback(*args)

        return run

    def call_soon(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Schedules the callback, measured as part of an iteration; as do the methods below."""
        return super().call_soon(self._measured(callback), *args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Schedules the callback from any thread, measured."""
        return super().call_soon_threadsafe(self._measured(callback), *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedules the callback after a delay, measured."""
        return super().call_later(delay, self._measured(callback), *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*_Ts], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedules the callback at a time, measured."""
        return super().call_at(when, self._measured(callback), *args, context=context)

    def add_reader(self, fd: Any, callback: Callable[[*_Ts], Any], *args: *_Ts) -> None:
        """Calls back when the descriptor is readable, measured."""
        super().add_reader(fd, self._measured(callback), *args)

    def add_writer(self, fd: Any, callback: Callable[[*_Ts], Any], *args: *_Ts) -> None:
        """Calls back when the descriptor is writable, measured."""
        super().add_writer(fd, self._measured(callback), *args)


def iterations_of(loop: asyncio.AbstractEventLoop) -> LoopIterations:
    """The iterations of a loop; of one that is no `EventLoop`, none is counted."""
    return loop.iterations if isinstance(loop, EventLoop) else LoopIterations()


def run(main: Coroutine[Any, Any, Any]) -> None:
    """Runs a coroutine in an event loop of its own, to its end."""
    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(main)
