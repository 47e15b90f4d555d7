"""Compactions by Spark in a process of its own, whose groups are put in place in this one.

The process is started when the first compaction is to be run, serves every cleaner thread, and is
stopped when it has had nothing to do for long. Whatever becomes of it, this process lives on: a
compaction that it takes with it fails with an EngineError and is run again later, by another. When
it ends, by itself or not, every process that it had started is ended before anything else happens,
so that nobody writes to a log's directory any more.

Nothing of Spark, nor compiled code, is loaded here.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cordwood.cleanup.access.commit import CompactionCommitter, IndexStats
from cordwood.cleanup.engine.commit_loop import (
    CommittersOwner,
    begin_all,
    commit_while,
    reject_unfinished,
)
from cordwood.cleanup.engine.engine_status import EngineDeath, EngineStatus
from cordwood.cleanup.engine.spark_child import CHILD_MODULE, SparkChild
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.plan.compaction_values import Manifest, failure_from_json
from cordwood.cleanup.plan.outcome import Committed
from cordwood.model.clock import Clock, SystemClock
from cordwood.model.errors import (
    CordwoodError,
    EngineError,
    EngineUnavailableError,
    MissingExtraError,
)
from cordwood.model.extras import SPARK, require_extra

_log = logging.getLogger(__name__)

#: How long tasks of a compaction that was given up have to end by themselves. They look several
#: times a second, at a low priority: on a machine that is busy a second may pass before they run.
_GRACE_S = 5.0
# Errors that say nothing of a log's disk.
_ITS_OWN = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EPIPE, errno.ECONNRESET}
)
_TABLE_BYTES_MAX = (1 << 31) - 1
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class Backoff:
    """The first wait before another start, and the longest, in seconds; each is twice the last."""

    first_s: float
    longest_s: float

    def after(self, failures: int) -> float:
        """The wait after so many failures in a row."""
        return min(self.longest_s, self.first_s * 2.0 ** min(failures - 1, 30))


_UNAVAILABLE = Backoff(5.0, 300.0)
_DIED = Backoff(1.0, 60.0)


class _Run:
    """Compactions that a child executes or will execute."""

    def __init__(self, committers: Sequence[CompactionCommitter]) -> None:
        self.committers = committers
        self.owner = CommittersOwner(committers)
        self.over = threading.Event()
        self.error: EngineError | None = None

    @property
    def given_up(self) -> bool:
        """Whether none of its compactions may continue, though some are not committed."""
        outcomes = [committer.outcome for committer in self.committers]
        is_committed = all(isinstance(outcome, Committed) for outcome in outcomes)
        return None not in outcomes and not is_committed


class _Search:
    """A search of an erasure that a child executes or will execute; `found` is its answer."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.error: CordwoodError | OSError | None = None
        self.found: list[Any] = []


