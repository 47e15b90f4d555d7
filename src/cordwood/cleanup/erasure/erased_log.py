"""One log of an erasure, be its broker stopped or running.

The segments with records to be erased are rewritten one by one, each into one with the same base
offset, by the tasks and the steps of a compaction. The active segment is rolled if it has one:
that of a running log before the search ends, as others append to it, that of a stopped log with the
rewriting. The files that are replaced are removed, and never moved to a trash.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from cordwood.cleanup.access.commit import CompactionCommitter, StalePlanError
from cordwood.cleanup.access.log_access import LogAccess
from cordwood.cleanup.engine.search.search import Searched
from cordwood.cleanup.erasure.refusals import refused_by
from cordwood.cleanup.erasure.report import FileFacts, hash_of
from cordwood.cleanup.erasure.request import EraseRequest
from cordwood.cleanup.erasure.rewriting import compaction_without, touched_by
from cordwood.cleanup.erasure.stray_files import StrayFile, stray_files_in
from cordwood.cleanup.plan.attempt import Limits
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.cleanup.plan.outcome import Rejected, Unknown
from cordwood.format.file_names import (
    DELETED_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    base_offset_of,
)
from cordwood.model.errors import CordwoodError
from cordwood.storage.reading.source import ReadBounds, SegmentSource
from cordwood.storage.replace import SEGMENT_SUFFIXES

_FILES = (*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX)


@dataclass(slots=True, kw_only=True)
class LogResult:
    """The result of a log; `error` is empty unless it failed.

    `is_refused`: it must not be erased, and what was planned of it is given up.
    """

    error: str = ""
    is_refused: bool = False
    warnings: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class ErasedLog:
    """A log that records are erased from; methods are called in the order given here.

    `end` is the offset up to which records are erased, exclusive: the log's end when it was read.
    `strays` are log files of other names in its directory, such as copies that somebody has made.
    """

    def __init__(self, access: LogAccess, request: EraseRequest) -> None:
        """Takes the access to the log; of a running one the cleaning is paused."""
        self.result = LogResult()
        self.home = access.log_dir
        self.directory = access.directory
        self.partition = access.partition
        self.strays: list[StrayFile] = []
        self.end = 0
        self._access = access
        self._request = request
        self._captured: Captured | None = None
        self._has_active = True
        self._rewritten: set[int] = set()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Records the error of this partition, so that the others continue."""
        try:
            yield
        except (CordwoodError, OSError) as error:
            self.result.error = self.result.error or str(error)

    # ---- what there is

    def recover(self) -> None:
        """Finishes or undoes what an interrupted run has left; removes what waits for removal.

        Raises:
            CorruptError: that cannot be decided.
        """
        found = self._access.recover(is_erasure=True)
        self._note_removed(found.removed)
        self.result.warnings += [
            f"{change} (an earlier run was interrupted)" for change in found.changes
        ]

    def _note_removed(self, names: Iterable[str]) -> None:
        self.result.removed += [f"{self.directory.name}/{name}" for name in names]

    def capture(self) -> None:
        """Reads the log.

        Raises:
            CorruptError, OSError, StorageError: it cannot be read.
        """
        self._require_allowed()
        self._captured = self._access.pin()
        self.end = self.captured.view.log_end_offset
        live, is_running = self._access.segment_names(), self._access.is_running
        self.strays = [
            each
            for each in stray_files_in(self.directory, self.partition, fs=self._access.fs)
            if each.path.name not in live
            and not (is_running and each.path.name.endswith(DELETED_SUFFIX))
        ]

    def _require_allowed(self) -> None:
        """Refuses what a legal hold, or a move to another directory, forbids.

        Raises:
            CordwoodError: one does.
        """
        refused = refused_by(self._access.holds)
        if refused is None and self._access.is_moving:
            refused = "it is being moved to another log directory: erase when that is done"
        if refused is not None:
            self.result.is_refused = True
            raise CordwoodError(refused)

    @property
    def captured(self) -> Captured:
        """The log as it was last read."""
        assert self._captured is not None, "a log is read before it is planned on"
        return self._captured

    @property
    def sources(self) -> tuple[SegmentSource, ...]:
        """Its segments that have any bytes; of the active segment what it had when it was read."""
        return tuple([source for source in self.captured.sources if source.size_bytes])

    def searched(self, source: SegmentSource) -> Searched:
        """One of its segments as a search takes it."""
        config = self.captured.view.config
        bounds = ReadBounds(record_bytes_max=config.max_decompressed_message_bytes)
        return Searched(partition=self.partition, source=source, bounds=bounds)

    def touched(self, erased: OffsetRanges) -> tuple[SegmentSource, ...]:
        """The segments that are rewritten: those with an erased offset."""
        return touched_by(erased, self.sources)

    def roll_if_touched(self, erased: OffsetRanges) -> tuple[SegmentSource, ...]:
        """The active segment, to be searched again, if it had to be rolled for these offsets.

        It is if others append to it; a dry run rolls nothing.
        """
        access, before = self._access, self.captured
        active = before.sources[-1]
        is_untouched = not erased or erased[-1][1] < active.base_offset
        if self._request.dry_run or not access.is_running or is_untouched:
            return ()
        access.require_same(before)
        with access.held() as log:
            access.require_same(before)
            if log.segments[len(log.segments) - 1].base_offset == active.base_offset:
                access.roll()
            self.end = log.segments[len(log.segments) - 1].base_offset
        self._captured = access.pin(end=self.end)
        self._has_active = False
        return tuple([each for each in self.sources if each.base_offset >= active.base_offset])

    # ---- the work

    def cut_tail(self) -> None:
        """Removes a broken append at the log's end.

        Raises:
            CorruptError: what is there is no beginning of a batch.
        """
        warning = self._access.cut_tail()
        self.result.warnings += [warning] * bool(warning)

    def committer(self, erased: OffsetRanges) -> CompactionCommitter | None:
        """Commits the rewritten segments, when an engine runs it; None if there is nothing to do.

        Raises:
            CorruptError, OSError, NoSpaceError: the active segment could not be rolled.
        """
        touched, access, request = self.touched(erased), self._access, self._request
        if not touched:
            return None
        if self._has_active and not access.is_running and touched[-1] == self.captured.sources[-1]:
            access.roll()
        self._rewritten = {source.base_offset for source in touched}
        without = compaction_without(self.captured, touched, erased, now_ms=request.now_ms)
        attempt = access.attempt(Limits(space_max=request.max_extra_bytes))
        return access.committer(
            replace(without, attempt=attempt),
            self.captured,
            require_allowed=self._require_allowed,
        )

    def finish(self, committer: CompactionCommitter) -> None:
        """Ends the rewriting, and reads the rewritten segments again.

        Raises:
            The error of the erasure, unless all segments are in place.
        """
        self._access.finish(committer)
        if isinstance(committer.outcome, Rejected | Unknown):
            raise committer.outcome.error
        now = {source.base_offset: source for source in self._access.pin(end=self.end).sources}
        sources = [
            now.get(each.base_offset, each) if each.base_offset in self._rewritten else each
            for each in self.captured.sources
        ]
        self._captured = replace(self.captured, sources=tuple(sources))

    def abandon(self, committer: CompactionCommitter) -> None:
        """Removes what tasks have staged: the run is interrupted."""
        self._access.abandon(committer)

    def conclude(self) -> None:
        """Removes what was marked to be removed meanwhile; called when all is rewritten.

        Raises:
            StalePlanError: the log is not the one that was read any more.
        """
        self._access.require_same(self.captured)
        self._note_removed(self._access.remove_deleted())
        if self._access.is_moving:
            raise StalePlanError(
                f"{self.partition}: a move to another log directory has begun meanwhile, whose "
                "copy may have such records: erase again when it is done"
            )

    # ---- report

    def files(self, known: Mapping[str, FileFacts] | None = None) -> dict[str, FileFacts]:
        """Size and SHA-256 of its segments' files, by name; those `known` are not read again.

        Of a running log those of segments that are not appended to any more.
        """
        known, fs = known or {}, self._access.fs
        end: int | None = None
        if self._access.is_running:
            end = self.captured.sources[-1].base_offset if self._has_active else self.end
        found = {}
        for name in fs.names_in(self.directory):
            if name.endswith(_FILES) and (end is None or base_offset_of(name) < end):
                with suppress(FileNotFoundError):
                    found[name] = known.get(name) or hash_of(self.directory / name, fs=fs)
        return found
