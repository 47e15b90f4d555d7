"""Access to a log whose changes are made in memory: what would be pinned after each of them.

Retention and compaction are planned and executed as on disk. Tasks read the segments of the log as
it is, and announce in a scratch directory the sizes of what they would write. From these the view
is made that the planners get next.

Two things are known without another read. A compaction moves the cleaner checkpoint to the first
uncleanable offset, and the segments from there on stay as they are. A log is compacted again in the
same run only if retention removes everything below that offset; so the second compaction reads
segments that are there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.access.log_access import OwnedLog, Recovery
from cordwood.cleanup.plan.attempt import Attempt, Limits
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction_values import Manifest, RewrittenSegment
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.outcome import Committed
from cordwood.cleanup.plan.view_after import (
    after_retention,
    after_roll,
    empty_segment,
    with_segments,
)
from cordwood.cleanup.rules.log_view import CleanedSegment, LogView, SegmentView
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.configs.value import LONG_MAX
from cordwood.model.errors import NoSpaceError
from cordwood.model.rng import SystemRng
from cordwood.model.topic_partition import TopicPartition


class MemoryLog(OwnedLog):
    """The `LogAccess` of a log in memory; where it was read, a broker may run."""

    def __init__(
        self,
        read: Callable[[], Captured],
        directory: Path,
        scratch: Path,
        *,
        now_ms: int,
        is_whole: bool = True,
    ) -> None:
        """Reads nothing yet.

        Args:
            read: captures the log as it is; called by each `pin` until something has changed.
            directory: the partition's, which is not looked at.
            scratch: a directory for what tasks announce.
            now_ms: the time of changes.
            is_whole: whether its end is whole.
        """
        partition = TopicPartition.parse(directory.name)
        super().__init__(partition, directory, log_dir=directory.parent)
        self._read = read
        self._scratch = scratch / directory.name
        self._now_ms = now_ms
        self._is_whole = is_whole
        self._pinned: Captured | None = None
        self._predicted: Captured | None = None
        self._cleaner_offset: int | None = None

    def start_again(self) -> None:
        """Forgets all changes: the log is read again."""
        self._predicted = self._cleaner_offset = None

    # ---- view

    @property
    def _captured(self) -> Captured:
        assert self._pinned is not None, "a log is pinned before it is changed"
        return self._pinned

    def pin(self, *, end: int | None = None) -> Captured:
        """Captures the log, as the predicted changes leave it."""
        del end  # all of it is read
        captured = self._read() if self._predicted is None else self._predicted
        if self._cleaner_offset is not None:
            view = replace(captured.view, cleaner_checkpoint=self._cleaner_offset)
            captured = replace(captured, view=view)
        self._pinned = captured
        return captured

    @contextmanager
    def held(self) -> Iterator[LogView]:
        """Yields the pinned view."""
        yield self._captured.view

    @property
    def holds(self) -> tuple[str, ...]:
        """The ids of the legal holds that were pinned."""
        return self._captured.view.holds

    @property
    def is_whole(self) -> bool:
        """Whether the log that was read is whole."""
        return self._is_whole

    def segment_names(self) -> set[str]:
        """The names of the log files that were read."""
        return {Path(source.path).name for source in self._captured.sources}

    # ---- changes

    def recover(self, *, is_erasure: bool = False) -> Recovery:
        """Does nothing: no change is half done."""
        del is_erasure
        return Recovery()

    def roll(self) -> None:
        """Predicts the log after a roll."""
        captured = self._captured
        self._predicted = captured.seen_as(after_roll(captured.view, now_ms=self._now_ms))

    def delete(self, plan: RetentionPlan) -> int:
        """Predicts the log after retention."""
        captured = self._captured
        rest = after_retention(captured.view, plan, now_ms=self._now_ms)
        self._predicted = captured.seen_as(rest)
        return len(plan.expired)

    def restart(self, offset: int) -> None:
        """Predicts the log with one empty segment."""
        captured = self._captured
        segments = (empty_segment(offset, now_ms=self._now_ms),)
        restarted = with_segments(captured.view, segments, log_start_offset=offset)
        self._predicted = replace(captured.seen_as(restarted), beyond_end=None)

    def cleaner_offset(self) -> int | None:
        """The predicted cleaner offset, else the pinned one."""
        if self._cleaner_offset is not None:
            return self._cleaner_offset
        return self._captured.view.cleaner_checkpoint

    def set_cleaner_offset(self, offset: int) -> None:
        """Keeps the offset for the next pin."""
        self._cleaner_offset = offset

    def end(self) -> None:
        """Does nothing: there is no checkpoint."""

    # ---- compactions

    def attempt(self, limits: Limits) -> Attempt:
        """Draws token and seed; any result fits."""
        return Attempt.drawn(SystemRng(), limits)

    def committer(
        self,
        compaction: LogCompaction,
        captured: Captured,
        *,
        on_first: Callable[[], None] = lambda: None,
        require_allowed: Callable[[], None] = lambda: None,
    ) -> CompactionCommitter:
        """Makes a committer that puts nothing in place.

        Raises:
            OSError, NoSpaceError: the scratch directory cannot be created.
        """
        del captured, require_allowed
        here = {source.base_offset for source in compaction.segments}
        assert all(base in here for group in compaction.groups for base in group), (
            f"{compaction.name}: a second compaction of segments that only exist after the first"
        )
        if not self.fs.exists(self._scratch):
            self.fs.make_directory(self._scratch)
        measured = compaction.measured_in(self._scratch)
        return CompactionCommitter(measured, _Nowhere(), on_first=on_first)

    def finish(self, committer: CompactionCommitter) -> None:
        """Predicts the log after the compaction, from its manifests."""
        if isinstance(committer.outcome, Committed):
            self._compacted(committer)
        committer.close()

    def _compacted(self, committer: CompactionCommitter) -> None:
        captured, end = self._captured, committer.compaction.first_uncleanable
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

    def abandon(self, committer: CompactionCommitter) -> None:
        """Clears the scratch directory."""
        with suppress(OSError, NoSpaceError):
            committer.clear()


class _Nowhere:
    """A `Placement` that places nothing."""

    def require_wanted(self) -> None:
        """Returns: a measurement is always wanted."""

    def place(self, compaction: LogCompaction, number: int, manifest: Manifest) -> Committed:
        """Does nothing: the manifest is enough."""
        return Committed()

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
