"""A measurement of a stopped log: it is read from disk, and its changes are made in memory."""

from __future__ import annotations

from pathlib import Path

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.access.log_access import OwnedLog
from cordwood.cleanup.access.memory_log import MemoryLog
from cordwood.cleanup.plan.captured import Captured
from cordwood.format.file_names import DELETED_SUFFIX
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import OS
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.replace import is_recovery_needed


class NotMeasurableError(CordwoodError):
    """The result of a cleaning cannot be known without changing the log first."""


class MeasuredLog(MemoryLog):
    """A log in memory that knows whether what was read of it is still on disk."""

    def __init__(self, on_disk: OwnedLog, scratch: Path, *, now_ms: int) -> None:
        """Takes the log as it is on disk, and a directory for the announcements of tasks."""

        def read() -> Captured:
            _require_measurable(on_disk.directory)
            return on_disk.pin()

        super().__init__(read, on_disk.directory, scratch, now_ms=now_ms, is_whole=on_disk.is_whole)
        self._sources: dict[str, SegmentSource] = {}

    def start_again(self) -> None:
        """Forgets all changes and sources: the log is read again."""
        super().start_again()
        self._sources = {}

    def has_moved(self) -> bool:
        """Whether a segment that a compaction has read is no longer what was captured."""
        return any(not _is_as_captured(source) for source in self._sources.values())

    def finish(self, committer: CompactionCommitter) -> None:
        """Remembers the sources of the compaction, and predicts the log after it."""
        self._sources |= {source.path: source for source in committer.compaction.segments}
        super().finish(committer)


def _require_measurable(directory: Path) -> None:
    """Requires that no cleaning was interrupted, since it would be finished first.

    Raises:
        NotMeasurableError: one was.
    """
    names = OS.names_in(directory)
    if is_recovery_needed(each for each in names if not each.endswith(DELETED_SUFFIX)):
        raise NotMeasurableError(
            f"{directory}: a cleaning was interrupted here and has to be finished "
            "before the next one can be measured: run `cordwood clean`, or start the broker"
        )


def _is_as_captured(source: SegmentSource) -> bool:
    try:
        facts = OS.facts_of(Path(source.path))
    except FileNotFoundError:
        return False
    return facts.modified_ns == source.modified_ns and facts.size_bytes >= source.size_bytes
