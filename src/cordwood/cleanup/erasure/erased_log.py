"""One partition of an erasure: its log's owner.

The segments with records to be erased are rewritten one by one, each into one with the same base
offset, by the tasks, the journal and the steps of a compaction. The active segment is rolled first
if it has one. The files that are replaced are removed, and never moved to a trash.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cordwood.cleanup.capture import Captured, capture_offline
from cordwood.cleanup.commit import CompactionCommitter
from cordwood.cleanup.compaction import CompactionPlan
from cordwood.cleanup.compaction_values import OffsetRanges, SegmentSource
from cordwood.cleanup.erasure.loose import LooseFile, loose_in
from cordwood.cleanup.erasure.offsets import united, within
from cordwood.cleanup.erasure.report import hash_of
from cordwood.cleanup.log_compaction import (
    AttemptLimits,
    LogCompaction,
    limited,
    prepare_compaction,
)
from cordwood.cleanup.offline_placement import OfflinePlacement
from cordwood.format.file_names import DELETED_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX
from cordwood.format.record_batch import HEADER_BYTES
from cordwood.model.config import LogConfig
from cordwood.model.errors import CordwoodError, CorruptError, EngineError, NoSpaceError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS
from cordwood.storage.log.offline_changes import NewSegment
from cordwood.storage.log.offline_log import load_offline_log
from cordwood.storage.offline_directories import Place
from cordwood.storage.offline_log_directory import require_closed
from cordwood.storage.replace import (
    SEGMENT_SUFFIXES,
    CompactionJournal,
    is_recovery_needed,
    recover_directory,
)
from cordwood.storage.segment.batch_walk import parse_head

_FILES = (*SEGMENT_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX)


@dataclass(slots=True, kw_only=True)
class LogOutcome:
    """How a partition fared; `error` is empty unless it failed."""

    error: str = ""
    warnings: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


class ErasedLog:
    """A log whose directory is locked, or of which a dry run only reads.

    Methods are called in the order given here.
    """

    def __init__(
        self, place: Place, config: LogConfig, *, attempt: str, dry_run: bool, now_ms: int
    ) -> None:
        """Takes the directory and the settings of its topic; `attempt` is no other run's."""
        self.outcome = LogOutcome()
        self.log_dir = place.log_dir
        self.partition: TopicPartition = place.partition.topic_partition
        self.directory: Path = place.partition.path
        self._config = config
        self._attempt = attempt
        self._dry_run = dry_run
        self._now_ms = now_ms
        self._captured: Captured | None = None
        self._loose: list[LooseFile] = []

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Records the error of this partition, so that the others continue."""
        try:
            yield
        except (CordwoodError, OSError) as error:
            self.outcome.error = self.outcome.error or str(error)

    @property
    def captured(self) -> Captured:
        """The log as it was last read."""
        assert self._captured is not None, "a log is read before it is planned on"
        return self._captured

    @property
    def loose(self) -> list[LooseFile]:
        """Log files of other names in its directory, such as copies that somebody has made."""
        return self._loose

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
            now_ms=self._now_ms,
        )
        captured = capture_offline(
            offline, cleaner_checkpoint=checkpoints.cleaner.get(self.partition)
        )
        if not self._dry_run:
            require_closed(self.directory)
            offline.repair()
        self._captured = captured
        live = {Path(source.path).name for source in captured.sources}
        self._loose = [
            each for each in loose_in(self.directory, self.partition) if each.path.name not in live
        ]

    @property
    def sources(self) -> tuple[SegmentSource, ...]:
        """Its segments that have any bytes."""
        return tuple(source for source in self.captured.sources if source.size_bytes)

    def touched(self, erased: OffsetRanges) -> tuple[SegmentSource, ...]:
        """The segments that are rewritten: those with an erased offset."""
        return tuple(
            source
            for source in self.sources
            if within(erased, source.base_offset, source.next_base_offset)
        )

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

    def committer(
        self, erased: OffsetRanges, remover: Executor, *, space_max: int | None
    ) -> CompactionCommitter | None:
        """Commits the rewritten segments, when an engine runs it; None if there is nothing to do.

        Raises:
            CorruptError, OSError, NoSpaceError: the active segment could not be rolled.
        """
        touched = self.touched(erased)
        if not touched:
            return None
        active = self.captured.sources[-1]
        if touched[-1] == active:
            self._roll()
        compaction = self._compaction(touched, erased)
        limits = AttemptLimits(
            seed=0,
            attempt=self._attempt,
            free_bytes=OS.free_bytes(self.directory),
            space_max=space_max,
        )
        placement = OfflinePlacement(self.directory, remover=remover)
        return CompactionCommitter(limited(compaction, limits), placement)

    def _roll(self) -> None:
        captured = self.captured
        end = captured.view.log_end_offset
        segment = NewSegment(base_offset=end, producers=captured.producers, model=captured.model)
        segment.write(self.directory)

    def _compaction(
        self, touched: tuple[SegmentSource, ...], erased: OffsetRanges
    ) -> LogCompaction:
        captured = self.captured
        plan = CompactionPlan(
            first_dirty=0,
            first_uncleanable=captured.view.log_end_offset,
            groups=tuple((source.base_offset,) for source in touched),
            legacy_horizon_ms=0,
        )
        compaction = prepare_compaction(captured, plan, now_ms=self._now_ms, seed=0)
        ranges = [
            each
            for source in touched
            for each in within(erased, source.base_offset, source.next_base_offset)
        ]
        first_in_open = sorted(each.current_txn_first_offset for each in captured.producers)
        # A transaction index is kept as it is, also where it names what is long gone.
        return replace(
            compaction,
            segments=touched,
            aborted=captured.aborted,
            erased=united(ranges),
            first_in_open=tuple(offset for offset in first_in_open if offset >= 0),
        )

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

    # ---- report

    def files(self, known: dict[str, Any] | None = None) -> dict[str, Any]:
        """Size and SHA-256 of its segments' files, by name; those `known` are not read again."""
        known = known or {}
        return {
            name: known.get(name) or hash_of(self.directory / name)
            for name in OS.names_in(self.directory)
            if name.endswith(_FILES)
        }
