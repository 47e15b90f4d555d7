"""The changes of a cleaning to one offline log, as they are made to its directory.

`LogFiles` is what an `OfflineOwner` changes; `LogOnDisk` changes the files, and reads the log again
after each change. `cordwood.cleanup.access.measured_log` only predicts what would then be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from cordwood.cleanup.access.capture import capture_offline
from cordwood.cleanup.access.commit import CompactionCommitter, staged_segments
from cordwood.cleanup.access.due_reader import KnownDue
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
from cordwood.cleanup.access.removal_audit import Origins, audit_expired, audit_group
from cordwood.cleanup.access.run import Run
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.group_guard import NOTHING_KNOWN
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.configs.log_config import LogConfig
from cordwood.format.trash_notes import COMPACTION, RESTART, RETENTION, Removal, Rewritten
from cordwood.model.audit import LogRestarted, audit
from cordwood.storage.filesystem import OS
from cordwood.storage.trash import rewritten_of


class LogFiles(Protocol):
    """The files of one offline log, and its lines in the checkpoints."""

    def read(self) -> Captured:
        """The log as it is after all changes.

        Raises:
            OSError, CordwoodError: it cannot be read.
        """

    @property
    def is_whole(self) -> bool:
        """Whether its broker stopped in good order, so that its end is whole."""

    def roll(self, captured: Captured) -> None:
        """Adds an empty active segment at the log's end. Raises as `delete_oldest`."""

    def delete_oldest(self, captured: Captured, plan: RetentionPlan) -> None:
        """Deletes the expired segments of a plan.

        Raises:
            OSError, CordwoodError: the disk refused.
        """

    def restart(self, captured: Captured, offset: int) -> None:
        """Restarts the log, empty, at `offset`. Raises as `delete_oldest`."""

    def set_cleaner_offset(self, offset: int) -> None:
        """Sets the line of the cleaner checkpoint. Raises as `delete_oldest`."""

    def cleaner_offset(self) -> int | None:
        """The line of the cleaner checkpoint."""

    def free_bytes(self) -> int:
        """The free space of the file system to which a compaction writes."""

    def committer(self, compaction: LogCompaction, captured: Captured) -> CompactionCommitter:
        """Commits the groups of a compaction; `captured` is the log before."""

    def note_compacted(self, captured: Captured, committer: CompactionCommitter) -> None:
        """Records that every group is in place; `captured` is the log before. Raises as
        `delete_oldest`.
        """

    def end(self, captured: Captured) -> None:
        """Writes the log start offset to its checkpoint. Raises as `delete_oldest`."""


