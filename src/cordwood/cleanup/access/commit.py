"""A compaction's rewritten groups, put in place by the log's owner as tasks announce them.

Nothing here decides anything. What differs between online and offline logs is a `Placement`.

Source: org.apache.kafka.storage.internals.log.LocalLog.replaceSegments,
LogCleanerManager.doneCleaning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cordwood.cleanup.access.announcements import (
    announced,
    begin_attempt,
    end_attempt,
    staging_errors,
)
from cordwood.cleanup.plan.compaction_values import Discarded, Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.outcome import Committed, Outcome, Rejected, Unknown
from cordwood.model.clock import SystemClock
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.model.held_signals import held_signals
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.replace import STAGED_SUFFIX, StagedSegment

_log = logging.getLogger(__name__)


class StalePlanError(CordwoodError):
    """The state that a plan is based on has changed; nothing was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStats:
    """Statistics of indexing the keys of a dirty section.

    `utilization` is how much of the memory for keys they took, 1 where they had to be spilled.
    """

    bytes_read: int
    elapsed_s: float
    keys: int
    utilization: float


@dataclass(slots=True)
class CompactionResult:
    """Result of the compaction of one partition, None as `outcome` until it has ended.

    `manifests` are those of the groups in place, and `placing_s` is how many seconds it took to put
    them there.
    """

    name: str
    outcome: Outcome | None = None
    manifests: list[Manifest] = field(default_factory=list)
    index: IndexStats | None = None
    placing_s: float = 0.0

    @property
    def discarded(self) -> Discarded:
        """Records that went, by reason."""
        total = Discarded()
        for manifest in self.manifests:
            total = total.plus(manifest.discarded)
        return total


class Placement(Protocol):
    """Places rewritten groups instead of their sources."""

    def require_wanted(self) -> None:
        """Checks that the compaction may continue; called before every group, and while tasks work.

        Raises:
            CordwoodError: it is not; the groups in place stay.
        """

    def place(self, compaction: LogCompaction, number: int, manifest: Manifest) -> Outcome:
        """Commits the staged files of group `number`; what is raised counts as `Unknown`.

        Raises:
            OSError, CordwoodError: a step failed, and the log may have changed.
        """

    def end(self) -> None:
        """Ends the compaction, whatever its result."""


def staged_segments(compaction: LogCompaction, manifest: Manifest) -> tuple[StagedSegment, ...]:
    """The staged segments of the group that a manifest announces, ascending."""
    return tuple(
        StagedSegment(
            directory=compaction.directory, base_offset=each.base_offset, token=manifest.token
        )
        for each in manifest.segments
    )


