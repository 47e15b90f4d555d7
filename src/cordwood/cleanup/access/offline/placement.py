"""Commits rewritten groups to an offline log, with a journal.

Source: org.apache.kafka.storage.internals.log.Cleaner.cleanSegments, LocalLog.replaceSegments.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path

from cordwood.cleanup.access.commit import staged_segments
from cordwood.cleanup.access.offline.log_directory import require_closed
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.outcome import Committed, Outcome, Rejected
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.replace import CompactionJournal, Dispose, dispose_deleted, put_in_place


class OfflinePlacement:
    """A `Placement` in an offline log: a journal says how far the compaction has come.

    The old segments of a group are removed in another thread, at the latest before the next group
    is put in place: a file system may take longer to remove a segment than a task to write one.
    Where space is tight they are removed before the task that waits for it continues.
    """

    def __init__(
        self,
        directory: Path,
        *,
        remover: Executor,
        dispose: Dispose | None = None,
        before: Callable[[LogCompaction, int, Manifest], None] = lambda *_: None,
        after: Callable[[LogCompaction, int, Manifest], None] = lambda *_: None,
        fs: FileSystem = OS,
    ) -> None:
        """Takes the partition's directory, and what removes files, or disposes of them.

        `before` is called before a group is put in place, `after` when it is, each with the
        arguments of `place`.
        """
        self._directory = directory
        self._journal = CompactionJournal(directory, fs=fs)
        self._remover = remover
        self._dispose = dispose
        self._before = before
        self._after = after
        self._fs = fs
        self._begun = fs.exists(self._journal.path)
        self._removal: Future[None] | None = None

    def require_wanted(self) -> None:
        """A compaction of an offline log always continues."""

    def place(self, compaction: LogCompaction, number: int, manifest: Manifest) -> Outcome:
        """Puts a group in place; the intent is made durable first."""
        try:
            self._await_removal()
            require_closed(self._directory, fs=self._fs)
            self._before(compaction, number, manifest)
        except (OSError, CordwoodError) as error:
            return Rejected(error)
        if not self._begun:
            self._journal.begin(compaction.plan_to_json())
            self._begun = True
        staged = staged_segments(compaction, manifest)
        bases = [each.base_offset for each in staged]
        self._journal.intend(number, manifest.token, bases, manifest.after)
        put_in_place(staged, compaction.groups[number], fs=self._fs)
        self._after(compaction, number, manifest)
        self._removal = self._remover.submit(
            dispose_deleted, self._directory, self._dispose, fs=self._fs
        )
        if compaction.one_at_a_time:
            self._await_removal()
        return Committed()

    def _await_removal(self) -> None:
        """Raises what the file system said to the removal of the last group's old segments."""
        removal, self._removal = self._removal, None
        if removal is not None:
            removal.result()

    def end(self) -> None:
        """Forgets the journal, and returns when all old segments are removed.

        Raises:
            OSError, CordwoodError: one cannot be removed; the next run does it.
        """
        if self._begun:
            self._journal.end()
        self._await_removal()
