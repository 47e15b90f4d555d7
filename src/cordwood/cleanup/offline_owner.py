"""One partition of a run of `cordwood clean`: its log's owner, and the report of what it did.

The view of the log is read again after each commit, so that every stage sees what is on disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cordwood.cleanup.capture import Captured, capture_offline
from cordwood.cleanup.cleanable import Cleanable, plan_cleanable
from cordwood.cleanup.commit import CompactionCommitter, StalePlanError, staged_files
from cordwood.cleanup.compaction import CompactionPlan
from cordwood.cleanup.compaction_values import Manifest
from cordwood.cleanup.idle_roll import should_roll_idle
from cordwood.cleanup.log_compaction import AttemptLimits, LogCompaction
from cordwood.cleanup.log_view import LogView
from cordwood.cleanup.offline_placement import OfflinePlacement
from cordwood.cleanup.report import PartitionReport, Report, Size, Status
from cordwood.cleanup.request import CleanRequest
from cordwood.cleanup.retention import RetentionPlan
from cordwood.cleanup.shared_retention import rolled
from cordwood.format.file_names import LOG_SUFFIX
from cordwood.format.trash_notes import COMPACTION, RESTART, RETENTION, Removal, Rewritten
from cordwood.model.clock import Clock
from cordwood.model.config import LogConfig
from cordwood.model.errors import CordwoodError, CorruptError, NoSpaceError
from cordwood.storage.filesystem import OS
from cordwood.storage.log.offline_changes import (
    NewSegment,
    delete_oldest,
    leader_epochs_of,
    restart_log,
    write_log_start,
)
from cordwood.storage.log.offline_log import load_offline_log
from cordwood.storage.offline_log_directory import OfflineLogDirectory, PartitionDir, require_closed
from cordwood.storage.replace import JOURNAL_NAME, CompactionJournal, recover_directory
from cordwood.storage.reread import reread
from cordwood.storage.trash import Trash, rewritten_of


@dataclass(slots=True, kw_only=True)
class Run:
    """What the partitions of a run share.

    `remover` removes old segments meanwhile; `interrupted` are committers to be cleared at the end.
    """

    request: CleanRequest
    clock: Clock
    report: Report
    trash: Trash | None
    remover: Executor
    interrupted: list[CompactionCommitter] = field(default_factory=list)


class OfflineOwner:
    """A `LogOwner` of a log whose directory is locked, or of one that is only read.

    The latter are those of a dry run, and those with a legal hold. `planned_s` is when its last
    retention was planned, by the clock of the run.
    """

    def __init__(
        self,
        run: Run,
        log_dir: OfflineLogDirectory,
        place: PartitionDir,
        *,
        report: PartitionReport,
        config: LogConfig,
    ) -> None:
        self.report = report
        self.config = config
        self.planned_s = 0.0
        self._run = run
        self._request = run.request
        self._log_dir = log_dir
        self._place = place
        self._captured: Captured | None = None
        self._interrupted: LogCompaction | None = None
        self._changed = False
        self._discarded_records: int | None = None
        self._records_before: int | None = None

    @property
    def is_alive(self) -> bool:
        """Whether it was captured, and nothing went wrong since."""
        return not self.failed and self._captured is not None

    @property
    def failed(self) -> bool:
        """Whether something went wrong."""
        return self.report.status in {Status.FAILED, Status.NO_SPACE}

    @property
    def only_reads(self) -> bool:
        """Whether no file of it may be changed."""
        return self._request.dry_run or bool(self.report.holds)

    @property
    def is_interrupted(self) -> bool:
        """Whether an earlier run has left a compaction half done."""
        return self._interrupted is not None

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Records the error of this partition, so that the others continue."""
        try:
            yield
        except (CordwoodError, OSError) as error:
            no_space = isinstance(error, NoSpaceError)
            self.report.status = Status.NO_SPACE if no_space else Status.FAILED
            self.report.reason = str(error)

    # ---- pin

    def recover(self) -> None:
        """Finishes or undoes the group that an interrupted run was putting in place.

        Raises:
            CorruptError: the journal cannot be read.
        """
        directory = self._place.path
        # What an interrupted erasure has replaced must not go to the trash.
        dispose = None if _is_erasing(directory) else self._run.trash
        found = recover_directory(directory, dispose=dispose)
        self.report.warnings += [
            f"{change} (an earlier run was interrupted)" for change in found.changes
        ]
        if found.plan is not None:
            self._interrupted = replace(
                _interrupted_in(found.plan, directory),
                groups_done=found.groups_done,
                before=found.after or [[], []],
            )

    def capture(self) -> None:
        """Reads the log; one that is deleted meanwhile is left alone."""
        if not self._request.dry_run:
            self._captured = self._read()
        else:
            try:
                self._captured = reread(self._read, directory=self._place.path)
            except FileNotFoundError:
                if self._place.path.exists():
                    raise
                self.report.status = Status.LEFT_ALONE
                self.report.reason = "it was deleted while it was being read"
                return
        self._warn(self._captured.warnings)

    def _read(self) -> Captured:
        checkpoints, warnings = self._log_dir.checkpoints()
        for warning in warnings:
            if warning not in self._run.report.warnings:
                self._run.report.warnings.append(warning)
        partition = self._place.topic_partition
        offline = load_offline_log(
            self._place.path,
            partition,
            config=self.config,
            checkpoints=checkpoints,
            clean_shutdown=self._is_whole,
            producer_expiration_ms=self._request.producer_expiration_ms,
            now_ms=self._request.now_ms,
        )
        captured = capture_offline(
            offline,
            cleaner_checkpoint=checkpoints.cleaner.get(partition),
            holds=self.report.holds,
        )
        if not self.only_reads:  # after all that could be refused
            offline.repair()
        return captured

    def _warn(self, warnings: tuple[str, ...]) -> None:
        known = self.report.warnings
        known += [warning for warning in warnings if warning not in known]

    @property
    def captured(self) -> Captured:
        """The log as it was last read."""
        assert self._captured is not None, "a log is read before it is planned on"
        return self._captured

    @property
    def view(self) -> LogView:
        """The view of the log as it was last read."""
        return self.captured.view

    def note_before(self) -> None:
        """Reports the sizes before the cleaning."""
        if self._captured is not None:
            view = self.view
            self.report.before = Size(segments=len(view.segments), bytes=view.size_bytes)

    # ---- retention

    @contextmanager
    def held(self) -> Iterator[LogView]:
        """As `LogOwner.held`; the directory is locked for the whole run."""
        yield self.view

    def _is_idle(self, now_ms: int) -> bool:
        """Whether the active segment is rolled; after an unclean shutdown it may not be whole."""
        active = self.view.active
        first = active.first_batch_timestamp
        return self._is_whole and should_roll_idle(
            self.view, active, first_batch_timestamp=first, now_ms=now_ms
        )

    def view_when_rolled(self) -> LogView:
        """The view of the log as `roll_idle` will leave it, now."""
        return rolled(self.view) if self._is_idle(self._request.now_ms) else self.view

    def plan_roll(self) -> LogView:
        """The same, which is reported."""
        view = self.view_when_rolled()
        if view is not self.view:
            self.report.rolled_at = view.log_end_offset
        return view

    def roll_idle(self, now_ms: int) -> None:
        """As `LogOwner.roll_idle`."""
        if not self._is_idle(now_ms):
            return
        require_closed(self._place.path)
        self.report.rolled_at = self.view.log_end_offset
        self._new_segment(self.view.log_end_offset).write(self._place.path)
        self._changed = True
        self.capture()

    @property
    def _is_whole(self) -> bool:
        return self._log_dir.has_clean_shutdown_file() or self._log_dir.meta is None

    def note_retention(self, plan: RetentionPlan) -> None:
        """As `LogOwner.note_retention`."""
        self.planned_s = self._run.clock.monotonic_s()
        self._warn(plan.warnings)
        self.report.expired += [
            {"base_offset": e.base_offset, "bytes": e.size_bytes, "rule": e.rule, "text": e.text}
            for e in plan.expired
        ]

    def delete(self, plan: RetentionPlan) -> int:
        """As `LogOwner.delete`.

        Raises:
            StalePlanError: the segments are not those that were captured.
        """
        require_closed(self._place.path)
        view, bases = self.view, [segment.base_offset for segment in plan.expired]
        if bases != [s.base_offset for s in view.segments[: len(bases)]]:
            raise StalePlanError(
                f"{view.topic_partition}: its segments have changed since the plan"
            )
        if plan.roll and view.active.base_offset == view.log_end_offset:
            raise StalePlanError(f"{view.topic_partition}: an empty active segment cannot expire")
        self._note_removal(
            RETENTION,
            bases,
            end_offset=view.next_base(len(bases) - 1),
            rolled=view.log_end_offset if plan.roll else None,
        )
        delete_oldest(
            self._place.path,
            bases,
            log_start_offset=plan.log_start_offset,
            rolled=self._new_segment(view.log_end_offset) if plan.roll else None,
            dispose=self._run.trash,
        )
        self._changed = True
        self.note_plan(plan)
        self.capture()
        return len(plan.expired)

    def restart_lost_log(self) -> None:
        """Restarts a log, empty, whose log start offset is beyond its end."""
        offset = self.captured.beyond_end
        if offset is not None and not self.only_reads:
            bases = [segment.base_offset for segment in self.view.segments]
            rolled = self._new_segment(offset)
            end_offset = self.view.log_end_offset
            self._note_removal(RESTART, bases, end_offset=end_offset, rolled=offset)
            restart_log(self._place.path, bases, rolled, dispose=self._run.trash)
            self._changed = True
            self.capture()

    def _note_removal(
        self,
        why: str,
        bases: Sequence[int],
        *,
        end_offset: int,
        rolled: int | None = None,
        rewritten: Rewritten | None = None,
    ) -> None:
        """Notes in the trash, if there is one, what is about to be removed."""
        if self._run.trash is None:
            return
        partition = self._place.topic_partition
        removal = Removal(
            at_ms=self._run.clock.now_ms(),
            why=why,
            topic_id=None,
            segments=tuple(bases),
            end_offset=end_offset,
            files=(),
            log_start_offset=max(self.view.log_start_offset, bases[0]),
            leader_epochs=leader_epochs_of(self._place.path),
            cleaner_checkpoint=self._log_dir.checkpoints()[0].cleaner.get(partition),
            rewritten=rewritten,
            rolled=rolled,
        )
        is_replaced = rewritten is not None
        self._run.trash.note(self._place.path, removal, keep_first_snapshot=is_replaced)

    def _note_group(self, compaction: LogCompaction, number: int, manifest: Manifest) -> None:
        """Notes the segments of a group whose replacement is staged."""
        if self._run.trash is None or compaction.erased is not None:
            return
        group = compaction.groups[number]
        ends = {each.base_offset: each.next_base_offset for each in compaction.segments}
        path = staged_files(compaction, manifest).paths()[LOG_SUFFIX]
        rewritten = rewritten_of(path, base_offset=manifest.base_offset)
        self._note_removal(COMPACTION, group, end_offset=ends[group[-1]], rewritten=rewritten)

    def _new_segment(self, base_offset: int) -> NewSegment:
        captured = self.captured
        return NewSegment(
            base_offset=base_offset, producers=captured.producers, model=captured.model
        )

    # ---- compaction

    @property
    def is_due(self) -> bool:
        """Whether it would be compacted now."""
        return self.is_interrupted or (
            self.config.compact and self._cleanable(self.view_when_rolled()).reason is None
        )

    def _cleanable(self, view: LogView) -> Cleanable:
        return plan_cleanable(view, now_ms=self._request.now_ms, force=self._request.force)

    def interrupted(self) -> LogCompaction | None:
        """As `LogOwner.interrupted`: where what is left of it is still as it was planned."""
        compaction, self._interrupted = self._interrupted, None
        if compaction is None or _still_holds(compaction, self.captured):
            return compaction
        self.committer(compaction).close()
        self.report.warnings.append(
            "an earlier run's compaction was dropped: the log has changed since then"
        )
        return None

    def cleanable(self) -> Cleanable | None:
        """As `LogOwner.cleanable`; an invalid cleaner checkpoint is replaced."""
        if not self.config.compact:
            return None
        cleanable = self._cleanable(self.view)
        self._warn(cleanable.warnings)
        if cleanable.reset_checkpoint and not self.only_reads:
            self._log_dir.set_cleaner_offset(self._place.topic_partition, cleanable.first_dirty)
        if cleanable.reason is not None and not self._changed and not self.report.holds:
            self.report.reason = f"not compacted: {cleanable.reason}"
        return cleanable

    def pin(self, _: Cleanable) -> Captured:
        """As `LogOwner.pin`."""
        return self.captured

    def note_compaction(self, cleanable: Cleanable, plan: CompactionPlan) -> None:
        """As `LogOwner.note_compaction`."""
        self.note_plan(None, cleanable, plan)

    def limits(self) -> AttemptLimits:
        """As `LogOwner.limits`."""
        return AttemptLimits(
            seed=secrets.randbits(127),
            attempt=secrets.token_hex(4),
            free_bytes=OS.free_bytes(self._place.path),
            space_max=self._request.max_extra_bytes,
            throttle_bytes=self._request.throttle_bytes,
            verify=self._request.verify,
        )

    def committer(
        self, compaction: LogCompaction, _: Captured | None = None
    ) -> CompactionCommitter:
        """As `LogOwner.committer`."""
        placement = OfflinePlacement(
            Path(compaction.directory),
            remover=self._run.remover,
            dispose=self._run.trash if compaction.erased is None else None,
            before=self._note_group,
        )
        return CompactionCommitter(compaction, placement)

    def finish(self, committer: CompactionCommitter) -> None:
        """As `LogOwner.finish`; the journal goes after the checkpoint is written."""
        result = committer.result
        self._changed = self._changed or any(not m.unchanged for m in result.manifests)
        self.report.discarded = self.report.discarded.plus(result.discarded)
        if not committer.done:
            committer.close()
            return
        if committer.compaction.erased is None:
            self._log_dir.set_cleaner_offset(
                self._place.topic_partition, committer.compaction.first_uncleanable
            )
        committer.close()
        self._changed = True
        self.report.reason = ""
        before = sum(m.records_before for m in result.manifests)
        after = sum(m.records_after for m in result.manifests)
        if self._records_before is None:
            self._records_before = before
        self._discarded_records = (self._discarded_records or 0) + before - after
        self.capture()

    def abandon(self, committer: CompactionCommitter) -> None:
        """As `LogOwner.abandon`; it is cleared again when the engine has ended."""
        self._run.interrupted.append(committer)
        with suppress(OSError, NoSpaceError):
            committer.clear()

    # ---- report

    def note_plan(
        self,
        retention: RetentionPlan | None,
        cleanable: Cleanable | None = None,
        compaction: CompactionPlan | None = None,
    ) -> None:
        """Adds an entry to the plan that is reported."""
        entry: dict[str, Any] = {
            "topic": self.report.topic,
            "partition": self.report.partition,
            "expired": [
                {"base_offset": e.base_offset, "bytes": e.size_bytes, "rule": e.rule}
                for e in (retention.expired if retention else ())
            ],
            "bytes_freed_by_retention": retention.bytes_freed if retention else 0,
        }
        if cleanable is not None:
            entry["compaction"] = {
                "first_dirty_offset": cleanable.first_dirty,
                "first_uncleanable_offset": cleanable.first_uncleanable,
                "dirty_ratio": round(cleanable.ratio, 6),
                "bytes_to_read": cleanable.clean_bytes + cleanable.cleanable_bytes,
                "groups": [list(g) for g in compaction.groups] if compaction else [],
                "reason": cleanable.reason,
            }
            if cleanable.reason and not self.report.reason:
                self.report.reason = f"not compacted: {cleanable.reason}"
        self._run.report.plan.append(entry)

    def end(self) -> None:
        """Commits the checkpoints, unless something went wrong, and reports the sizes."""
        if self._captured is None:
            return
        if not (self.failed or self.only_reads):
            write_log_start(
                self._log_dir,
                self._place.path,
                self._place.topic_partition,
                log_start_offset=self.view.log_start_offset,
                first_base_offset=self.view.segments[0].base_offset,
            )
        elif self.failed:
            self._capture_again()
        self._note_after()

    def _capture_again(self) -> None:
        """Sizes of a partition that failed, if it can be read at all."""
        status, reason = self.report.status, self.report.reason
        try:
            self.capture()
        except (CordwoodError, OSError):
            self._captured = None
        self.report.status, self.report.reason = status, reason

    def _note_after(self) -> None:
        report = self.report
        if self._captured is None:
            return
        view = self._captured.view
        records = None
        if self._records_before is not None and report.before is not None:
            report.before = replace(report.before, records=self._records_before)
            records = self._records_before - (self._discarded_records or 0)
        report.after = Size(segments=len(view.segments), bytes=view.size_bytes, records=records)
        report.cleaner_checkpoint = self._log_dir.checkpoints()[0].cleaner.get(
            self._place.topic_partition
        )
        if self._changed and not self.failed:
            report.status = Status.CLEANED


def _is_erasing(directory: Path) -> bool:
    """Whether an interrupted run was erasing records of a partition."""
    found = CompactionJournal(directory).read()
    return found is not None and found[0].get("erased") is not None


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


def _still_holds(compaction: LogCompaction, captured: Captured) -> bool:
    """Whether the groups left of a compaction are still what it was planned on."""
    now = {s.base_offset: (s.size_bytes, s.modified_ns) for s in captured.sources}
    left = {base for group in compaction.groups[compaction.groups_done :] for base in group}
    return all(
        now.get(s.base_offset) == (s.size_bytes, s.modified_ns)
        for s in compaction.segments
        if s.base_offset in left
    )
