"""One partition of an erasure: its log's owner.

The segments with records to be erased are rewritten one by one, each into one with the same base
offset, by the tasks, the journal and the steps of a compaction. The active segment is rolled first
if it has one. The files that are replaced are removed, and never moved to a trash.
"""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from cordwood.cleanup.access.capture import capture_offline
from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.access.offline.changes import NewSegment
from cordwood.cleanup.access.offline.directories import Place
from cordwood.cleanup.access.offline.log import load_offline_log
from cordwood.cleanup.access.offline.log_directory import require_closed
from cordwood.cleanup.access.offline.placement import OfflinePlacement
from cordwood.cleanup.erasure.erased_partition import ErasedPartition
from cordwood.cleanup.erasure.report import hash_of
from cordwood.cleanup.erasure.request import EraseRequest
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import DELETED_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX
from cordwood.format.record_batch import HEADER_BYTES
from cordwood.model.errors import CorruptError, EngineError, NoSpaceError
from cordwood.storage.filesystem import OS
from cordwood.storage.reading.batch_heads import parse_head
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.replace import (
    SEGMENT_SUFFIXES,
    CompactionJournal,
    is_recovery_needed,
    recover_directory,
)

_FILES = (*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX)


class StoppedLog(ErasedPartition):
    """A log whose directory is locked, or of which a dry run only reads."""

    def __init__(
        self, place: Place, config: LogConfig, *, request: EraseRequest, remover: Executor
    ) -> None:
        """Takes the directory, the settings of its topic, and what removes files."""
        super().__init__(
            place.partition.path,
            place.partition.topic_partition,
            home=place.log_dir.path,
            request=request,
            fs=OS,
        )
        self.log_dir = place.log_dir
        self._config = config
        self._remover = remover

    def recover(self) -> None:
        """Finishes or undoes the group that an interrupted run was putting in place.

        The rest of an interrupted compaction is given up: the next cleaning plans it again. Files
        that a broker was about to delete are removed.

        Raises:
            CorruptError: the journal cannot be read.
        """
        names = OS.names_in(self.directory)
        if not is_recovery_needed(names):
            return
        self.outcome.removed = [
            f"{self.directory.name}/{name}" for name in names if name.endswith(DELETED_SUFFIX)
        ]
        found = recover_directory(self.directory)
        self.outcome.warnings += [
            f"{change} (an earlier run was interrupted)" for change in found.changes
        ]
        if found.plan is not None:
            CompactionJournal(self.directory).end()

    def capture(self) -> None:
        """Reads the log.

        Raises:
            CorruptError, OSError: it cannot be read.
        """
        checkpoints, _ = self.log_dir.checkpoints()
        offline = load_offline_log(
            self.directory,
            self.partition,
            config=self._config,
            checkpoints=checkpoints,
            clean_shutdown=self.log_dir.is_whole,
            producer_expiration_ms=(1 << 63) - 1,  # as a broker finds them, so they stay
            now_ms=self._request.now_ms,
        )
        captured = capture_offline(
            offline, cleaner_checkpoint=checkpoints.cleaner.get(self.partition)
        )
        if not self._request.dry_run:
            require_closed(self.directory)
            offline.repair()
        self._captured = captured
        live = {Path(source.path).name for source in captured.sources}
        self.strays = self._strays_beside(live)

    @property
    def end(self) -> int:
        """The log end offset at the capture."""
        return self.captured.view.log_end_offset

    def roll_if_touched(self, erased: OffsetRanges) -> tuple[SegmentSource, ...]:
        """Rolls nothing: the rewriting does, as nobody appends."""
        del erased
        return ()

    def cut_tail(self) -> None:
        """Removes what is behind the last whole batch of the active segment, a broken append.

        Nobody can say whose bytes they are, and the next start of a broker removes them, too.

        Raises:
            CorruptError: they are no beginning of a batch.
        """
        source = self.captured.sources[-1]
        path = Path(source.path)
        with closing(OS.open(path, write=True)) as file:
            tail_bytes = file.size() - source.size_bytes
            if tail_bytes <= 0:
                return
            begin = file.read_at(HEADER_BYTES, source.size_bytes)
            if begin.strip(b"\0"):
                try:
                    parse_head(begin, 0, source.size_bytes, tail_bytes)
                except CorruptError as error:
                    raise error.located(path=str(path)).with_remedy(
                        "Have a broker start on the directory first, which recovers the log"
                    ) from error
            file.truncate(source.size_bytes)
            file.sync()
        self.outcome.warnings.append(
            f"{path.name}: {tail_bytes} bytes behind its last whole batch were cut off, as the "
            "next start of a broker does"
        )

    def committer(self, erased: OffsetRanges) -> CompactionCommitter | None:
        """Makes the committer, if a segment is touched."""
        touched = self.touched(erased)
        if not touched:
            return None
        active = self.captured.sources[-1]
        if touched[-1] == active:
            self._roll()
        compaction = self._compaction(touched, erased, token=self._request.id)
        placement = OfflinePlacement(self.directory, remover=self._remover)
        return CompactionCommitter(compaction, placement)

    def _roll(self) -> None:
        captured = self.captured
        end = captured.view.log_end_offset
        segment = NewSegment(base_offset=end, producers=captured.producers, model=captured.model)
        segment.write(self.directory)

    def finish(self, committer: CompactionCommitter) -> None:
        """Ends the journal, and reads the log again.

        Raises:
            The error of the erasure, unless all segments are in place.
        """
        committer.close()
        if not committer.done:
            raise committer.result.error or EngineError("the engine stopped before the end")
        self.capture()

    def abandon(self, committer: CompactionCommitter) -> None:
        """Removes what tasks have staged: the run is interrupted."""
        with suppress(OSError, NoSpaceError):
            committer.clear()

    def conclude(self) -> None:
        """Does nothing: nothing else changes a log whose directory is locked."""

    # ---- report

    def files(self, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """Size and SHA-256 of its segments' files, by name; those `known` are not read again."""
        known = known or {}
        return {
            name: known.get(name) or hash_of(self.directory / name)
            for name in OS.names_in(self.directory)
            if name.endswith(_FILES)
        }
