"""Searchers and engines of erasures in a running broker.

Keys are searched in this process, by compiled code that runs without the interpreter's lock, and so
is little rewritten; much is rewritten by the cleaner's engine, whose process evaluates SQL, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, Protocol, runtime_checkable

from cordwood.cleanup.access.commit import Engine
from cordwood.cleanup.engine.search.search import (
    ExactKeys,
    Searched,
    Searcher,
    SearcherHere,
    SearchResult,
    result_from_json,
)
from cordwood.cleanup.engine.thread_engine import ThreadEngine
from cordwood.cleanup.erasure.request import EraseRequest
from cordwood.model.errors import EngineError
from cordwood.storage.filesystem import FileSystem

#: From so many bytes on, the cleaner's engine rewrites them; as for a stopped directory.
_ENGINE_BYTES_MIN = 1 << 30


class ByteProgress(Protocol):
    """Receives how many bytes of a phase are done."""

    def begin_bytes(self, phase: str, total: int) -> None:
        """A phase over so many bytes begins."""

    def bytes_done(self, size_bytes: int) -> None:
        """Counts bytes that were read; may raise an EngineError to end the erasure."""


@runtime_checkable
class SearchingEngine(Protocol):
    """An engine that evaluates SQL expressions; see `SparkProcess.search`."""

    def search(
        self,
        segments: Sequence[dict[str, Any]],
        expressions: Sequence[str],
        require_wanted: Callable[[], None],
    ) -> list[Any]:
        """The result of each segment, as `result_from_json` takes it."""


class RunningBackend:
    """An `ErasureBackend` in a running broker, for one erasure."""

    def __init__(
        self,
        request: EraseRequest,
        engine: Engine,
        *,
        progress: ByteProgress,
        require_wanted: Callable[[], None],
        fs: FileSystem,
    ) -> None:
        """Takes the cleaner's engine; `require_wanted` raises if the erasure must not continue."""
        self._request = request
        self._cleaning_engine = engine
        self._progress = progress
        self._require_wanted = require_wanted
        self._fs = fs

    def searcher(self, size_bytes: int, /) -> Searcher:
        """Searches keys in this process, and with the cleaner's Spark for an expression.

        Raises:
            EngineError: the cleaner's engine evaluates no expressions.
        """
        criteria = self._request.criteria
        if criteria.where is not None:
            engine = self._cleaning_engine
            if not isinstance(engine, SearchingEngine):
                raise EngineError("--where needs Spark, which this broker's cleaner does not use")
            self._progress.begin_bytes("searching with Spark", 0)
            return _WhereSearcher(engine, [criteria.where], self._require_wanted)
        self._progress.begin_bytes("searching", size_bytes)
        matchers = [ExactKeys(criteria.keys)]
        return SearcherHere(matchers, progress=self._progress.bytes_done, fs=self._fs)

    def engine(self, size_bytes: int, /) -> Engine:
        """A thread of this process, or the cleaner's engine for much."""
        # An erasure reads each segment twice: to mark its records, and to rewrite it.
        if size_bytes < _ENGINE_BYTES_MIN:
            self._progress.begin_bytes("rewriting", 2 * size_bytes)
            return ThreadEngine(self._progress.bytes_done, fs=self._fs)
        self._progress.begin_bytes("rewriting with Spark", 0)
        return self._cleaning_engine


class _WhereSearcher:
    """A `Searcher` by SQL, in the process of the cleaner's engine."""

    def __init__(
        self,
        engine: SearchingEngine,
        expressions: Sequence[str],
        require_wanted: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._expressions = list(expressions)
        self._require_wanted = require_wanted

    def find(self, segments: Sequence[Searched]) -> list[SearchResult]:
        """Has the engine search with the expressions."""
        asked = [
            {
                "partition": str(each.partition),
                "source": asdict(each.source),
                "bounds": asdict(each.bounds),
            }
            for each in segments
        ]
        found = self._engine.search(asked, self._expressions, self._require_wanted)
        return list(map(result_from_json, found))
