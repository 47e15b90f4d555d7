"""A thread that works, rests for a while of the clock, and works again, until it is stopped.

The clock may be one that tests or operators move: the caller that moves it calls `clock_moved`, and
a rest that is over by the new time ends immediately. Without the call, the thread notices within a
second.

Source: org.apache.kafka.server.util.ShutdownableThread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cordwood.model.clock import Clock

_log = logging.getLogger(__name__)

_LOOK_S = 1.0


class WorkerThread:
    """Calls `work` over and over; what it returns says how long to rest (ms), 0 not at all.

    `failed` says that `work` raised something, which ended the thread; `resting` that it rests now.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], int],
        *,
        clock: Clock,
        ends_it: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> None:
        """Prepares; `start` starts it.

        Args:
            name: of the thread, also for what is logged.
            work: one step; returns for how many ms to rest.
            clock: measures rests.
            ends_it: errors that `work` raises when it is stopped.
        """
        self.name = name
        self.failed = False
        self.resting = False
        self._work = work
        self._clock = clock
        self._ends_it = ends_it
        self._condition = threading.Condition()
        self._stopping = False
        self._woken = False
        self._holders = 0
        self._has_rested = False
        self._is_working = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def stopping(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopping

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Starts it."""
        self._thread.start()

    def wake(self) -> None:
        """Ends the rest that it is in, or would begin next."""
        with self._condition:
            self._woken = True
            self._condition.notify_all()

    def clock_moved(self) -> None:
        """Wakes the thread to check the clock."""
        with self._condition:
            self._condition.notify_all()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Waits until what it is at is done; it begins nothing before the context ends."""
        with self._condition:
            self._holders += 1
            self._condition.wait_for(lambda: not self._is_working)
        try:
            yield
        finally:
            with self._condition:
                self._holders -= 1
                self._condition.notify_all()

    def wait_for_rest(self, timeout_s: float) -> bool:
        """Waits for its first rest, or for its end; whether either has come in that time."""
        with self._condition:
            return self._condition.wait_for(lambda: self._has_rested, timeout_s)

    def stop(self) -> None:
        """Asks it to stop, and returns immediately."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Waits until it has stopped; whether it has."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        _log.info("[%s]: Starting", self.name)
        try:
            while self._may_begin():
                try:
                    rest_ms = self._work()
                finally:
                    self._note_end()
                self._rest(rest_ms)
        except self._ends_it:
            pass
        except Exception:
            _log.exception("[%s]: Error due to", self.name)
            self.failed = True
        finally:
            self._note_rest()
            _log.info("[%s]: Stopped", self.name)

    def _may_begin(self) -> bool:
        """Waits while it is held; returns whether it may continue then."""
        with self._condition:
            self._condition.wait_for(lambda: self._stopping or not self._holders)
            self._is_working = not self._stopping
            return self._is_working

    def _note_end(self) -> None:
        with self._condition:
            self._is_working = False
            self._condition.notify_all()

    def _note_rest(self) -> None:
        with self._condition:
            self._has_rested = True
            self._condition.notify_all()

    def _rest(self, duration_ms: int) -> None:
        begun_ms = self._clock.now_ms()
        with self._condition:
            while not (self._stopping or self._woken):
                passed_ms = self._clock.now_ms() - begun_ms
                # A clock that was put back says nothing about what has passed.
                if passed_ms >= duration_ms or passed_ms < 0:
                    break
                self.resting = True
                self._note_rest()
                self._condition.wait(min(_LOOK_S, (duration_ms - passed_ms) / 1000))
            self._woken = self.resting = False
