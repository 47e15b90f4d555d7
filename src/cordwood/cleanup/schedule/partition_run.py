"""One partition of a run of `cordwood clean`: the owner of its log, which reports what was done.

The log is pinned again after each change, so that every stage sees what the access has then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from cordwood.cleanup.access.capture import with_due
from cordwood.cleanup.access.commit import CompactionCommitter
from cordwood.cleanup.access.log_access import OwnedLog
from cordwood.cleanup.plan.attempt import Attempt
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.check_plan import view_when_rolled
from cordwood.cleanup.plan.compaction import CompactionPlan
from cordwood.cleanup.plan.compaction_values import Discarded
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.outcome import Rejected, Unknown
from cordwood.cleanup.plan.report import (
    ExpiredSegment,
    PartitionReport,
    PlannedCleaning,
    PlannedCompaction,
    Report,
    Size,
    Status,
)
from cordwood.cleanup.plan.request import CleanRequest
from cordwood.cleanup.rules.blockers import Code
from cordwood.cleanup.rules.cleanable import Cleanable, plan_cleanable
from cordwood.cleanup.rules.due import NOTHING_DUE
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.configs.log_config import LogConfig
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.storage.reread import reread

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Run:
    """The state that the partitions of one run share.

    `interrupted` are committers to be cleared at the end.
    """

    request: CleanRequest
    clock: Clock
    report: Report
    interrupted: list[CompactionCommitter] = field(default_factory=list)


class PartitionRun:
    """A `LogOwner` of a log whose directory is locked, or of one that is only read.

    The latter are those of a dry run, and those with a legal hold. `planned_s` is when its last
    retention was planned, by the clock of the run.
    """

    def __init__(
        self, run: Run, access: OwnedLog, *, report: PartitionReport, config: LogConfig
    ) -> None:
        """Takes the access to its log."""
        self.report = report
        self.config = config
        self.planned_s = 0.0
        self._run = run
        self._request = run.request
        self._access = access
        self._captured: Captured | None = None
        self._interrupted: LogCompaction | None = None
        self._changed = False
        self._discarded_records: int | None = None
        self._records_before: int | None = None
        self._is_compacted = False

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
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        no_space = isinstance(error, NoSpaceError)
        self.report.status = Status.NO_SPACE if no_space else Status.FAILED
        self.report.reason = str(error)

    # ---- pin

    def recover(self) -> None:
        """Finishes or undoes the group that an interrupted run was putting in place.

        Raises:
            CorruptError: the journal cannot be read.
        """
        found = self._access.recover()
        self.report.warnings += [
            f"{change} (an earlier run was interrupted)" for change in found.changes
        ]
        self._interrupted = found.interrupted

    def capture(self) -> None:
        """Reads the log; one that is deleted meanwhile is left alone."""
        if not self._request.dry_run:
            self._captured = self._access.pin()
        else:
            directory = self._access.directory
            try:
                self._captured = reread(self._access.pin, directory=directory)
            except FileNotFoundError:
                if directory.exists():
                    raise
                self.report.status = Status.LEFT_ALONE
                self.report.reason = "it was deleted while it was being read"
                return
        self._warn(self._captured.warnings)

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

    def start_again(self) -> None:
        """Forgets what was reported, and reads the log again: it changed while it was measured."""
        report = self.report
        report.status, report.reason = Status.UNCHANGED, ""
        report.expired, report.discarded, report.keys = [], Discarded(), None
        report.rolled_at, report.losses = None, []
        self._run.report.plan = [
            entry
            for entry in self._run.report.plan
            if (entry.topic, entry.partition) != (report.topic, report.partition)
        ]
        self._changed = False
        self._discarded_records = self._records_before = None
        with self.guard():
            self.capture()
            self.note_before()

    def note_before(self) -> None:
        """Reports the sizes before the cleaning."""
        if self._captured is not None:
            view = self.view
            self.report.before = Size(segments=len(view.segments), bytes=view.size_bytes)

    # ---- retention

    @contextmanager
    def held(self) -> Iterator[LogView]:
        """Yields the view; the directory is locked for the whole run."""
        yield self.view

    @property
    def may_roll(self) -> bool:
        """Whether the active segment may be rolled; after an unclean shutdown it may be torn."""
        return self._access.is_whole

    def view_when_rolled(self) -> LogView:
        """The view of the log as `roll_idle` will leave it, now."""
        if not self.may_roll:
            return self.view
        return view_when_rolled(self.view, now_ms=self._request.now_ms)

    def plan_roll(self) -> LogView:
        """The view of the log as `roll_idle` will leave it; reports the roll."""
        view = self.view_when_rolled()
        if view is not self.view:
            self.report.rolled_at = view.log_end_offset
        return view

    def roll_idle(self, now_ms: int) -> None:
        """Rolls an active segment that is idle, by the time of the request."""
        del now_ms  # that of the request
        if self.view_when_rolled() is self.view:
            return
        self.report.rolled_at = self.view.log_end_offset
        self._access.roll()
        self._changed = True
        if not self._request.dry_run:  # which may do it to a copy
            _log.info(
                "[%s] Rolled new log segment at offset %s",
                self.view.topic_partition,
                self.view.log_end_offset,
            )
        self.capture()

    def note_retention(self, plan: RetentionPlan) -> None:
        """Reports the plan and its warnings."""
        self.planned_s = self._run.clock.monotonic_s()
        self._warn(plan.warnings)
        self.report.expired += [
            ExpiredSegment(base_offset=e.base_offset, bytes=e.size_bytes, rule=e.rule, text=e.text)
            for e in plan.expired
        ]
        self._note_groups(plan)

    def _note_groups(self, plan: RetentionPlan) -> None:
        """Reports what groups lose, and which of them the log waits for."""
        self.report.losses += plan.losses
        will = "planned: " if self._request.dry_run else ""
        self._warn(tuple([f"{will}{loss.text}" for loss in plan.losses]))
        for blocker in plan.blockers:
            if blocker.code is not Code.GROUP_GUARD:
                continue
            waits = f"it waits for a group: {blocker.text}"
            if any(each.unknown for each in self.view.consumed.positions(self.config)):
                self._warn((waits,))
            elif not self.report.reason:
                self.report.reason = waits

    def delete(self, plan: RetentionPlan) -> int:
        """Deletes the planned segments, and captures the log again."""
        count = self._access.delete(plan)
        self._changed = True
        self.note_plan(plan)
        self.capture()
        return count

    def restart_lost_log(self) -> None:
        """Restarts a log, empty, whose log start offset is beyond its end."""
        offset = self.captured.beyond_end
        if offset is not None and not self.report.holds:
            self._access.restart(offset)
            self._changed = True
            self.capture()

    # ---- compaction

    @property
    def is_due(self) -> bool:
        """Whether it would be compacted now."""
        return self.is_interrupted or self.would_be_due(self.view_when_rolled())

    def would_be_due(self, view: LogView) -> bool:
        """Whether the log would be compacted if it were as in `view`."""
        return self.config.compact and self._cleanable(view).reason is None

    def _cleanable(self, view: LogView) -> Cleanable:
        if self._is_compacted:
            # What it has left, such as a pinned record, is for the next check.
            view = with_due(view, [NOTHING_DUE] * len(view.segments))
        return plan_cleanable(view, now_ms=self._request.now_ms, force=self._request.force)

    def interrupted(self) -> LogCompaction | None:
        """The compaction of the journal, if the log is still as it was planned."""
        compaction, self._interrupted = self._interrupted, None
        if compaction is None or _still_holds(compaction, self.captured):
            # Where records have versions, one in a group in place may beat one that is left.
            return compaction and compaction.over(self.captured.sources)
        self.committer(compaction).close()
        self.report.warnings.append(
            "an earlier run's compaction was dropped: the log has changed since then"
        )
        return None

    def cleanable(self) -> Cleanable | None:
        """The cleanable section; an invalid cleaner checkpoint is replaced."""
        if not self.config.compact:
            return None
        cleanable = self._cleanable(self.view)
        self._warn(cleanable.warnings)
        if cleanable.reset_checkpoint and not self.report.holds:
            self._access.set_cleaner_offset(cleanable.first_dirty)
        if cleanable.reason is not None and not self._changed and not self.report.holds:
            self.report.reason = f"not compacted: {cleanable.reason}"
        return cleanable

    def pin(self, _: Cleanable) -> Captured:
        """The captured log, which nobody changes."""
        return self.captured

    def note_compaction(self, cleanable: Cleanable, plan: CompactionPlan) -> None:
        """Reports the plan."""
        self.note_plan(None, cleanable, plan)

    def attempt(self) -> Attempt:
        """Draws an attempt within the limits of the request."""
        return self._access.attempt(self._request.limits)

    def committer(
        self, compaction: LogCompaction, _: Captured | None = None
    ) -> CompactionCommitter:
        """Makes the committer by the access to the log."""
        return self._access.committer(compaction, self.captured)

    def finish(self, committer: CompactionCommitter) -> None:
        """Reports the result, and captures the log again."""
        result = committer.result
        self._changed = self._changed or any(not m.unchanged for m in result.manifests)
        self.report.discarded = self.report.discarded.plus(result.discarded)
        if result.index is not None:
            self.report.keys = (self.report.keys or 0) + result.index.keys
        self._access.finish(committer)
        if isinstance(result.outcome, Rejected | Unknown):
            self._fail(result.outcome.error)
            return
        self._is_compacted = self._changed = True
        self.report.reason = ""
        before = sum(m.records_before for m in result.manifests)
        after = sum(m.records_after for m in result.manifests)
        if self._records_before is None:
            self._records_before = before
        self._discarded_records = (self._discarded_records or 0) + before - after
        self.capture()

    def abandon(self, committer: CompactionCommitter) -> None:
        """Clears the staged files, and once more when the engine has ended."""
        self._run.interrupted.append(committer)
        self._access.abandon(committer)

    # ---- report

    def note_plan(
        self,
        retention: RetentionPlan | None,
        cleanable: Cleanable | None = None,
        compaction: CompactionPlan | None = None,
    ) -> None:
        """Adds an entry to the plan that is reported."""
        considered = None
        if cleanable is not None:
            self._warn(cleanable.warnings)
            considered = PlannedCompaction(
                first_dirty_offset=cleanable.first_dirty,
                first_uncleanable_offset=cleanable.first_uncleanable,
                dirty_ratio=round(cleanable.ratio, 6),
                bytes_to_read=cleanable.bytes_to_read,
                groups=compaction.groups if compaction else (),
                reason=cleanable.reason,
            )
            if cleanable.reason and not self.report.reason:
                self.report.reason = f"not compacted: {cleanable.reason}"
        self._run.report.plan.append(
            PlannedCleaning(
                topic=self.report.topic,
                partition=self.report.partition,
                expired=[
                    ExpiredSegment(base_offset=e.base_offset, bytes=e.size_bytes, rule=e.rule)
                    for e in (retention.expired if retention else ())
                ],
                bytes_freed_by_retention=retention.bytes_freed if retention else 0,
                compaction=considered,
            )
        )

    def end(self) -> None:
        """Commits the checkpoints, unless something went wrong, and reports the sizes."""
        if self._captured is None:
            return
        if self.failed:
            self._capture_again()
        elif not self.report.holds:
            self._access.end()
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
        report.cleaner_checkpoint = self._access.cleaner_offset()
        report.log_start_offset = view.log_start_offset
        if self._changed and not self.failed:
            report.status = Status.PLANNED if self._request.dry_run else Status.CLEANED


def _still_holds(compaction: LogCompaction, captured: Captured) -> bool:
    """Whether the groups left of a compaction are still what it was planned on."""
    now = {s.base_offset: (s.size_bytes, s.modified_ns) for s in captured.sources}
    left = {base for group in compaction.groups[compaction.groups_done :] for base in group}
    return all(
        now.get(s.base_offset) == (s.size_bytes, s.modified_ns)
        for s in compaction.segments
        if s.base_offset in left
    )
