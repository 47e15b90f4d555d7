"""A cleaning of one offline log that changes nothing: what would be read after each change.

Retention and compaction are planned and executed as on disk. A compaction runs in the same tasks;
they read the log's segments, and announce in a scratch directory the sizes of what they would
write. From these the view is made that the planners get next.

Two things are known without another read. A compaction moves the cleaner checkpoint to the first
uncleanable offset, and the segments from there on stay as they are. A log is compacted again in the
same run only if retention removes everything below that offset; so the second compaction reads
segments that are on disk, too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.access.offline.log_on_disk import LogFiles
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction_values import Manifest, RewrittenSegment
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.view_after import (
    after_retention,
    after_roll,
    empty_segment,
    with_segments,
)
from cordwood.cleanup.rules.log_view import CleanedSegment, SegmentView
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.configs.value import LONG_MAX
from cordwood.format.file_names import DELETED_SUFFIX
from cordwood.model.errors import CordwoodError
from cordwood.storage.filesystem import OS
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.replace import is_recovery_needed

# The result takes no space, so no bound of it applies.
_ROOMY_BYTES: Final = 1 << 62


class NotMeasurableError(CordwoodError):
    """The result of a cleaning cannot be known without changing the log first."""


class MeasuredLog:
    """`LogFiles` whose changes are predicted. The directory may be that of a running broker."""

    def __init__(self, on_disk: LogFiles, directory: Path, scratch: Path, *, now_ms: int) -> None:
        """Takes the log as it is on disk, and a directory for the announcements of tasks."""
        self._on_disk = on_disk
        self._directory = directory
        self._scratch = scratch / directory.name
        self._now_ms = now_ms
        self._predicted: Captured | None = None
        self._cleaner_offset: int | None = None
        self._sources: dict[str, SegmentSource] = {}

    def start_again(self) -> None:
        """Forgets all changes: the log is read from disk again."""
        self._predicted = self._cleaner_offset = None
        self._sources = {}

    def has_moved(self) -> bool:
        """Whether a segment that a compaction has read is no longer what was captured."""
        return any(not _is_as_captured(source) for source in self._sources.values())

    def read(self) -> Captured:
        """Captures the log, once; afterwards as the predicted changes leave it.

        Raises:
            NotMeasurableError: a cleaning was interrupted, and would be finished first.
            OSError, CordwoodError: it cannot be read.
        """
        captured = self._predicted
        if captured is None:
            names = OS.names_in(self._directory)
            if is_recovery_needed(each for each in names if not each.endswith(DELETED_SUFFIX)):
                raise NotMeasurableError(
                    f"{self._directory}: a cleaning was interrupted here and has to be finished "
                    "before the next one can be measured: run `cordwood clean`, or start the broker"
                )
            captured = self._on_disk.read()
        if self._cleaner_offset is None:
            return captured
        return replace(
            captured, view=replace(captured.view, cleaner_checkpoint=self._cleaner_offset)
        )

    @property
    def is_whole(self) -> bool:
        """Whether the directory's broker stopped cleanly."""
        return self._on_disk.is_whole

    def roll(self, captured: Captured) -> None:
        """Predicts the log after a roll."""
        self._predicted = captured.seen_as(after_roll(captured.view, now_ms=self._now_ms))

    def delete_oldest(self, captured: Captured, plan: RetentionPlan) -> None:
        """Predicts the log after retention."""
        self._predicted = captured.seen_as(
            after_retention(captured.view, plan, now_ms=self._now_ms)
        )

    def restart(self, captured: Captured, offset: int) -> None:
        """Predicts the log with one empty segment."""
        segments = (empty_segment(offset, now_ms=self._now_ms),)
        restarted = with_segments(captured.view, segments, log_start_offset=offset)
        self._predicted = replace(captured.seen_as(restarted), beyond_end=None)

    def set_cleaner_offset(self, offset: int) -> None:
        """Keeps the offset for later reads of it."""
        self._cleaner_offset = offset

    def cleaner_offset(self) -> int | None:
        """The predicted cleaner offset, else that on disk."""
        if self._cleaner_offset is not None:
            return self._cleaner_offset
        return self._on_disk.cleaner_offset()

    def free_bytes(self) -> int:
        """A number of bytes that any result fits."""
        return _ROOMY_BYTES

    def committer(self, compaction: LogCompaction, captured: Captured) -> CompactionCommitter:
        """Makes a committer that puts nothing in place.

        Raises:
            OSError, NoSpaceError: the scratch directory cannot be created.
        """
        here = {source.base_offset for source in compaction.segments}
        assert all(base in here for group in compaction.groups for base in group), (
            f"{compaction.name}: a second compaction of segments that only exist after the first"
        )
        self._sources |= {source.path: source for source in compaction.segments}
        if not OS.exists(self._scratch):
            OS.make_directory(self._scratch)
        return CompactionCommitter(compaction.measured_in(self._scratch), _Nowhere())

    def note_compacted(self, captured: Captured, committer: CompactionCommitter) -> None:
        """Predicts the log after the compaction, from its manifests."""
        end = committer.compaction.first_uncleanable
        by_base = {segment.base_offset: segment for segment in captured.view.segments}
        groups = committer.compaction.groups
        segments: list[CleanedSegment] = []
        for group, manifest in zip(groups, committer.result.manifests, strict=True):
            if manifest.unchanged:
                segments.append(by_base[group[0]])
            else:
                segments += [_rewritten(by_base[group[-1]], each) for each in manifest.segments]
        grouped = {base for group in groups for base in group}
        segments += [s for s in captured.view.segments if s.base_offset not in grouped]
        segments.sort(key=lambda segment: segment.base_offset)
        compacted = captured.seen_as(with_segments(captured.view, tuple(segments)))
        self._predicted = replace(
            compacted, sources=tuple(s for s in compacted.sources if s.base_offset >= end)
        )
        self._cleaner_offset = end

    def end(self, captured: Captured) -> None:
        """Does nothing: no checkpoint is written."""


class _Nowhere:
    """A `Placement` that places nothing."""

    def require_wanted(self) -> None:
        """Returns: a measurement is always wanted."""

    def place(self, compaction: LogCompaction, number: int, manifest: Manifest) -> None:
        """Does nothing: the manifest is enough."""

    def end(self) -> None:
        """Does nothing: there is nothing to end."""


def _rewritten(last: CleanedSegment, new: RewrittenSegment) -> SegmentView:
    """A segment of a rewritten group as it would be captured; `last` is the last source."""
    first = new.first_batch_timestamp
    return SegmentView(
        base_offset=new.base_offset,
        size_bytes=new.log_bytes,
        index_bytes=new.index_bytes,
        time_index_bytes=new.time_index_bytes,
        largest_record_timestamp=new.largest_timestamp,
        first_batch_timestamp=first if first >= 0 else LONG_MAX,
        modified_ms=last.modified_ms,
    )


def _is_as_captured(source: SegmentSource) -> bool:
    try:
        facts = OS.facts_of(Path(source.path))
    except FileNotFoundError:
        return False
    return facts.modified_ns == source.modified_ns and facts.size_bytes >= source.size_bytes