class SparkProcess:
    """An engine whose Spark runs in a child process; several threads may use it at once."""

    def __init__(
        self,
        settings: CleanerSettings | None = None,
        *,
        unavailable: Backoff = _UNAVAILABLE,
        died: Backoff = _DIED,
        grace_s: float = _GRACE_S,
        module: str = CHILD_MODULE,
        clock: Clock | None = None,
    ) -> None:
        """Prepares; nothing is started.

        Args:
            settings: how many cores and how much memory for keys it may take.
            unavailable: waits after Spark could not be started.
            died: waits after it ended unexpectedly.
            grace_s: how long the tasks of a compaction that was given up have to end by themselves
                before the process is killed.
            module: what runs in the process.
            clock: the time of the waits; the machine's by default.
        """
        self.starts = self.deaths = self.rounds_done = 0
        self._settings = settings or CleanerSettings()
        self._backoffs = {"unavailable": unavailable, "died": died}
        self._grace_s = grace_s
        self._module = module
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._child: SparkChild | None = None
        self._children: set[SparkChild] = set()
        self._runs: dict[tuple[SparkChild, int], _Run | _Search] = {}
        self._numbers = 0
        self._failures = 0
        self._retry_at_s = 0.0
        self._closed = False
        # What was last wrong: ("unavailable" or "died", why, when in ms).
        self._trouble: tuple[str, str, int] | None = None
        self._last_death: EngineDeath | None = None

    # ---- the engine

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        """Runs each compaction; afterwards its committer has an outcome.

        Raises:
            EngineUnavailableError: Spark is unavailable for now; the text gives the reason.
            EngineError: its process ended meanwhile.
        """
        committers = begin_all(committers)
        if not committers:
            return
        run = _Run(committers)
        rounds = [committer.compaction.to_json() for committer in committers]
        child, number = self._hand_over(run, do="run", rounds=rounds)
        try:
            commit_while(committers, self._watching(run, child, number), sparing=True)
        except BaseException:
            # Whatever it is, tasks must not write to a directory that nobody watches over.
            child.kill("a compaction failed in the broker's process")
            child.join()
            raise
        finally:
            with self._lock:
                self._runs.pop((child, number), None)
        if run.error is not None:
            for committer in committers:
                committer.reject(run.error)
            if isinstance(run.error, EngineUnavailableError):
                raise run.error
            return
        if run.over.is_set():
            with self._lock:
                self._failures = 0
                self._trouble = None
                self.rounds_done += len(committers)
        reject_unfinished(committers)

    def search(
        self,
        segments: Sequence[dict[str, Any]],
        expressions: Sequence[str],
        require_wanted: Callable[[], None],
    ) -> list[Any]:
        """Searches segment files with Spark SQL; gives a `SearchResult` of each, as JSON.

        Args:
            segments: each as `partition`, its name, and `source`, a `SegmentSource` as JSON.
            expressions: boolean, of which one has to be true.
            require_wanted: raises if the search must not continue; called several times a second.

        Raises:
            ConfigError: an expression cannot be evaluated.
            EngineUnavailableError, EngineError: as `run`.
        """
        search = _Search()
        child, number = self._hand_over(
            search, do="search", segments=list(segments), expressions=list(expressions)
        )
        try:
            while not search.over.wait(_LOOK_S):
                require_wanted()
        except BaseException:
            child.withdraw(number)  # one that has begun only reads
            raise
        finally:
            with self._lock:
                self._runs.pop((child, number), None)
        if search.error is not None:
            raise search.error
        return search.found

    def _hand_over(self, run: _Run | _Search, **order: Any) -> tuple[SparkChild, int]:
        with self._lock:
            self._require_available()
            child = self._child
            if child is None:
                try:
                    require_extra(SPARK, what="compaction")
                    child = self._child = self._start()
                except MissingExtraError as error:
                    self._note_trouble("unavailable", str(error))
                    raise
                except (OSError, RuntimeError) as error:  # no descriptors, no threads
                    why = f"it could not be started: {error}"
                    self._note_trouble("unavailable", why)
                    raise EngineUnavailableError(why) from error
            self._numbers += 1
            number = self._numbers
            self._runs[child, number] = run
        child.send(
            number,
            {"run": number, "table_bytes": self._table_bytes()} | order,
        )
        return child, number

    def _require_available(self) -> None:
        if self._closed:
            raise EngineUnavailableError("the engine was closed")
        if self._child is None and self._clock.monotonic_s() < self._retry_at_s:
            assert self._trouble is not None, "a wait has a reason"
            raise EngineUnavailableError(self._trouble[1])

    def _start(self) -> SparkChild:
        self.starts += 1
        child = SparkChild(self, cores=max(1, self._settings.threads), module=self._module)
        self._children.add(child)
        child.start()
        return child

    def _table_bytes(self) -> int:
        share = self._settings.dedupe_buffer_size // max(1, self._settings.threads)
        return min(share, _TABLE_BYTES_MAX)

    def _watching(self, run: _Run, child: SparkChild, number: int) -> Callable[[], bool]:
        """Whether a run continues; a cancelled run that does not end is ended."""
        given_up_at: list[float] = []

        def is_executing() -> bool:
            if run.over.is_set():
                return False
            if run.given_up:
                now = self._clock.monotonic_s()
                if child.withdraw(number):
                    return False
                if not given_up_at:
                    given_up_at.append(now)
                elif now - given_up_at[0] > self._grace_s:
                    child.kill("a cancelled compaction did not end")
            return True

        return is_executing

    # ---- what the child says, in its thread

    def heard(self, child: SparkChild, message: dict[str, Any]) -> None:
        """Handles a message of the child: of its state, or of a run."""
        kind = message["of"]
        if kind == "ready":
            with self._lock:
                self._trouble = None
            _log.info("Spark runs in process %s, for %s cleaner threads", child.pid, child.cores)
        elif "run" in message:
            with self._lock:
                run = self._runs.get((child, message["run"]))
            if isinstance(run, _Search):
                _note_found(run, message)
            elif run is not None:
                self._note(run, message, child)

    def _note(self, run: _Run, message: dict[str, Any], child: SparkChild) -> None:
        kind = message["of"]
        if kind == "skip":
            manifests = message["manifests"].items()
            run.owner.skip(
                message["name"], {int(n): Manifest.from_json(value) for n, value in manifests}
            )
        elif kind == "indexed":
            run.owner.indexed(message["name"], IndexStats(**message["index"]))
        elif kind == "failed":
            error = failure_from_json(message["failure"])
            if isinstance(error, OSError) and error.errno in _ITS_OWN:
                error = EngineError(f"the Spark process: {error}")
            run.owner.fail(message["name"], error)
        elif kind == "ended":
            if message["gave_up"]:  # what its tasks do is anybody's guess: `over` when they ended
                child.kill("Spark failed a job", kind="died")
            else:
                run.over.set()

    def idle_s(self, child: SparkChild) -> float | None:
        """The idle time that is allowed; 0 for a child that another has replaced."""
        with self._lock:
            if any(of is child for of, _ in self._runs):
                return None
            if self._closed or self._child is not child:
                return 0.0
            return self._settings.spark_idle_ms / 1000

    def retire(self, child: SparkChild) -> bool:
        """Gives the child up unless it has a run."""
        with self._lock:
            if any(of is child for of, _ in self._runs):
                return False
            if self._child is child:
                self._child = None
            return True

    def ended(self, child: SparkChild) -> None:
        """Forgets the child; the compactions that ended with it may be run again."""
        trouble = child.trouble
        with self._lock:
            if self._child is child:
                self._child = None
            self._children.discard(child)
            runs = [run for (of, _), run in self._runs.items() if of is child]
            if trouble is not None:
                self._note_trouble(*trouble)
        for run in runs:
            kind, why = trouble or ("", "it was stopped")
            run.error = (
                EngineUnavailableError(why)
                if kind == "unavailable"
                else EngineError(f"the Spark process ended: {why}")
            )
            run.over.set()

    def _note_trouble(self, kind: str, why: str) -> None:
        known = self._trouble
        self._failures += 1
        wait_s = self._backoffs[kind].after(self._failures)
        self._retry_at_s = self._clock.monotonic_s() + wait_s
        self._trouble = kind, why, self._clock.now_ms()
        if kind == "died":
            self.deaths += 1
            self._last_death = EngineDeath(at_ms=self._clock.now_ms(), reason=why)
        if known is not None and known[:2] == (kind, why):
            _log.debug("Spark is still %s: %s", kind, why)
        elif kind == "unavailable":
            _log.error(
                "Spark is not available, so no log is compacted: %s. It is retried in %.0f s, "
                "and then from time to time",
                why,
                wait_s,
            )
        else:
            _log.warning("The Spark process ended: %s. It is restarted when needed", why)

    # ---- what others ask

    def configure(self, settings: CleanerSettings) -> None:
        """Applies other settings; a child with another number of cores ends when it is idle."""
        with self._lock:
            old, self._settings = self._settings, settings
            if old.threads != settings.threads:
                self._child = None
            children = list(self._children)
        for child in children:
            child.look()

    def status(self) -> EngineStatus:
        """Its state, and what is known of its process."""
        with self._lock:
            child, trouble = self._child, self._trouble
            found = EngineStatus(
                state="not started",
                cores=max(1, self._settings.threads),
                key_table_bytes=self._table_bytes(),
                runs=len(self._runs),
                rounds_done=self.rounds_done,
                starts=self.starts,
                deaths=self.deaths,
                last_death=self._last_death,
            )
            if self._closed:
                found = replace(found, state="closed")
            elif child is not None:
                found = replace(found, state=child.state, pid=child.pid, since_ms=child.since_ms)
            elif trouble is not None:
                wait_s = max(0.0, self._retry_at_s - self._clock.monotonic_s())
                found = replace(
                    found,
                    state=trouble[0],
                    reason=trouble[1],
                    since_ms=trouble[2],
                    retry_in_s=round(wait_s, 1),
                )
        if child is not None and trouble is not None and child.state == "starting":
            return replace(found, reason=trouble[1])
        return found

    def close(self) -> None:
        """Ends the child and all it started, and returns when they are gone."""
        with self._lock:
            self._closed = True
            children = list(self._children)
        for child in children:
            child.kill("the cleaner is being stopped")
        for child in children:
            child.join()


def _note_found(search: _Search, message: dict[str, Any]) -> None:
    if message["of"] == "found":
        search.found = message["found"]
    elif message["of"] == "not found":
        search.error = failure_from_json(message["failure"])
    else:
        return
    search.over.set()