class LogOnDisk:
    """`LogFiles` of a log whose directory is locked, or of one that is only read."""

    def __init__(
        self,
        run: Run,
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
        self._run = run
        self._log_dir = log_dir
        self._place = place
        self._config = config
        self._origins = origins
        self._holds = holds
        self._due: KnownDue = {}

    def read(self) -> Captured:
        """Captures the log on disk; repairs what Kafka repairs at every start, unless only read."""
        request = self._run.request
        checkpoints, warnings = self._log_dir.checkpoints()
        for warning in warnings:
            if warning not in self._run.report.warnings:
                self._run.report.warnings.append(warning)
        partition = self._place.topic_partition
        offline = load_offline_log(
            self._place.path,
            partition,
            config=self._config,
            checkpoints=checkpoints,
            clean_shutdown=self.is_whole,
            producer_expiration_ms=request.producer_expiration_ms,
            now_ms=request.now_ms,
            is_in_use=str(self._log_dir.path) in {each.log_dir for each in self._run.report.in_use},
        )
        waits = bool(self._config.cordwood_retention_groups)
        captured = capture_offline(
            offline,
            cleaner_checkpoint=checkpoints.cleaner.get(partition),
            holds=self._holds,
            consumed=self._run.groups.consumed(partition) if waits else NOTHING_KNOWN,
            other=self._compared_with,
            due=self._due,
        )
        if not (request.dry_run or self._holds):  # after all that could be refused
            offline.repair()
        return captured

    @property
    def _compared_with(self) -> LogConfig | None:
        resolve = self._run.request.compared_with
        resolved = None if resolve is None else resolve(self._place.topic_partition.topic)
        return None if resolved is None else resolved.config

    @property
    def is_whole(self) -> bool:
        """Whether the directory's broker stopped cleanly."""
        return self._log_dir.is_whole

    def roll(self, captured: Captured) -> None:
        """Writes an empty active segment at the log's end."""
        require_closed(self._place.path)
        _new_segment(captured, captured.view.log_end_offset).write(self._place.path)

    def delete_oldest(self, captured: Captured, plan: RetentionPlan) -> None:
        """Deletes the oldest segments, or moves them to the trash."""
        require_closed(self._place.path)
        view, bases = captured.view, [segment.base_offset for segment in plan.expired]
        self._note_removal(
            view,
            RETENTION,
            bases,
            end_offset=view.next_base(len(bases) - 1),
            rolled=view.log_end_offset if plan.roll else None,
        )
        delete_oldest(
            self._place.path,
            bases,
            log_start_offset=plan.log_start_offset,
            rolled=_new_segment(captured, view.log_end_offset) if plan.roll else None,
            dispose=self._run.trash,
        )
        audit_expired(
            plan.expired,
            [view.next_base(number) for number in range(len(bases))],
            partition=view.topic_partition,
            log_dir=str(self._log_dir.path),
            config=self._config,
            origins=self._origins,
            at_ms=self._run.request.now_ms,
            trash=self._trash,
        )

    @property
    def _trash(self) -> str | None:
        return None if self._run.trash is None else str(self._run.trash.directory)

    def restart(self, captured: Captured, offset: int) -> None:
        """Replaces all segments by an empty one at an offset."""
        bases = [segment.base_offset for segment in captured.view.segments]
        rolled = _new_segment(captured, offset)
        end_offset = captured.view.log_end_offset
        self._note_removal(captured.view, RESTART, bases, end_offset=end_offset, rolled=offset)
        restart_log(self._place.path, bases, rolled, dispose=self._run.trash)
        audit(
            LogRestarted(
                partition=captured.view.topic_partition,
                log_dir=str(self._log_dir.path),
                segments=tuple(bases),
                size_bytes=captured.view.size_bytes,
                log_start_offset=offset,
                trash=self._trash,
            )
        )

    def set_cleaner_offset(self, offset: int) -> None:
        """Writes the cleaner checkpoint of the directory."""
        self._log_dir.set_cleaner_offset(self._place.topic_partition, offset)

    def cleaner_offset(self) -> int | None:
        """The offset in the cleaner checkpoint of the directory, None without one."""
        return self._log_dir.checkpoints()[0].cleaner.get(self._place.topic_partition)

    def free_bytes(self) -> int:
        """The free space of the log's file system."""
        return OS.free_bytes(self._place.path)

    def committer(self, compaction: LogCompaction, captured: Captured) -> CompactionCommitter:
        """Makes the committer; the segments that an erasure replaces go to no trash."""
        is_erasure = compaction.erased is not None

        def note(compaction: LogCompaction, number: int, manifest: Manifest) -> None:
            if not is_erasure:
                self._note_group(captured.view, compaction, number, manifest)

        def placed(compaction: LogCompaction, number: int, manifest: Manifest) -> None:
            if not is_erasure:
                audit_group(
                    compaction,
                    number,
                    manifest,
                    partition=self._place.topic_partition,
                    log_dir=str(self._log_dir.path),
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
        return CompactionCommitter(compaction, placement)

    def note_compacted(self, captured: Captured, committer: CompactionCommitter) -> None:
        """Writes the cleaner checkpoint; the journal is removed after that."""
        if committer.compaction.erased is None:
            self.set_cleaner_offset(committer.compaction.first_uncleanable)

    def end(self, captured: Captured) -> None:
        """Writes the log start offset to the directory's checkpoint."""
        write_log_start(
            self._log_dir,
            self._place.path,
            self._place.topic_partition,
            log_start_offset=captured.view.log_start_offset,
            first_base_offset=captured.view.segments[0].base_offset,
        )

    # ---- notes of the trash

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
            leader_epochs=leader_epochs_of(self._place.path),
            cleaner_checkpoint=self.cleaner_offset(),
            rewritten=rewritten,
            rolled=rolled,
        )
        self._run.trash.note(self._place.path, removal)

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


def _new_segment(captured: Captured, base_offset: int) -> NewSegment:
    return NewSegment(base_offset=base_offset, producers=captured.producers, model=captured.model)
