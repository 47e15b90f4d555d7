"""Commits rewritten groups to an offline log, with a journal.

Source: org.apache.kafka.storage.internals.log.Cleaner.cleanSegments, LocalLog.replaceSegments.
"""

from __future__ import annotations

from pathlib import Path

from cordwood.cleanup.commit import staged_files
from cordwood.cleanup.compaction_values import Manifest
from cordwood.cleanup.log_compaction import LogCompaction
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.offline_log_directory import require_closed
from cordwood.storage.replace import CompactionJournal, Dispose, put_in_place


class OfflinePlacement:
    """A `Placement` in an offline log: a journal says how far the compaction has come."""

    def __init__(
        self, directory: Path, *, dispose: Dispose | None = None, fs: FileSystem = OS
    ) -> None:
        self._directory = directory
        self._journal = CompactionJournal(directory, fs=fs)
        self._dispose = dispose
        self._fs = fs
        self._begun = fs.exists(self._journal.path)

    def require_wanted(self) -> None:
        """A compaction of an offline log always continues."""

    def place(self, compaction: LogCompaction, number: int, manifest: Manifest) -> None:
        """As `Placement.place`; the intent is made to last first."""
        require_closed(self._directory, fs=self._fs)
        if not self._begun:
            self._journal.begin(compaction.to_json())
            self._begun = True
        self._journal.intend(number, manifest.token, manifest.after)
        put_in_place(
            staged_files(compaction, manifest),
            compaction.groups[number],
            dispose=self._dispose,
            fs=self._fs,
        )

    def end(self) -> None:
        """Forgets the journal."""
        if self._begun:
            self._journal.end()
