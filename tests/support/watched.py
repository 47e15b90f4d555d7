"""Repeatable random numbers, and tasks whose errors a test sees."""

from __future__ import annotations

import random
from collections.abc import Callable

from cordwood.model.clock import Clock
from cordwood.storage.scheduler import Scheduler, Task


class SeededRng:
    """A `cordwood.model.rng.Chance` that draws the same every time."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def below(self, bound: int) -> int:
        """A number from 0 to `bound`, exclusive."""
        return self._rng.randrange(bound)

    def unique_id(self) -> str:
        """32 hexadecimal digits."""
        return f"{self._rng.getrandbits(128):032x}"


class WatchedScheduler(Scheduler):
    """A scheduler that keeps what its tasks raise, for a test to see."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.errors: list[Exception] = []

    def schedule_once(self, name: str, run: Callable[[], object], *, delay_ms: int = 0) -> Task:
        """Schedules work whose errors are kept."""
        return super().schedule_once(name, self._watched(run), delay_ms=delay_ms)

    def schedule(
        self, name: str, run: Callable[[], object], *, delay_ms: int, period_ms: int
    ) -> Task:
        """Schedules periodic work whose errors are kept."""
        return super().schedule(name, self._watched(run), delay_ms=delay_ms, period_ms=period_ms)

    def run_due(self) -> int:
        """Runs what is due, and raises the first error of a task."""
        count = super().run_due()
        if self.errors:
            raise self.errors.pop(0)
        return count

    def _watched(self, run: Callable[[], object]) -> Callable[[], None]:
        def watched() -> None:
            try:
                run()
            except Exception as error:
                self.errors.append(error)
                raise

        return watched
