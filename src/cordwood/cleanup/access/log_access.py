"""Access to one log: what a cleaning or an erasure reads of it, and what is changed of it.

Their stages are the same for every log. What differs between a log whose broker is stopped, one
that a broker serves, and one in memory is its `LogAccess`. An access decides nothing: it carries
out what was planned on the log as it was last pinned.

| log | access |
| --- | --- |
| its broker is stopped | `offline.stopped_log.StoppedLog` |
| a broker serves it | `online.running_log.RunningLog` |
| it is in an archive in object storage | `archived.archived_log.ArchivedLog` |
| its changes are only predicted | `memory_log.MemoryLog` |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.plan.attempt import Attempt, Limits
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.log_view import RetainedLog
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """The recovery of a log's directory after an interrupted cleaning.

    `changes` says which files were finished or undone, `removed` are the names of files that
    waited for their removal, and `interrupted` is the compaction of which groups are left.
    """

    changes: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    interrupted: LogCompaction | None = None


class LogAccess(ABC):
    """One log, in its partition's directory below `log_dir`.

    Every method may raise `OSError` and `CordwoodError` where the disk refuses, and `CorruptError`
    where a file cannot be understood.
    """

    #: Whether a broker serves the log: others append to it and may delete records of it.
    is_running = False

    def __init__(
        self, partition: TopicPartition, directory: Path, *, log_dir: Path, fs: FileSystem = OS
    ) -> None:
        """Reads nothing yet."""
        self.partition = partition
        self.directory = directory
        self.log_dir = log_dir
        self.fs = fs

    # ---- view

    @abstractmethod
    def pin(self, *, end: int | None = None) -> Captured:
        """Captures the log, its segments below `end` at least; all of them without `end`."""

    @abstractmethod
    def held(self) -> AbstractContextManager[RetainedLog]:
        """The log, which nobody else changes until the context ends.

        Raises:
            StorageError: the log is closed.
        """

    @property
    @abstractmethod
    def holds(self) -> tuple[str, ...]:
        """The ids of its legal holds: while there is one, nothing of it may be removed."""

    @property
    def is_moving(self) -> bool:
        """Whether it is being copied to another log directory, where the copy will replace it."""
        return False

    @abstractmethod
    def segment_names(self) -> set[str]:
        """The names of the log files of its segments."""

    def require_same(self, captured: Captured) -> None:  # noqa: B027  # nobody else changes most
        """Requires that the log is the one that was captured, and was not truncated since.

        Raises:
            StalePlanError: it is not.
        """

    # ---- changes

    @abstractmethod
    def recover(self, *, is_erasure: bool = False) -> Recovery:
        """Finishes or undoes the group that an interrupted run was putting in place.

        An erasure gives up the rest of an interrupted compaction, which the next cleaning plans
        again, and nothing that waits for its removal is moved to a trash.
        """

    def remove_deleted(self) -> list[str]:
        """Removes the files at once that wait for their removal; their names."""
        return []

    def cut_tail(self) -> str:
        """Removes a broken append at the log's end; a warning that says so, or "".

        Raises:
            CorruptError: what is there is no beginning of a batch.
        """
        return ""

    @abstractmethod
    def roll(self) -> None:
        """Adds an empty active segment at the log's end; of a running log, while it is held."""

    @abstractmethod
    def delete(self, plan: RetentionPlan) -> int:
        """Deletes the expired segments of a plan; of a running log, while it is held.

        Returns:
            How many were deleted.

        Raises:
            StalePlanError: the segments are not those of the plan any more.
        """

    # ---- compactions and erasures

    @abstractmethod
    def attempt(self, limits: Limits) -> Attempt:
        """A new attempt at a compaction."""

    @abstractmethod
    def committer(
        self,
        compaction: LogCompaction,
        captured: Captured,
        *,
        on_first: Callable[[], None] = lambda: None,
        require_allowed: Callable[[], None] = lambda: None,
    ) -> CompactionCommitter:
        """The committer of a compaction or an erasure, which puts its groups in place.

        The segments that an erasure replaces go to no trash.

        Args:
            compaction: planned on `captured`.
            captured: the log, pinned.
            on_first: called once, when the first group is ready to be put in place.
            require_allowed: called before a group takes the place of its sources, of a running log
                while it is held; raises if it must not.
        """

    @abstractmethod
    def finish(self, committer: CompactionCommitter) -> None:
        """Records what was committed, by its outcome and groups, and removes the rest."""

    @abstractmethod
    def abandon(self, committer: CompactionCommitter) -> None:
        """Removes what tasks have staged, as far as possible: the run is interrupted."""


class OwnedLog(LogAccess):
    """A log that nobody else changes during a run, which writes its lines of the checkpoints."""

    @property
    @abstractmethod
    def is_whole(self) -> bool:
        """Whether its broker stopped in good order, so that its end is whole."""

    @abstractmethod
    def restart(self, offset: int) -> None:
        """Restarts the log, empty, at `offset`."""

    @abstractmethod
    def cleaner_offset(self) -> int | None:
        """Its line of the cleaner checkpoint."""

    @abstractmethod
    def set_cleaner_offset(self, offset: int) -> None:
        """Sets its line of the cleaner checkpoint."""

    @abstractmethod
    def end(self) -> None:
        """Writes the log start offset to its checkpoint; the run is over."""