class CompactionCommitter:
    """Commits the groups of one compaction, in order, as their manifests appear."""

    def __init__(
        self,
        compaction: LogCompaction,
        placement: Placement,
        *,
        fs: FileSystem = OS,
        on_first: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepares; `on_first` is called once, when the first group is ready to be put in place."""
        self.compaction = compaction
        self.result = CompactionResult(compaction.name)
        self._directory = Path(compaction.directory)
        self._placement = placement
        self._fs = fs
        self._on_first = on_first
        self._next = compaction.groups_done
        self._known: dict[int, Manifest] = {}
        self._under_way: Manifest | None = None
        self._tasks_stopped = False
        self._clock = SystemClock()
        self._lock = threading.Lock()
        if self._next >= len(compaction.groups):
            self._end(Committed())

    @property
    def outcome(self) -> Outcome | None:
        """The outcome of the compaction; None while groups are left that may be committed."""
        return self.result.outcome

    @property
    def look_again_s(self) -> float:
        """Seconds to wait, at least, between two looks at what tasks have announced."""
        return self._fs.look_again_s(self._directory)

    def reject(self, error: Exception) -> None:
        """Ends the compaction without the groups that are left, unless it has ended; any thread."""
        with self._lock:
            self.result.outcome = self.result.outcome or Rejected(error)

    def _end(self, outcome: Outcome) -> None:
        """Notes what has become of a group: this counts more than what a task says meanwhile."""
        with self._lock:
            self.result.outcome = outcome

    def begin(self) -> None:
        """Removes what an earlier attempt left, and lets the tasks of this one start.

        Raises:
            NoSpaceError, StagingError: the disk refuses; nothing was begun.
            FileNotFoundError: the partition is gone.
        """
        with staging_errors(self._directory):
            self.clear()
        begin_attempt(self._directory, self.compaction.attempt.token, fs=self._fs)

    def skip(self, manifests: dict[int, Manifest]) -> None:
        """Records groups that do not change, by number."""
        self._known = manifests

    def poll(self) -> bool:
        """Commits the groups that are ready; returns whether there was one.

        Where one cannot be committed, or the compaction must not continue, it ends, with its tasks.
        """
        moved = False
        try:
            while self.outcome is None:
                self._placement.require_wanted()
                manifest = self._known.get(self._next)
                base = self.compaction.groups[self._next][0]
                if manifest is None:
                    manifest = announced(
                        self._directory, base, self.compaction.attempt.token, fs=self._fs
                    )
                if manifest is None:
                    break
                if self._next == self.compaction.groups_done:
                    self._on_first()
                self._commit(manifest)
                moved = True
        except (OSError, CordwoodError) as error:
            self.reject(error)
        if isinstance(self.outcome, Rejected | Unknown):
            self.stop_tasks()
        return moved

    def _commit(self, manifest: Manifest) -> None:
        with held_signals():
            self._commit_one(manifest)

    def _commit_one(self, manifest: Manifest) -> None:
        outcome = Committed() if manifest.unchanged else self._place(manifest)
        if not isinstance(outcome, Committed):
            self._end(outcome)
            return
        self.result.manifests.append(manifest)
        self._next += 1
        if self._next == len(self.compaction.groups):
            self._end(outcome)
        with staging_errors(self._directory):
            self._remove_staged(f"{manifest.base_offset:020d}.manifest.")

    def _place(self, manifest: Manifest) -> Outcome:
        self._under_way = manifest
        begun_s = self._clock.monotonic_s()
        try:
            outcome = self._placement.place(self.compaction, self._next, manifest)
        except BaseException as error:
            self._end(Unknown(error))
            raise
        self.result.placing_s += self._clock.monotonic_s() - begun_s
        if not isinstance(outcome, Unknown):
            self._under_way = None
        return outcome

    def stop_tasks(self) -> None:
        """Stops the tasks of the compaction, unless that has been done.

        Where the disk refuses even that, it is to be called again.
        """
        if self._tasks_stopped:
            return
        try:
            end_attempt(self._directory, self.compaction.attempt.token, fs=self._fs)
        except (OSError, CordwoodError) as refused:
            _log.debug("The tasks of %s cannot be stopped: %s", self.compaction.name, refused)
        else:
            self._tasks_stopped = True

    def clear(self) -> None:
        """Removes what tasks staged in vain; a journal stays, so that the next run can continue.

        So do the files of a group whose outcome is unknown: they tell recovery that it is not in
        place.
        """
        kept: set[str] = set()
        if self._under_way is not None:
            kept = {
                path.name
                for each in staged_segments(self.compaction, self._under_way)
                for path in each.paths().values()
            }
        self._remove_staged(kept=kept)

    def _remove_staged(self, prefix: str = "", kept: Collection[str] = ()) -> None:
        """Removes all that can be removed, even if one file cannot."""
        refused: OSError | NoSpaceError | None = None
        for name in self._fs.names_in(self._directory):
            if name.startswith(prefix) and name.endswith(STAGED_SUFFIX) and name not in kept:
                try:
                    self._fs.remove(self._directory / name)
                except (OSError, NoSpaceError) as error:
                    refused = refused or error
        if refused is not None:
            raise refused

    def close(self) -> None:
        """Clears away what tasks staged in vain, and ends the compaction.

        Raises:
            OSError, NoSpaceError: a file could not be removed; the next compaction begins with it.
        """
        # The journal goes first: while it names a group, staged files tell that it is not in place.
        self._placement.end()
        self._remove_staged()


class Engine(Protocol):
    """Runs compactions: afterwards each committer has an outcome."""

    def run(self, committers: Sequence[CompactionCommitter]) -> None:
        """Runs them all."""


#: Starts an engine; when its context ends, no task of it is left that could write.
EngineFactory = Callable[[], AbstractContextManager[Engine]]
