"""Delayed work, by the clock: flushes, removals, checkpoints, retention.

Nothing runs by itself: the owner of the scheduler calls `run_due`, a broker from its loop, a test
after it has moved the clock. So a day of delays takes no longer than the work in it.

Source: org.apache.kafka.server.util.Scheduler, MockScheduler.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable

from cordwood.model.clock import Clock

_log = logging.getLogger(__name__)


class Task:
    """Work that is due at a moment; repeated where it has a period."""

    __slots__ = ("_cancelled", "name", "period_ms", "run")

    def __init__(self, name: str, run: Callable[[], object], period_ms: int | None) -> None:
        self.name = name
        self.run = run
        self.period_ms = period_ms
        self._cancelled = False

    @property
    def cancelled(self) -> bool:
        """Whether it will not run again."""
        return self._cancelled

    def cancel(self) -> None:
        """Cancels the task."""
        self._cancelled = True


class Scheduler:
    """Tasks by the moment they are due; those due at the same moment run in the order given."""

    def __init__(self, clock: Clock, *, catch_up: bool = True) -> None:
        """Starts empty.

        Args:
            clock: says what is due.
            catch_up: a periodic task whose moment has passed several times runs once for each; if
                not, once, as where a clock jumps by days.
        """
        self.on_change: Callable[[], None] | None = None
        self._clock = clock
        self._catch_up = catch_up
        self._lock = threading.Lock()
        self._idle = threading.Condition(self._lock)
        self._running: Counter[int] = Counter()
        self._numbers = itertools.count()
        self._queue: list[tuple[int, int, Task]] = []

    def schedule_once(self, name: str, run: Callable[[], object], *, delay_ms: int = 0) -> Task:
        """Schedules `run` once, in `delay_ms`."""
        return self._put(Task(name, run, None), self._clock.now_ms() + delay_ms)

    def schedule(
        self, name: str, run: Callable[[], object], *, delay_ms: int, period_ms: int
    ) -> Task:
        """Schedules `run` in `delay_ms`, and then every `period_ms`."""
        return self._put(Task(name, run, period_ms), self._clock.now_ms() + delay_ms)

    def _put(self, task: Task, due_ms: int) -> Task:
        with self._lock:
            heapq.heappush(self._queue, (due_ms, next(self._numbers), task))
        if self.on_change is not None:
            self.on_change()
        return task

    def next_due_ms(self) -> int | None:
        """The time of the next task, in ms since the epoch; None when there is none."""
        with self._lock:
            while self._queue and self._queue[0][2].cancelled:
                heapq.heappop(self._queue)
            return self._queue[0][0] if self._queue else None

    def run_due(self) -> int:
        """Runs every task that is due by now, the earliest first; how many ran.

        A task that fails is logged and, where it has a period, runs again when that is over.
        """
        now_ms = self._clock.now_ms()
        count = 0
        while (found := self._take(now_ms)) is not None:
            due_ms, task = found
            try:
                task.run()
            except Exception:
                _log.exception("Uncaught exception in scheduled task '%s'", task.name)
            finally:
                self._done()
            count += 1
            if task.period_ms is not None and not task.cancelled:
                next_ms = due_ms + max(1, task.period_ms)
                self._put(task, next_ms if self._catch_up else max(next_ms, now_ms + 1))
        return count

    def _take(self, now_ms: int) -> tuple[int, Task] | None:
        with self._lock:
            while self._queue and self._queue[0][0] <= now_ms:
                due_ms, _, task = heapq.heappop(self._queue)
                if not task.cancelled:
                    self._running[threading.get_ident()] += 1
                    return due_ms, task
        return None

    def _done(self) -> None:
        with self._idle:
            self._running[threading.get_ident()] -= 1
            self._running = +self._running
            self._idle.notify_all()

    def wait_for_others(self) -> None:
        """Returns when no task runs that another thread has begun."""
        own = threading.get_ident()
        with self._idle:
            self._idle.wait_for(lambda: not self._running.keys() - {own})


class SchedulerThread:
    """Calls `run_due` when something is due, in a thread of its own."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._changed = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="kafka-scheduler", daemon=True)
        scheduler.on_change = self._changed.set

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Checks again what is due: the clock was advanced."""
        self._changed.set()

    def stop(self) -> None:
        """Ends when the task that runs has; nothing more is begun."""
        self._stopped = True
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            self._changed.clear()
            self._scheduler.run_due()
            due_ms = self._scheduler.next_due_ms()
            wait_s = None if due_ms is None else max(0.0, (due_ms - self._clock.now_ms()) / 1000)
            self._changed.wait(wait_s)
