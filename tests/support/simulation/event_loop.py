"""An event loop whose time is simulated: it runs one callback after another, and never waits.

When nothing is ready, the time jumps to the next timer. Callbacks run in the order in which they
were scheduled, and there is no other source of events, so that a history depends on the seed alone.

Each callback belongs to the process (`Process`) in whose context it was scheduled. That of a dead
process does not run, as if the operating system had ended it there; that of a suspended one runs
later. Code under test runs in such processes, and does not know of them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from contextvars import Context, ContextVar, copy_context
from typing import Any

from cordwood.testing.manual_clock import ManualClock

PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)
"""The process that runs."""

EPOCH_MS = 1_700_000_000_000
"""The time of a right clock when a loop begins."""


class StandstillError(Exception):
    """Nothing is scheduled any more."""


class Process:
    """Code that runs, stands still, or has ended for good."""

    def __init__(self, name: str) -> None:
        """Runs from now on.

        Args:
            name: of the node in the network; that of the process after a restart is the same.
        """
        self.name = name
        self.is_dead = False
        self.is_suspended = False
        self._held: deque[asyncio.Handle] = deque()
        self.context: Context = copy_context()
        self.context.run(PROCESS.set, self)

    def end(self) -> None:
        """Nothing of it runs any more."""
        self.is_dead = True

    def hold(self, handle: asyncio.Handle) -> None:
        """Keeps what would run.

        Of a dead process, too: what nobody refers to is collected, and Python would run the
        `finally` of its coroutines.
        """
        self._held.append(handle)

    def resume(self) -> deque[asyncio.Handle]:
        """The callbacks to run now."""
        self.is_suspended = False
        held, self._held = self._held, deque()
        return held


class _NoInput:
    """Selector without any file."""

    def close(self) -> None:
        """Nothing is open."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """See the module. `events` counts the callbacks that have run."""

    def __init__(self) -> None:
        """The time is 0; nothing is scheduled."""
        super().__init__()
        self.events = 0
        self._now_s = 0.0
        self._selector = _NoInput()
        self.set_task_factory(self._make_task)
        self.network: Any = None

    def __del__(self) -> None:
        """Does nothing: coroutines that are collected after the loop may still schedule."""

    # BaseEventLoop calls these two from within.

    def _process_events(self, _events: object) -> None:
        """There are no files."""

    def _write_to_self(self) -> None:
        """There is no other thread that waits."""

    def time(self) -> float:
        """Simulated seconds since the loop was made."""
        return self._now_s

    @property
    def now_ms(self) -> float:
        """The same in ms."""
        return self._now_s * 1000

    def _make_task(self, loop: Any, coro: Any, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, context=context)
        # A process that ends leaves its tasks where they are.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        return task

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Any, host: str, port: int, **_: Any
    ) -> tuple[Any, Any]:
        """A connection in the simulated network."""
        found: tuple[Any, Any] = await self.network.connect(protocol_factory, host, port)
        return found

    def wake(self, process: Process) -> None:
        """Has a suspended process continue."""
        self._ready.extend(process.resume())  # type: ignore[attr-defined]

    def _run_once(self) -> None:
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        timers: list[asyncio.TimerHandle] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0].cancelled():
            self._forget(heapq.heappop(timers))
        if not ready:
            if not timers:
                raise StandstillError
            self._now_s = max(self._now_s, timers[0].when())
        while timers and timers[0].when() <= self._now_s:
            timer = heapq.heappop(timers)
            timer._scheduled = False  # type: ignore[attr-defined]
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle.cancelled():
                continue
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]
            if process is not None:
                if process.is_dead:
                    process.hold(handle)
                    continue
                if process.is_suspended:
                    process.hold(handle)
                    continue
            self.events += 1
            handle._run()

    def _forget(self, timer: asyncio.TimerHandle) -> None:
        timer._scheduled = False  # type: ignore[attr-defined]
        self._timer_cancelled_count -= 1  # type: ignore[attr-defined]


class SkewedClock:
    """A node's clock: wrong by some time, and as much faster or slower than the others."""

    def __init__(self, loop: SimulatedLoop, *, offset_ms: int = 0, rate: float = 1.0) -> None:
        """Shows `offset_ms` more than it should at first, and runs at `rate`."""
        self._loop = loop
        self.offset_ms = offset_ms
        self._rate = rate

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return EPOCH_MS + self.offset_ms + int(self._loop.now_ms * self._rate)

    def monotonic_s(self) -> float:
        """Seconds since the start."""
        return self._loop.time() * self._rate


def still_clock() -> ManualClock:
    """A clock for file systems: nothing depends on the times of files."""
    return ManualClock()
