"""The engine of a run, started when it is first needed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from cordwood.cleanup.access.commit import (
    CompactionCommitter,
    Engine,
    EngineFactory,
)
from cordwood.cleanup.plan.report import Timing
from cordwood.model.clock import Clock


class StartedEngine:
    """The engine of a run, which is started when it is first needed; measures its time.

    `runs` counts its runs; `begun_s` is when it was last needed, `ended_s` when it last ended.
    """

    def __init__(
        self, factory: EngineFactory, stack: ExitStack, clock: Clock, timing: Timing
    ) -> None:
        self.runs = 0
        self.begun_s = self.ended_s = 0.0
        self._factory = factory
        self._stack = stack
        self._clock = clock
        self._timing = timing
        self._engine: Engine | None = None

    def start(self) -> StartedEngine:
        """Starts it, if that has not happened; the end of the stack ends it.

        Raises:
            EngineError: it is unavailable.
        """
        self.begun_s = self._clock.monotonic_s()
        if self._engine is None:
            self._engine = self._stack.enter_context(self._factory())
            self._timing.session += self._clock.monotonic_s() - self.begun_s
        return self

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        """Runs compactions on the started engine, and measures the time."""
        assert self._engine is not None, "it is started before it runs anything"
        self.runs += 1
        begun = self._clock.monotonic_s()
        try:
            self._engine.run(committers)
        finally:
            self.ended_s = self._clock.monotonic_s()
            self._timing.execute += self.ended_s - begun
