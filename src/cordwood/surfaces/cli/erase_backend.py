"""Searcher and engine of `cordwood erase`: in this process, or on Spark where there is much.

An SQL expression is always Spark's. What is small is done here by the same code that tasks run, in
less time than Spark takes to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from cordwood.cleanup.access.commit import Engine
from cordwood.cleanup.engine.search.condition import Condition, parse_condition
from cordwood.cleanup.engine.search.search import (
    ByRecord,
    ExactKeys,
    Matcher,
    Searched,
    Searcher,
    SearcherHere,
    SearchResult,
    joined,
)
from cordwood.cleanup.engine.thread_engine import ThreadEngine
from cordwood.cleanup.erasure.request import EraseRequest
from cordwood.model.extras import SPARK, require_extra
from cordwood.surfaces.cli.clean_progress import CleanProgress

#: From so many bytes on, work is given to Spark; at 200 MB a second that is longer than its start.
_SPARK_BYTES_MIN = 1 << 30


class CommandBackend:
    """An `ErasureBackend` for one run of a command; starts Spark at most once."""

    def __init__(self, request: EraseRequest, master: str, display: CleanProgress) -> None:
        self._master = master
        self._display = display
        self._stack = ExitStack()
        self._runner: Any = None
        self._matchers: list[Matcher] = []
        self._conditions: list[Condition] = []
        if request.criteria.keys:
            self._matchers.append(ExactKeys(request.criteria.keys))
        if request.criteria.where is not None:
            self._conditions.append(parse_condition(request.criteria.where))
        for each in request.suppressions:
            matcher = each.matcher()
            if matcher is not None:
                self._matchers.append(ByRecord(matcher))
            self._conditions += each.conditions()

    def searcher(self, size_bytes: int, /) -> Searcher:
        """Searches in this process, and with Spark for an expression or where there is much."""
        searchers: list[Searcher] = []
        if self._matchers and size_bytes < _SPARK_BYTES_MIN:
            searchers.append(SearcherHere(self._matchers))
        elif self._matchers:
            from cordwood.cleanup.engine.spark.erase import SparkSearcher  # noqa: PLC0415  # seconds

            runner = self._started()
            searchers.append(SparkSearcher(runner, self._matchers, slots=runner.slots))
        if self._conditions:
            from cordwood.cleanup.engine.spark.erase import WhereSearcher  # noqa: PLC0415

            runner = self._started()
            session = runner.session()
            searchers.append(WhereSearcher(session, self._conditions, slots=runner.slots))
        return _All(searchers)

    def engine(self, size_bytes: int, /) -> Engine:
        """A thread of this process, or Spark where there is much."""
        if size_bytes < _SPARK_BYTES_MIN:
            return ThreadEngine()
        from cordwood.cleanup.engine.spark.engine import EngineCallbacks, SparkEngine  # noqa: PLC0415

        runner = self._started()
        return SparkEngine(
            runner,
            slots=runner.slots,
            cores=min(runner.slots, runner.cores),
            callbacks=EngineCallbacks(self._display.bytes_done, self._display.overall),
        )

    def _started(self) -> Any:
        if self._runner is None:
            require_extra(SPARK, what="this erasure")
            from cordwood.cleanup.engine.spark.session import spark_runner  # noqa: PLC0415  # seconds

            self._display.say("starting Spark")
            self._runner = self._stack.enter_context(spark_runner(self._master))
        return self._runner

    def close(self) -> None:
        """Stops Spark, if it was started."""
        self._stack.close()


class _All:
    """A `Searcher` that finds what any of several finds."""

    def __init__(self, searchers: list[Searcher]) -> None:
        self._searchers = searchers

    def find(self, segments: Sequence[Searched]) -> list[SearchResult]:
        """Searches by each searcher in turn, and joins what they find in each segment."""
        found = [searcher.find(segments) for searcher in self._searchers]
        return [joined(ones) for ones in zip(*found, strict=True)]
