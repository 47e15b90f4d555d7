"""One partition of an erasure in a running broker, in parallel with appends and reads.

Its cleaning is paused by the caller. Each segment that has records to be erased is rewritten, and
put in place under the log's lock as a compaction's groups are; readers of the old one keep its
file. An active segment that has some is rolled first. There is no journal: after a crash the loader
finds either segment whole, and the plan of the erasure says that it has not ended.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from cordwood.cleanup.access.capture import capture
from cordwood.cleanup.access.commit import CompactionCommitter, StalePlanError
from cordwood.cleanup.access.online.placement import OnlinePlacement, remove_deleted
from cordwood.cleanup.erasure.erased_partition import ErasedPartition
from cordwood.cleanup.erasure.refusals import refused_by
from cordwood.cleanup.erasure.report import hash_of
from cordwood.cleanup.erasure.request import EraseRequest
from cordwood.cleanup.erasure.stray_files import remove_staged
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.format.file_names import (
    DELETED_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    base_offset_of,
)
from cordwood.model.errors import CordwoodError, EngineError, NoSpaceError
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.replace import SEGMENT_SUFFIXES

_FILES = (*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX)


class RunningLog(ErasedPartition):
    """An `ErasedPartition` of a running log."""

    def __init__(
        self,
        log: PartitionLog,
        logs: LogManager,
        request: EraseRequest,
        *,
        require_wanted: Callable[[], None],
    ) -> None:
        """Prepares; nothing happens yet.

        Args:
            log: which nobody cleans until the erasure has ended.
            logs: has it.
            request: of the erasure.
            require_wanted: raises if the erasure must not continue.
        """
        super().__init__(
            log.directory, log.topic_partition, home=log.log_dir, request=request, fs=log.context.fs
        )
        self._log = log
        self._logs = logs
        self._require_wanted = require_wanted
        self._end = 0
        self._has_active = True
        self._rewritten: set[int] = set()

    # ---- what there is

    def recover(self) -> None:
        """Removes staged and deleted files; a loader did the rest when the broker started."""
        self._remove_deleted()
        remove_staged(self.directory, fs=self._fs)

    def _remove_deleted(self) -> None:
        removed = remove_deleted(self._log)
        self.outcome.removed += [f"{self.directory.name}/{name}" for name in removed]

    def capture(self) -> None:
        """Captures the running log."""
        self._require_allowed()
        self._captured = capture(self._log)
        self._end = self.captured.view.log_end_offset
        live = {segment.path.name for segment in self._log.segments}
        self.strays = [
            each
            for each in self._strays_beside(live)
            if not each.path.name.endswith(DELETED_SUFFIX)
        ]

    def _require_allowed(self) -> None:
        """Refuses what a legal hold, or a move to another directory, forbids.

        Raises:
            CordwoodError: one does.
        """
        refused = refused_by(self._log.holds)
        if refused is None and self._logs.get(self.partition, future=True) is not None:
            refused = "it is being moved to another log directory: erase when that is done"
        if refused is not None:
            self.outcome.is_refused = True
            raise CordwoodError(refused)

    @property
    def end(self) -> int:
        """The log end offset at the capture."""
        return self._end

    def roll_if_touched(self, erased: OffsetRanges) -> tuple[SegmentSource, ...]:
        """Rolls the active segment if it is touched; a dry run rolls nothing."""
        before = self.captured
        active = before.sources[-1]
        if self._request.dry_run or not erased or erased[-1][1] < active.base_offset:
            return ()
        log = self._log
        with log.lock:
            self._require_same_log()
            if log.active.base_offset == active.base_offset:
                log.roll()
            self._end = log.active.base_offset
        self._captured = capture(log, end=self.end)
        self._has_active = False
        return tuple([each for each in self.sources if each.base_offset >= active.base_offset])

    # ---- the work

    def cut_tail(self) -> None:
        """Does nothing: a running log has no broken append."""

    def committer(self, erased: OffsetRanges) -> CompactionCommitter | None:
        """Makes the committer, if a segment is touched."""
        touched = self.touched(erased)
        if not touched:
            return None
        self._rewritten = {source.base_offset for source in touched}
        captured, rng = self.captured, self._log.context.rng
        compaction = self._compaction(touched, erased, token=rng.unique_id()[:8])
        placement = OnlinePlacement(
            self._log,
            captured.segments,
            truncation_count=captured.truncation_count,
            require_wanted=self._require_wanted,
            require_allowed=self._require_allowed,
            prefix="Erasure: ",
        )
        return CompactionCommitter(compaction, placement, fs=self._fs)

    def finish(self, committer: CompactionCommitter) -> None:
        """Closes the committer, and checks that all segments are rewritten."""
        self.abandon(committer)
        if not committer.done:
            raise committer.result.error or EngineError("the engine stopped before the end")
        now = {source.base_offset: source for source in capture(self._log, end=self.end).sources}
        sources = [
            now.get(each.base_offset, each) if each.base_offset in self._rewritten else each
            for each in self.captured.sources
        ]
        self._captured = replace(self.captured, sources=tuple(sources))

    def abandon(self, committer: CompactionCommitter) -> None:
        """Closes the committer; the next rewriting removes what the disk keeps."""
        with suppress(OSError, NoSpaceError):
            committer.close()

    def conclude(self) -> None:
        """Removes deleted files, and requires the same log without a future replica."""
        self._require_same_log()
        self._remove_deleted()
        if self._logs.get(self.partition, future=True) is not None:
            raise StalePlanError(
                f"{self.partition}: a move to another log directory has begun meanwhile, whose "
                "copy may have such records: erase again when it is done"
            )

    def _require_same_log(self) -> None:
        """Refuses a log that is another one, or was cut off, since it was read."""
        is_same = self._logs.get(self.partition) is self._log
        if not is_same or self._log.offsets.truncation_count != self.captured.truncation_count:
            raise StalePlanError(
                f"{self.partition}: its log was truncated, moved or deleted meanwhile: erase again"
            )

    # ---- report

    def files(self, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """The files of segments that are not appended to any more."""
        known = known or {}
        end = self.captured.sources[-1].base_offset if self._has_active else self.end
        found = {}
        for name in self._fs.names_in(self.directory):
            if name.endswith(_FILES) and base_offset_of(name) < end:
                with suppress(FileNotFoundError):
                    path = self.directory / name
                    found[name] = known.get(name) or hash_of(path, fs=self._fs)
        return found
