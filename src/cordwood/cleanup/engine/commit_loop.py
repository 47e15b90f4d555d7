"""The half of an engine that belongs to the owner of the logs: it puts groups in place meanwhile.

The other half executes compactions, in another thread or another process, and calls an `Owner`:
what it says of a compaction is noted in its committer. The other half needs compiled code; this
half does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cordwood.cleanup.access.commit import CompactionCommitter, IndexStats
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.outcome import Rejected, Unknown
from cordwood.model.clock import pause
from cordwood.model.errors import CordwoodError, EngineError

_POLL_S = 0.01
_POLL_MAX_S = 0.1


class Owner(Protocol):
    """Receives the progress and the results of compactions, by their names."""

    def begin(self, names: Sequence[str], phase: str, total: int, done: int) -> None:
        """Begins a phase over `total` bytes, of which `done` are done."""

    def skip(self, name: str, manifests: Mapping[int, Manifest]) -> None:
        """Leaves groups of a compaction, by number, as they are."""

    def indexed(self, name: str, index: IndexStats) -> None:
        """Records the statistics of indexing of a compaction."""

    def fail(self, name: str, error: Exception) -> None:
        """A compaction went wrong; the first error counts."""

    def is_wanted(self, name: str) -> bool:
        """Whether a compaction may continue."""


class CommittersOwner:
    """An `Owner` that notes all in the committers of compactions executed in this process."""

    def __init__(self, committers: Sequence[CompactionCommitter]) -> None:
        self._by_name = {committer.compaction.name: committer for committer in committers}

    def begin(self, names: Sequence[str], phase: str, total: int, done: int) -> None:
        """Does nothing."""

    def skip(self, name: str, manifests: Mapping[int, Manifest]) -> None:
        """Keeps the manifests of skipped groups."""
        self._by_name[name].skip(dict(manifests))

    def indexed(self, name: str, index: IndexStats) -> None:
        """Keeps the statistics of the index."""
        self._by_name[name].result.index = index

    def fail(self, name: str, error: Exception) -> None:
        """Ends the compaction; an error after its end is ignored."""
        self._by_name[name].reject(error)

    def is_wanted(self, name: str) -> bool:
        """Whether nothing is wrong with the compaction."""
        return not isinstance(self._by_name[name].outcome, Rejected | Unknown)


def begin_all(committers: Sequence[CompactionCommitter]) -> list[CompactionCommitter]:
    """Starts the compactions; returns those that can be executed.

    A compaction that cannot begin is rejected.
    """
    begun = []
    for committer in committers:
        try:
            committer.begin()
        except (OSError, CordwoodError) as error:
            committer.reject(error)
        else:
            begun.append(committer)
    return begun


def commit_ready(committers: Sequence[CompactionCommitter]) -> bool:
    """Commits the groups that are ready, of every compaction; returns whether there was one.

    A compaction that cannot continue is cancelled, and its tasks are notified.
    """
    moved = False
    for committer in committers:
        match committer.outcome:
            case None:
                moved |= committer.poll()
            case Rejected() | Unknown():
                committer.stop_tasks()
    return moved


def commit_while(
    committers: Sequence[CompactionCommitter],
    is_executing: Callable[[], bool],
    *,
    tick: Callable[[], None] = lambda: None,
    sparing: bool = False,
) -> None:
    """Commits groups until the execution has ended.

    Args:
        committers: of the compactions.
        is_executing: whether more may come.
        tick: called between.
        sparing: look ten times a second where nothing comes for a while, in place of a hundred, so
            that whatever else this process does is not slowed.
    """
    least_s = max([_POLL_S, *(each.look_again_s for each in committers)])
    wait_s = least_s
    while is_executing():
        moved = commit_ready(committers)
        tick()
        slower_s = min(_POLL_MAX_S, 1.2 * wait_s)
        wait_s = least_s if moved or not sparing else max(least_s, slower_s)
        if not moved:
            pause(wait_s)
    commit_ready(committers)


def reject_unfinished(committers: Sequence[CompactionCommitter]) -> None:
    """Rejects compactions of which some groups were never announced."""
    for committer in committers:
        committer.reject(EngineError("its task ended without a result"))
