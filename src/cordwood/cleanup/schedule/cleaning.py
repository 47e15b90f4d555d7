"""The sequence of a cleaning: pin, plan, nothing to do?, execute, commit.

It is the same for every log. A `LogOwner` pins the state that a plan is made of, commits what was
planned on it, and reports both; it does so by the `LogAccess` of its log.

Source: org.apache.kafka.storage.internals.log.Cleaner.doClean, UnifiedLog.deleteOldSegments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol, TypeVar

from cordwood.cleanup.access.commit import CompactionCommitter, Engine
from cordwood.cleanup.plan.attempt import Attempt
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction import CompactionPlan, plan_compaction
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction
from cordwood.cleanup.rules.cleanable import Cleanable
from cordwood.cleanup.rules.log_view import RetainedLog
from cordwood.cleanup.rules.retention import RetentionPlan, plan_retention
from cordwood.model.errors import EngineError


class RetentionOwner(Protocol):
    """The right to delete segments of one log."""

    def held(self) -> AbstractContextManager[RetainedLog]:
        """The log, which nobody else changes until the context ends.

        Raises:
            StorageError: the log is closed.
        """

    def roll_idle(self, now_ms: int) -> None:
        """Rolls the active segment if it is idle or has expired records; without `held`.

        Raises:
            OSError, CordwoodError: the disk refused.
        """

    def note_retention(self, plan: RetentionPlan) -> None:
        """Reports a plan, which may have nothing to delete."""

    def delete(self, plan: RetentionPlan) -> int:
        """Deletes the expired segments of a plan; returns how many.

        Raises:
            OSError, CordwoodError: the disk refused, or the plan is no longer valid.
        """


class Abandoning(Protocol):
    """Has a compaction done, and can give it up."""

    def abandon(self, committer: CompactionCommitter) -> None:
        """Removes what tasks have staged: the run is interrupted."""


class LogOwner(RetentionOwner, Abandoning, Protocol):
    """The right to clean one log; methods are called in the order given here.

    A `PartitionRun` may be compacted again, from `interrupted` on.
    """

    def guard(self) -> AbstractContextManager[None]:
        """Ends a stage that raises; without it, the error reaches the caller of `compact`."""

    def interrupted(self) -> LogCompaction | None:
        """The compaction that an interrupted run has planned, if it can be continued."""

    def cleanable(self) -> Cleanable | None:
        """The dirty section of the log; None if the log is not compacted."""

    def pin(self, cleanable: Cleanable) -> Captured:
        """The segments to compact, and the state that decides about their records."""

    def note_compaction(self, cleanable: Cleanable, plan: CompactionPlan) -> None:
        """Reports a plan."""

    def attempt(self) -> Attempt:
        """A new attempt at a compaction."""

    def committer(
        self, compaction: LogCompaction, captured: Captured | None
    ) -> CompactionCommitter:
        """Commits the groups of a compaction; `captured` is None if it was interrupted."""

    def finish(self, committer: CompactionCommitter) -> None:
        """Records the outcome and the groups that were committed, and removes the rest."""


T = TypeVar("T", bound=LogOwner)


def retain(owner: RetentionOwner, *, now_ms: int) -> int:
    """Deletes the segments of one log that have expired, rolls an idle one; how many it deleted.

    Raises:
        OSError, CordwoodError: as `RetentionOwner`.
    """
    owner.roll_idle(now_ms)
    with owner.held() as log:
        plan = plan_retention(log, now_ms=now_ms)
        owner.note_retention(plan)
        return owner.delete(plan) if plan.expired else 0


#: A log whose compaction is planned, and the committer of its groups.
Planned = tuple[T, CompactionCommitter]


def compact(
    owners: Iterable[T],
    engine: Callable[[], Engine],
    *,
    now_ms: int,
    arranged: Callable[[list[Planned[T]]], list[Planned[T]]] = lambda work: work,
) -> list[T]:
    """Compacts the logs that are due; returns their owners.

    Args:
        owners: of the logs.
        engine: starts the engine; called only if a log is due.
        now_ms: decides about delete horizons.
        arranged: puts what is planned in the order in which the engine gets it; what it leaves out
            is not compacted.

    Raises:
        OSError, CordwoodError: a log cannot be read, planned or finished, if `LogOwner.guard` lets
            that pass.
        EngineError: the engine cannot be started.
    """
    work: list[Planned[T]] = []
    for owner in owners:
        with owner.guard():
            committer = _plan(owner, now_ms)
            if committer is not None:
                work.append((owner, committer))
    if not work:
        return []
    work = arranged(work)
    if not work:
        return []
    execute(engine(), work)
    for owner, committer in work:
        with owner.guard():
            owner.finish(committer)
    return [owner for owner, _ in work]


def _plan(owner: LogOwner, now_ms: int) -> CompactionCommitter | None:
    """Pins the log and plans its compaction; None if there is nothing to do."""
    interrupted = owner.interrupted()
    if interrupted is not None:
        return owner.committer(replace(interrupted, attempt=owner.attempt()), None)
    cleanable = owner.cleanable()
    if cleanable is None or cleanable.reason is not None:
        return None
    captured = owner.pin(cleanable)
    plan = plan_compaction(captured.view, cleanable)
    owner.note_compaction(cleanable, plan)
    attempt = owner.attempt()
    compaction = prepare_compaction(captured, plan, now_ms=now_ms, seed=attempt.seed)
    return owner.committer(replace(compaction, attempt=attempt), captured)


def execute(engine: Engine, work: Sequence[tuple[Abandoning, CompactionCommitter]]) -> None:
    """Runs compactions, whose groups are committed while it runs; each has an outcome then."""
    failure = EngineError("the engine stopped before the end of the compaction")
    try:
        engine.run([committer for _, committer in work])
    except EngineError as error:
        failure = error
    except BaseException:
        for owner, committer in work:
            owner.abandon(committer)
        raise
    for _, committer in work:
        committer.reject(failure)
