"""The cleaning of whole log directories: retention of every partition, then compaction.

Retention is committed for every partition, and its space free, before compaction starts; then
retention runs again, until nothing more changes. A compaction that an earlier run left half done is
finished first, as that run had planned it. What goes wrong with one partition is written down, and
the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace

from cordwood.cleanup.access.commit import (
    CompactionCommitter,
    EngineFactory,
    StalePlanError,
)
from cordwood.cleanup.access.offline.directories import (
    locked,
    open_log_dirs,
)
from cordwood.cleanup.engine.run_directory import RunDirectory
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.check_plan import (
    DAY_MS,
    CheckPlan,
    bytes_of_next_day,
    plan_check,
)
from cordwood.cleanup.plan.compaction import CompactionPlan, plan_compaction
from cordwood.cleanup.plan.emptied import Emptied
from cordwood.cleanup.plan.estimates import Estimator
from cordwood.cleanup.plan.log_compaction import LogCompaction, prepare_compaction
from cordwood.cleanup.plan.report import Report, Size, Status
from cordwood.cleanup.plan.request import CleaningOrder, CleanRequest, Listener, Silence
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.schedule.cleaning import Planned, compact, retain
from cordwood.cleanup.schedule.cleaning_order import CleaningSchedule, DueLog
from cordwood.cleanup.schedule.partition_run import PartitionRun
from cordwood.cleanup.schedule.pinned_logs import REMOVERS, PinnedLogs
from cordwood.cleanup.schedule.started_engine import StartedEngine
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.storage.filesystem import OS

_PASSES_MAX = 8
_MEASUREMENTS_MAX = 3


def clean(
    request: CleanRequest,
    engine: EngineFactory,
    *,
    clock: Clock,
    require_engine: Callable[[], None] = lambda: None,
    confirm: Callable[[Emptied], None] = lambda _: None,
    listener: Listener | None = None,
    estimator: Estimator | None = None,
) -> Report:
    """Cleans log directories, each under its lock.

    A dry run takes no lock and changes nothing: it looks at directories that a broker runs on, too.
    One that is measured has a scratch directory for the announcements of its tasks.

    Args:
        request: what is to be done.
        engine: starts the engine; called only when there is something to compact.
        clock: for timings.
        require_engine: called before anything is touched when there is something to compact.
        confirm: called before retention if it would empty topics of what looks like an archive; may
            raise to leave all as it is.
        listener: receives the progress.
        estimator: estimates what the compactions would free that a dry run plans; None for none.

    Raises:
        ConfigError: no topic has a name that was asked for, the trash cannot be used, or records
            would go by a default that may not be the broker's setting.
        DirectoryInUseError: a broker, or another cleaning, runs on a directory.
        NotALogDirError: a directory is not Kafka's.
        EngineError: there is something to compact and the engine is unavailable.
    """
    started = clock.monotonic_s()
    log_dirs = open_log_dirs(request.log_dirs)
    with (
        locked(log_dirs, dry_run=request.dry_run) as locks,
        ThreadPoolExecutor(REMOVERS, thread_name_prefix="remover") as remover,
        RunDirectory() if needs_scratch(request) else nullcontext() as scratch,
    ):
        run = PinnedLogs(request, clock, listener or Silence(), remover)
        run.scratch = None if scratch is None else scratch.path
        run.read(log_dirs, locks)
        executes = request.measured or not request.dry_run
        assumed = run.assumed_retention()
        if not request.dry_run:
            assumed.require_none()
        run.report.warnings += [str(assumed)] * bool(assumed)
        emptied = run.emptied()
        if emptied.is_suspicious:
            run.report.warnings.append(str(emptied))
            if not request.dry_run:
                confirm(emptied)
        if executes and run.is_compaction_due():
            require_engine()
        if not executes:
            dry_run = _DryRun(run)
            dry_run.plan()
            if estimator is not None:
                dry_run.estimate(estimator)
        else:
            execution = _Execution(run)
            execution.execute(engine)
            execution.finish()
    run.report.timing.total = clock.monotonic_s() - started
    return run.report


def needs_scratch(request: CleanRequest) -> bool:
    """Whether tasks stage or announce elsewhere than beside the segments."""
    return request.measured or any(OS.is_mounted(each) for each in request.log_dirs)


def require_cleanable(
    request: CleanRequest,
    *,
    clock: Clock,
    confirm: Callable[[Emptied], None],
    listener: Listener | None = None,
) -> None:
    """Checks and asks what `clean` does before it changes anything, and changes nothing.

    It is for a command that changes the directories itself before it has them cleaned.

    Raises:
        As `clean`, except for EngineError; and what `confirm` raises.
    """
    log_dirs = open_log_dirs(request.log_dirs)
    with (
        locked(log_dirs, dry_run=False) as locks,
        ThreadPoolExecutor(REMOVERS, thread_name_prefix="remover") as remover,
    ):
        run = PinnedLogs(replace(request, dry_run=True), clock, listener or Silence(), remover)
        run.read(log_dirs, locks)
        if run.trash is not None and OS.exists(run.trash.directory):
            locks.take(run.trash.directory)
        run.assumed_retention().require_none()
        emptied = run.emptied()
        if emptied.is_suspicious:
            confirm(emptied)


class _DryRun:
    """A dry run: the plans of pinned logs."""

    def __init__(self, logs: PinnedLogs) -> None:
        self._logs = logs
        self._due: list[tuple[PartitionRun, Captured, CompactionPlan]] = []

    def plan(self) -> None:
        """Plans without executing, from views alone."""
        started = self._logs.clock.monotonic_s()
        alive = self._logs.alive()
        now_ms = self._logs.request.now_ms
        checks: dict[int, CheckPlan] = {}
        if self._logs.request.retention:
            planned = plan_check(
                [each.plan_roll() for each in alive],
                lambda views: self._logs.plan_shared(alive, views),
                now_ms=now_ms,
            )
            checks = {id(owner): check for owner, check in zip(alive, planned, strict=True)}
            self._note_next_day()
        for owner in self._logs.shown("planning", alive):
            with owner.guard():
                self._plan_one(owner, checks.get(id(owner)))
        self._logs.report.timing.plan += self._logs.clock.monotonic_s() - started

    def _note_next_day(self) -> None:
        """Reports what the checks of the next day remove, beyond the first, if nothing changes."""
        now, in_a_day = self._logs.first_checks(), self._logs.first_checks(after_ms=DAY_MS)
        self._logs.report.bytes_next_24h = sum(bytes_of_next_day(now, in_a_day))

    def _plan_one(self, owner: PartitionRun, check: CheckPlan | None) -> None:
        after, plan = owner.view, None
        if check is not None:
            after, plan = check.after, check.plan
            owner.note_retention(plan)
        cleanable = compaction = None
        if self._logs.request.compaction and owner.config.compact and not (plan and plan.roll):
            cleanable = plan_cleanable(
                after, now_ms=self._logs.request.now_ms, force=self._logs.request.force
            )
            if cleanable.reason is None:
                compaction = plan_compaction(after, cleanable)
                owner.report.is_compaction_planned = bool(compaction.groups)
                self._due.append((owner, owner.captured.seen_as(after), compaction))
        before = owner.report.before
        assert before is not None, "a plan is made of what was captured"
        owner.report.after = Size(
            segments=len(after.segments),
            bytes=before.bytes - (plan.bytes_freed if plan else 0),
        )
        if (plan and plan.expired) or owner.report.rolled_at is not None or compaction:
            owner.report.status = Status.PLANNED
        owner.note_plan(plan, cleanable, compaction)

    def estimate(self, estimator: Estimator) -> None:
        """Estimates what the planned compactions would free; what cannot be read has none."""
        started = self._logs.clock.monotonic_s()
        for owner, captured, plan in self._due:
            compaction = prepare_compaction(
                captured, plan, now_ms=self._logs.request.now_ms, seed=owner.attempt().seed
            )
            try:
                owner.report.estimate = estimator(compaction)
            except (CordwoodError, OSError) as error:
                owner.report.warnings.append(f"what its compaction would free is unknown: {error}")
        self._logs.report.timing.estimate += self._logs.clock.monotonic_s() - started


class _Execution:
    """Retention and compaction of pinned logs."""

    def __init__(self, logs: PinnedLogs) -> None:
        self._logs = logs
        self._bytes_left = logs.request.bytes_read_max

    def execute(self, engine: EngineFactory) -> None:
        """Retention, compaction, retention, until nothing more changes.

        What is measured beside a broker that changes its segments meanwhile is measured again.
        """
        try:
            with ExitStack() as stack:
                started = StartedEngine(engine, stack, self._logs.clock, self._logs.report.timing)
                self._execute(self._logs.alive(), started)
                for _ in range(_MEASUREMENTS_MAX - 1):
                    moved = self._moved()
                    for owner in moved:
                        self._logs.measured[owner].start_again()
                        owner.start_again()
                    self._execute([owner for owner in moved if owner.is_alive], started)
                for owner in self._moved():
                    with owner.guard():
                        raise StalePlanError(
                            "its segments changed while they were read, each time that it was "
                            "measured: a broker is cleaning it. Try again"
                        )
        finally:
            # A stopped task may have written one more file before the engine ended. What the disk
            # keeps, the next run removes.
            for committer in self._logs.run.interrupted:
                with suppress(OSError, NoSpaceError):
                    committer.clear()

    def _moved(self) -> list[PartitionRun]:
        """The owners whose segments are no longer what was measured."""
        return [owner for owner, measured in self._logs.measured.items() if measured.has_moved()]

    def _execute(self, pending: list[PartitionRun], engine: StartedEngine) -> None:
        for owner in pending:
            with owner.guard():
                owner.restart_lost_log()
        for number in range(_PASSES_MAX):
            # Their retention comes after the compaction, which may turn out to be stale.
            interrupted = [owner for owner in pending if owner.is_interrupted]
            if self._logs.request.retention:
                self._retain(pending)
                if not number:  # what was moved to a trash does not get free
                    self._retain_shared()
            if not self._logs.request.compaction:
                break
            changed = {*self._compact(pending, engine), *interrupted}
            pending = [each for each in pending if each in changed and not each.failed]
            if not pending:
                break

    def _retain(self, owners: Sequence[PartitionRun]) -> None:
        """Retention of all but those of which an interrupted compaction is continued first."""
        owners = [each for each in owners if not each.failed and not each.is_interrupted]
        for owner in self._logs.shown("retention", owners):
            begun = self._logs.clock.monotonic_s()
            with owner.guard():
                retain(owner, now_ms=self._logs.request.now_ms)
            planned = max(begun, owner.planned_s)
            self._logs.report.timing.plan += planned - begun
            self._logs.report.timing.commit += self._logs.clock.monotonic_s() - planned

    def _retain_shared(self) -> None:
        """Applies the limits that logs share; those that were interrupted or failed only count."""
        owners = self._logs.alive()
        plans = self._logs.plan_shared(owners, [each.view for each in owners])
        for owner, plan in zip(owners, plans, strict=True):
            if plan.expired:
                with owner.guard():
                    owner.note_retention(plan)
                    owner.delete(plan)
                    # What went may have held back the log's own rules.
                    retain(owner, now_ms=self._logs.request.now_ms)

    def _compact(
        self, pending: Sequence[PartitionRun], engine: StartedEngine
    ) -> list[PartitionRun]:
        owners = [
            owner
            for owner in pending
            if not owner.failed and (owner.config.compact or owner.is_interrupted)
        ]
        begun = self._logs.clock.monotonic_s()
        runs = engine.runs
        compacted = compact(
            self._logs.shown("planning", owners),
            engine.start,
            now_ms=self._logs.request.now_ms,
            arranged=self._arranged,
        )
        ended = self._logs.clock.monotonic_s()
        if engine.runs == runs:
            self._logs.report.timing.plan += ended - begun
        else:
            self._logs.report.timing.plan += engine.begun_s - begun
            self._logs.report.timing.commit += ended - engine.ended_s
        return compacted

    def _arranged(self, work: list[Planned[PartitionRun]]) -> list[Planned[PartitionRun]]:
        """Compactions in the order of the request; measured ones free nothing, in any order."""
        if self._logs.request.measured:
            return work
        request = self._logs.request
        by_partition = {owner.view.topic_partition: (owner, planned) for owner, planned in work}
        due = [_due_log(owner, planned, request) for owner, planned in work]
        order = request.order if self._bytes_left is None else CleaningOrder.FREED
        ranked = CleaningSchedule(order).ranked(due)
        chosen = [by_partition[each.partition] for each in ranked]
        return [each for each in chosen if self._affords(each)]

    def _affords(self, planned: Planned[PartitionRun]) -> bool:
        """Whether a compaction reads no more than is left of the bound; it counts then."""
        if self._bytes_left is None:
            return True
        owner, committer = planned
        wanted = bytes_read_by(committer.compaction)
        if wanted <= self._bytes_left:
            self._bytes_left -= wanted
            return True
        owner.report.warnings.append(
            f"not compacted: that reads {wanted} bytes, and {self._bytes_left} of what may be "
            "read (--max-bytes-read) are left"
        )
        return False

    def finish(self) -> None:
        """Checkpoints of log start offsets, and the sizes after."""
        begun = self._logs.clock.monotonic_s()
        for owner in self._logs.owners:
            with owner.guard():
                owner.end()
        self._logs.report.timing.commit += self._logs.clock.monotonic_s() - begun


def bytes_read_by(compaction: LogCompaction) -> int:
    """The bytes that a compaction reads: all once for its keys, once to write, to verify twice."""
    passes = 4 if compaction.is_verified else 2
    return passes * compaction.size_bytes


def _due_log(owner: PartitionRun, committer: CompactionCommitter, request: CleanRequest) -> DueLog:
    """A log as the schedule takes it; nobody else changes it."""
    compaction = committer.compaction
    return DueLog(
        partition=owner.view.topic_partition,
        cleanable=plan_cleanable(owner.view, now_ms=request.now_ms, force=request.force),
        identity=None,
        segments=lambda: compaction.segments,
        bounds=compaction.bounds,
    )
