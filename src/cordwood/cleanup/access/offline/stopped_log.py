"""Access to one log whose directory is locked, or of which a run only reads.

Each change is made to its files, and lasts when the method returns; the log is then to be pinned
again. Files that are removed are moved to the trash of the run, except those that an erasure
replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cordwood.cleanup.access.capture import capture_offline
from cordwood.cleanup.access.commit import CompactionCommitter, StalePlanError, staged_segments
from cordwood.cleanup.access.due_reader import KnownDue
from cordwood.cleanup.access.log_access import OwnedLog, Recovery
from cordwood.cleanup.access.offline.changes import (
    NewSegment,
    delete_oldest,
    leader_epochs_of,
    restart_log,
    write_log_start,
)
from cordwood.cleanup.access.offline.log import load_offline_log
from cordwood.cleanup.access.offline.log_directory import (
    OfflineLogDirectory,
    PartitionDir,
    require_closed,
)
from cordwood.cleanup.access.offline.placement import OfflinePlacement
from cordwood.cleanup.access.offline.run import OfflineRun
from cordwood.cleanup.access.removal_audit import Origins, audit_expired, audit_group
from cordwood.cleanup.plan.attempt import Attempt, Limits
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.outcome import Committed
from cordwood.cleanup.rules.group_guard import NOTHING_KNOWN
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.file_names import DELETED_SUFFIX
from cordwood.format.trash_notes import COMPACTION, RESTART, RETENTION, Removal, Rewritten
from cordwood.model.audit import LogRestarted, audit
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.model.rng import SystemRng
from cordwood.storage.reading.batch_heads import parse_head
from cordwood.storage.replace import (
    JOURNAL_NAME,
    CompactionJournal,
    is_recovery_needed,
    recover_directory,
)
from cordwood.storage.trash import rewritten_of


class StoppedLog(OwnedLog):
    """The `LogAccess` of a log whose broker is stopped, or is not disturbed."""

    def __init__(
        self,
        run: OfflineRun,
        log_dir: OfflineLogDirectory,
        place: PartitionDir,
        *,
        config: LogConfig,
        origins: Origins = MappingProxyType({}),
        holds: tuple[str, ...] = (),
    ) -> None:
        """Takes the partition's directory in its log directory, and the settings in force.

        `origins` says where they come from. With `holds`, the ids of its legal holds, it is only
        read.
        """
        super().__init__(place.topic_partition, place.path, log_dir=log_dir.path)
        self._run = run
        self._log_dir = log_dir
        self._config = config
        self._origins = origins
        self._holds = holds
        self._due: KnownDue = {}
        self._pinned: Captured | None = None

    # ---- view

    @property
    def holds(self) -> tuple[str, ...]:
        """The ids of the legal holds that were in force when the run began."""
        return self._holds

    @property
    def is_whole(self) -> bool:
        """Whether the broker of the directory stopped cleanly."""
        return self._log_dir.is_whole

    @property
    def _captured(self) -> Captured:
        assert self._pinned is not None, "a log is pinned before it is changed"
        return self._pinned

    @contextmanager
    def held(self) -> Iterator[LogView]:
        """Yields the pinned view; the directory is locked for the whole run."""
        yield self._captured.view

    def segment_names(self) -> set[str]:
        """The names of the log files of the pinned segments."""
        return {Path(source.path).name for source in self._captured.sources}

    def pin(self, *, end: int | None = None) -> Captured:
        """Captures the log on disk; repairs what Kafka repairs at every start, unless only read."""
        del end  # all of it is read
        run, partition = self._run, self.partition
        checkpoints, warnings = self._log_dir.checkpoints()
        run.warnings += [each for each in warnings if each not in run.warnings]
        offline = load_offline_log(
            self.directory,
            partition,
            config=self._config,
            checkpoints=checkpoints,
            clean_shutdown=self.is_whole,
            producer_expiration_ms=run.producer_expiration_ms,
            metadata_version=run.metadata_version,
            now_ms=run.now_ms,
            for_reading=run.for_reading,
            is_in_use=str(self.log_dir) in {each.log_dir for each in run.in_use},
        )
        waits = bool(self._config.cordwood_retention_groups)
        self._pinned = capture_offline(
            offline,
            cleaner_checkpoint=checkpoints.cleaner.get(partition),
            holds=self._holds,
            consumed=run.groups.consumed(partition) if waits else NOTHING_KNOWN,
            other=run.compared_with(partition.topic),
            due=self._due,
        )
        if not (run.only_reads or self._holds):  # after all that could be refused
            offline.repair()
        return self._pinned

    # ---- changes

    def recover(self, *, is_erasure: bool = False) -> Recovery:
        """Finishes or undoes a group as Kafka's loader would, and reads the journal."""
        if not is_erasure:
            # What an interrupted erasure has replaced must not go to the trash.
            is_erasing = _is_erasing(self.directory)
            found = recover_directory(
                self.directory, dispose=None if is_erasing else self._run.trash
            )
            if found.plan is None:
                return Recovery(changes=found.changes)
            interrupted = replace(
                _interrupted_in(found.plan, self.directory),
                groups_done=found.groups_done,
                before=found.after or [[], []],
            )
            return Recovery(changes=found.changes, interrupted=interrupted)
        require_closed(self.directory)
        names = self.fs.names_in(self.directory)
        if not is_recovery_needed(names):
            return Recovery()
        found = recover_directory(self.directory)
        if found.plan is not None:
            CompactionJournal(self.directory).end()
        removed = tuple(name for name in names if name.endswith(DELETED_SUFFIX))
        return Recovery(changes=found.changes, removed=removed)

    def cut_tail(self) -> str:
        """Cuts off the bytes behind the last whole batch of the active segment.

        Nobody can say whose bytes they are, and the next start of a broker removes them, too.
        """
        source = self._captured.sources[-1]
        path = Path(source.path)
        with closing(self.fs.open(path, write=True)) as file:
            tail_bytes = file.size() - source.size_bytes
            if tail_bytes <= 0:
                return ""
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
        return (
            f"{path.name}: {tail_bytes} bytes behind its last whole batch were cut off, as the "
            "next start of a broker does"
        )

    def _new_segment(self, base_offset: int) -> NewSegment:
        captured = self._captured
        return NewSegment(
            base_offset=base_offset, producers=captured.producers, model=captured.model
        )

    def roll(self) -> None:
        """Writes an empty active segment at the log's end."""
        require_closed(self.directory)
        self._new_segment(self._captured.view.log_end_offset).write(self.directory)

    def delete(self, plan: RetentionPlan) -> int:
        """Deletes the oldest segments, or moves them to the trash."""
        view, bases = self._captured.view, [segment.base_offset for segment in plan.expired]
        if bases != [s.base_offset for s in view.segments[: len(bases)]]:
            raise StalePlanError(
                f"{view.topic_partition}: its segments have changed since the plan"
            )
        if plan.roll and view.active.base_offset == view.log_end_offset:
            raise StalePlanError(f"{view.topic_partition}: an empty active segment cannot expire")
        require_closed(self.directory)
        self._note_removal(
            view,
            RETENTION,
            bases,
            end_offset=view.next_base(len(bases) - 1),
            rolled=view.log_end_offset if plan.roll else None,
        )
        delete_oldest(
            self.directory,
            bases,
            log_start_offset=plan.log_start_offset,
            rolled=self._new_segment(view.log_end_offset) if plan.roll else None,
            dispose=self._run.trash,
        )
        audit_expired(
            plan.expired,
            [view.next_base(number) for number in range(len(bases))],
            partition=view.topic_partition,
            log_dir=str(self.log_dir),
            config=self._config,
            origins=self._origins,
            at_ms=self._run.now_ms,
            trash=self._trash,
        )
        return len(bases)

    def restart(self, offset: int) -> None:
        """Replaces all segments by an empty one at an offset."""
        view = self._captured.view
        bases = [segment.base_offset for segment in view.segments]
        self._note_removal(view, RESTART, bases, end_offset=view.log_end_offset, rolled=offset)
        restart_log(self.directory, bases, self._new_segment(offset), dispose=self._run.trash)
        audit(
            LogRestarted(
                partition=view.topic_partition,
                log_dir=str(self.log_dir),
                segments=tuple(bases),
                size_bytes=view.size_bytes,
                log_start_offset=offset,
                trash=self._trash,
            )
        )

    def cleaner_offset(self) -> int | None:
        """The offset in the cleaner checkpoint of the directory, None without one."""
        return self._log_dir.checkpoints()[0].cleaner.get(self.partition)

    def set_cleaner_offset(self, offset: int) -> None:
        """Writes the cleaner checkpoint of the directory."""
        self._log_dir.set_cleaner_offset(self.partition, offset)

    def end(self) -> None:
        """Writes the log start offset to the checkpoint of the directory."""
        view = self._captured.view
        write_log_start(
            self._log_dir,
            self.directory,
            self.partition,
            log_start_offset=view.log_start_offset,
            first_base_offset=view.segments[0].base_offset,
        )

    # ---- compactions and erasures

    def attempt(self, limits: Limits) -> Attempt:
        """Draws token and seed by the random numbers of the system."""
        return Attempt.drawn(SystemRng(), limits, free_bytes=self.fs.free_bytes(self.directory))

    def committer(
        self,
        compaction: LogCompaction,
        captured: Captured,
        *,
        on_first: Callable[[], None] = lambda: None,
        require_allowed: Callable[[], None] = lambda: None,
    ) -> CompactionCommitter:
        """Makes the committer, which has a journal."""
        is_erasure = compaction.erased is not None

        def note(compaction: LogCompaction, number: int, manifest: Manifest) -> None:
            require_allowed()
            if not is_erasure:
                self._note_group(captured.view, compaction, number, manifest)

        def placed(compaction: LogCompaction, number: int, manifest: Manifest) -> None:
            if not is_erasure:
                audit_group(
                    compaction,
                    number,
                    manifest,
                    partition=self.partition,
                    log_dir=str(self.log_dir),
                    config=self._config,
                    origins=self._origins,
                    trash=self._trash,
                )

        placement = OfflinePlacement(
            Path(compaction.directory),
            remover=self._run.remover,
            dispose=None if is_erasure else self._run.trash,
            before=note,
            after=placed,
        )
        return CompactionCommitter(compaction, placement, on_first=on_first)

    def finish(self, committer: CompactionCommitter) -> None:
        """Writes the cleaner checkpoint; the journal is removed after that."""
        is_committed = isinstance(committer.outcome, Committed)
        if is_committed and committer.compaction.erased is None:
            self.set_cleaner_offset(committer.compaction.first_uncleanable)
        committer.close()

    def abandon(self, committer: CompactionCommitter) -> None:
        """Clears the staged files; the journal stays, and the next run continues."""
        with suppress(OSError, NoSpaceError):
            committer.clear()

    # ---- notes of the trash

    @property
    def _trash(self) -> str | None:
        return None if self._run.trash is None else str(self._run.trash.directory)

    def _note_removal(
        self,
        view: LogView,
        why: str,
        bases: Sequence[int],
        *,
        end_offset: int,
        rolled: int | None = None,
        rewritten: tuple[Rewritten, ...] = (),
    ) -> None:
        """Notes in the trash, if there is one, what is about to be removed."""
        if self._run.trash is None:
            return
        removal = Removal(
            at_ms=self._run.clock.now_ms(),
            why=why,
            topic_id=None,
            segments=tuple(bases),
            end_offset=end_offset,
            files=(),
            log_start_offset=max(view.log_start_offset, bases[0]),
            leader_epochs=leader_epochs_of(self.directory),
            cleaner_checkpoint=self.cleaner_offset(),
            rewritten=rewritten,
            rolled=rolled,
        )
        self._run.trash.note(self.directory, removal)

    def _note_group(
        self, view: LogView, compaction: LogCompaction, number: int, manifest: Manifest
    ) -> None:
        """Notes the segments of a group whose replacement is staged."""
        if self._run.trash is None:
            return
        group = compaction.groups[number]
        ends = {each.base_offset: each.next_base_offset for each in compaction.segments}
        rewritten = rewritten_of(staged_segments(compaction, manifest))
        end_offset = ends[group[-1]]
        self._note_removal(view, COMPACTION, group, end_offset=end_offset, rewritten=rewritten)


def _interrupted_in(plan: dict[str, Any], directory: Path) -> LogCompaction:
    """The compaction that a journal names, in the directory where it lies now.

    Raises:
        CorruptError: it is none.
    """
    try:
        return LogCompaction.from_json(plan).in_directory(directory)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(
            f"not the plan of a compaction ({error}); remove it to have it planned again",
            path=str(directory / JOURNAL_NAME),
        ) from error


def _is_erasing(directory: Path) -> bool:
    """Whether an interrupted run was erasing records of a partition."""
    found = CompactionJournal(directory).read()
    return found is not None and found[0].get("erased") is not None
