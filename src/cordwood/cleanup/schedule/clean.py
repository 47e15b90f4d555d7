"""The cleaning of whole log directories: retention of every partition, then compaction.

Retention is committed for every partition, and its space free, before compaction starts; then
retention runs again, until nothing more changes. A compaction that an earlier run left half done is
finished first, as that run had planned it. What goes wrong with one partition is written down, and
the others continue.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace
from pathlib import Path

from cordwood.cleanup.access.commit import (
    CompactionCommitter,
    EngineFactory,
    StalePlanError,
)
from cordwood.cleanup.access.measured_log import MeasuredLog
from cordwood.cleanup.access.offline.directories import (
    Locks,
    Place,
    find_places,
    locked,
    open_log_dirs,
)
from cordwood.cleanup.access.offline.groups import OfflineGroups
from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory, PartitionDir
from cordwood.cleanup.access.offline.run import OfflineRun
from cordwood.cleanup.access.offline.stopped_log import StoppedLog
from cordwood.cleanup.engine.run_directory import RunDirectory
from cordwood.cleanup.plan.assumed_retention import AssumedRetention, assumed_of, removes_by_time
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.check_plan import (
    DAY_MS,
    CheckPlan,
    bytes_of_next_day,
    plan_check,
    plan_check_of,
)
from cordwood.cleanup.plan.compaction import CompactionPlan, plan_compaction
from cordwood.cleanup.plan.emptied import Emptied, emptied_topics
from cordwood.cleanup.plan.estimates import Estimator
from cordwood.cleanup.plan.log_compaction import prepare_compaction
from cordwood.cleanup.plan.named_topics import missing_topics
from cordwood.cleanup.plan.report import PartitionReport, Report, Size, Status
from cordwood.cleanup.plan.request import CleanRequest, Listener, Resolved, Silence
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.cleanup.rules.shared_retention import (
    SharedLog,
    plan_shared_retention,
)
from cordwood.cleanup.schedule.cleaning import Planned, compact, retain
from cordwood.cleanup.schedule.cleaning_order import CleaningSchedule, DueLog
from cordwood.cleanup.schedule.partition_run import PartitionRun, Run
from cordwood.cleanup.schedule.started_engine import StartedEngine
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError, NoSpaceError
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import HoldRegistry
from cordwood.storage.trash import Trash

_PASSES_MAX = 8
_MEASUREMENTS_MAX = 3
# Threads that remove old segments: they wait for the disk.
REMOVERS = 2


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
        RunDirectory() if request.measured else nullcontext() as scratch,
    ):
        run = Cleaning(request, clock, listener or Silence(), remover)
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
            run.plan_only()
            if estimator is not None:
                run.estimate(estimator)
        else:
            run.execute(engine)
        run.finish()
    run.report.timing.total = clock.monotonic_s() - started
    return run.report


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
        run = Cleaning(replace(request, dry_run=True), clock, listener or Silence(), remover)
        run.read(log_dirs, locks)
        if run.trash is not None and OS.exists(run.trash.directory):
            locks.take(run.trash.directory)
        run.assumed_retention().require_none()
        emptied = run.emptied()
        if emptied.is_suspicious:
            confirm(emptied)


def offline_groups(request: CleanRequest, places: Sequence[Place] | None = None) -> OfflineGroups:
    """The committed offsets in the log directories of a request; nothing is read yet.

    Raises:
        NotALogDirError: a directory is not Kafka's.
        OSError: a log directory cannot be read.
    """
    return OfflineGroups(
        find_places(open_log_dirs(request.log_dirs)) if places is None else places,
        producer_expiration_ms=request.producer_expiration_ms,
        now_ms=request.now_ms,
    )


class Cleaning:
    """One call of `clean`."""

    def __init__(
        self, request: CleanRequest, clock: Clock, listener: Listener, remover: Executor
    ) -> None:
        self._request = request
        self._clock = clock
        self._listener = listener
        self._owners: list[PartitionRun] = []
        self._resolved: dict[str, Resolved] = {}
        self._holds = HoldRegistry(OS)
        self._measured: dict[PartitionRun, MeasuredLog] = {}
        self._due: list[tuple[PartitionRun, Captured, CompactionPlan]] = []
        self._places: Sequence[Place] = ()
        self.scratch: Path | None = None
        self.trash = None if request.trash is None else Trash(request.trash)
        self.report = Report(
            now_ms=request.now_ms, dry_run=request.dry_run, measured=request.measured
        )
        self._run = Run(request=request, clock=clock, report=self.report)
        self._offline = OfflineRun(
            clock=clock,
            now_ms=request.now_ms,
            remover=remover,
            only_reads=request.dry_run,
            producer_expiration_ms=request.producer_expiration_ms,
            trash=self.trash,
            compared_with=request.compared_config,
            warnings=self.report.warnings,
        )

    # ---- pin

    def read(self, log_dirs: Sequence[OfflineLogDirectory], locks: Locks) -> None:
        """Finds the partitions, and takes the first view of every one. Raises as `clean`."""
        self._holds.read(log_dir.path for log_dir in log_dirs)
        self._places = places = find_places(log_dirs)
        self._offline.groups = offline_groups(self._request, places)
        self._offline.in_use = self.report.in_use = locks.in_use
        self.report.warnings += missing_topics(
            {place.partition.topic_partition.topic for place in places}, self._request
        )
        self._find_partitions(places, locks)
        if self.trash is not None:
            paths = [each.path for each in log_dirs]
            on_disk = self.trash.prepare(paths, read_only=self._request.dry_run)
            self.report.warnings += on_disk
            self.report.trash_on_disk = str(self.trash.directory) if on_disk else None
            if not self._request.dry_run:
                locks.take(self.trash.directory)  # its notes are rewritten
        self._capture_all()

    @property
    def groups(self) -> OfflineGroups:
        """The committed offsets in the directories."""
        return self._offline.groups

    def captured(self) -> list[tuple[PartitionReport, Captured]]:
        """Every partition that was read, with its report."""
        return [(owner.report, owner.captured) for owner in self._alive()]

    @property
    def assumed(self) -> AssumedRetention:
        """The topics whose retention may not be that of the broker."""
        return assumed_of(self._resolved.items())

    def shared_logs(self) -> list[SharedLog]:
        """The same logs, for the limits that they share."""
        return [_shared(owner, owner.view) for owner in self._alive()]

    def _find_partitions(self, places: Sequence[Place], locks: Locks) -> None:
        """Every partition: those to be cleaned, which are locked, and the others with the reason.

        Raises:
            DirectoryInUseError: a directory that really holds one of them is in use.
        """
        for place in places:
            partition = place.partition
            report = PartitionReport(
                topic=partition.topic_partition.topic,
                partition=partition.topic_partition.partition,
                log_dir=str(place.log_dir.path),
                status=Status.LEFT_ALONE,
            )
            resolved = self._settings_of(partition, report)
            if resolved is None:
                if report.reason != "not asked for":
                    self.report.partitions.append(report)
                continue
            self.report.partitions.append(report)
            self._resolved[report.topic] = resolved
            damage = self._holds.damage().get(place.log_dir.path)
            refused = place.refused or damage or locks.take_for(place)
            if refused is not None:
                report.status, report.reason = Status.FAILED, refused
                continue
            report.status = Status.UNCHANGED
            report.holds = self._holds.ids(partition.topic_partition, place.log_dir.path)
            if report.holds:
                report.status, report.reason = Status.HELD, ", ".join(report.holds)
            report.policy = ",".join(sorted(resolved.config.cleanup_policy))
            self._owners.append(self._owner_of(place, report, resolved))

    def _owner_of(self, place: Place, report: PartitionReport, resolved: Resolved) -> PartitionRun:
        config = resolved.config
        on_disk = StoppedLog(
            self._offline,
            place.log_dir,
            place.partition,
            config=config,
            origins=resolved.origin,
            holds=report.holds,
        )
        if self.scratch is None:
            return PartitionRun(self._run, on_disk, report=report, config=config)
        measured = MeasuredLog(on_disk, self.scratch, now_ms=self._request.now_ms)
        owner = PartitionRun(self._run, measured, report=report, config=config)
        self._measured[owner] = measured
        return owner

    def _settings_of(self, place: PartitionDir, report: PartitionReport) -> Resolved | None:
        topic = place.topic_partition.topic
        globs = self._request.topics
        if globs and not any(fnmatch.fnmatchcase(topic, glob) for glob in globs):
            report.reason = "not asked for"
            return None
        if place.left_alone is not None:
            report.reason = place.left_alone
            return None
        resolved = self._request.resolve(topic)
        if resolved is None:
            report.reason = (
                "no source describes its settings: --metadata-dir names where the metadata log "
                "is, --config-file and --set have them; --defaults takes Kafka's"
            )
            return None
        report.warnings += resolved.warnings
        if resolved.config.remote_storage_enable:
            report.reason = "tiered storage is on"
            return None
        return resolved

    def _capture_all(self) -> None:
        """Finishes or undoes half-done work, and takes the first view of every partition."""
        started = self._clock.monotonic_s()
        for owner in self._shown("reading partitions", self._owners):
            with owner.guard():
                if not owner.only_reads:
                    owner.recover()
                owner.capture()
                owner.note_before()
        self.report.timing.capture += self._clock.monotonic_s() - started

    def _alive(self) -> list[PartitionRun]:
        return [owner for owner in self._owners if owner.is_alive]

    def _shown(self, phase: str, owners: Sequence[PartitionRun]) -> Iterator[PartitionRun]:
        """The owners, one after the other; the listener follows."""
        self._listener.begin(phase, len(owners))
        for owner in owners:
            yield owner
            self._listener.advance(owner.report.topic)

    # ---- plan

    def is_compaction_due(self) -> bool:
        """Whether anything would be compacted, now or when retention has taken its part."""
        if not self._request.compaction:
            return False
        alive = self._alive()
        if any(owner.is_due for owner in alive):
            return True
        if not self._request.retention or not any(owner.config.compact for owner in alive):
            return False
        return any(
            owner.would_be_due(each.after)
            for owner, each in zip(alive, self._first_checks(), strict=True)
        )

    def _first_checks(self, *, after_ms: int = 0) -> list[CheckPlan]:
        """The plan of a check of retention for each log that is alive; nothing is reported.

        It is the first one, or one that comes `after_ms`.
        """
        logs = self.shared_logs()
        free = free_bytes_of(logs)
        return plan_check_of(
            logs,
            self._request.applied_limits,
            free_bytes=free,
            freeing=free if self.trash is None else (),
            now_ms=self._request.now_ms + after_ms,
        )

    def _note_next_day(self) -> None:
        """Reports what the checks of the next day remove, beyond the first, if nothing changes."""
        now, in_a_day = self._first_checks(), self._first_checks(after_ms=DAY_MS)
        self.report.bytes_next_24h = sum(bytes_of_next_day(now, in_a_day))

    def assumed_retention(self) -> AssumedRetention:
        """The topics of assumed retention from which it would remove records."""
        assumed = self.assumed
        if not assumed or not self._request.retention:
            return AssumedRetention()
        found = {
            owner.report.topic
            for owner, check in zip(self._alive(), self._first_checks(), strict=True)
            if removes_by_time(check, compacts=self._request.compaction and owner.is_due)
        }
        return assumed.among(found)

    def emptied(self) -> Emptied:
        """The topics of which retention leaves nothing."""
        alive = self._alive()
        checks = self._first_checks() if self._request.retention else []
        views = [(owner.view, check.after) for owner, check in zip(alive, checks, strict=False)]
        known = {owner.view.topic_partition for owner in alive}
        return emptied_topics(
            views,
            [
                each.partition.path
                for each in self._places
                if each.partition.topic_partition not in known
            ],
            now_ms=self._request.now_ms,
            clock_ms=self._clock.now_ms(),
        )

    def plan_only(self) -> None:
        """Plans without executing, from views alone."""
        started = self._clock.monotonic_s()
        alive = self._alive()
        now_ms = self._request.now_ms
        checks: dict[int, CheckPlan] = {}
        if self._request.retention:
            planned = plan_check(
                [each.plan_roll() for each in alive],
                lambda views: self._plan_shared(alive, views),
                now_ms=now_ms,
            )
            checks = {id(owner): check for owner, check in zip(alive, planned, strict=True)}
            self._note_next_day()
        for owner in self._shown("planning", alive):
            with owner.guard():
                self._plan_one(owner, checks.get(id(owner)))
        self.report.timing.plan += self._clock.monotonic_s() - started

    def _plan_shared(
        self, owners: Sequence[PartitionRun], views: Sequence[LogView]
    ) -> list[RetentionPlan]:
        """The plan of the limits that logs share, for each of the owners."""
        limits = self._request.applied_limits
        known = self.report.warnings
        known += [each for each in self._request.limits_warnings if each not in known]
        logs = [_shared(owner, view) for owner, view in zip(owners, views, strict=True)]
        free_bytes: dict[str, int] = {}
        if limits.free_bytes_min >= 0:
            free_bytes = free_bytes_of(logs)
            if self._request.dry_run and self.trash is None:
                # What a run would have removed before is still there.
                for owner, view in zip(owners, views, strict=True):
                    before = owner.report.before
                    freed = before.bytes - view.size_bytes if before is not None else 0
                    free_bytes[owner.report.log_dir] += freed
        return plan_shared_retention(
            logs, limits, free_bytes=free_bytes, now_ms=self._request.now_ms
        )

    def _plan_one(self, owner: PartitionRun, check: CheckPlan | None) -> None:
        after, plan = owner.view, None
        if check is not None:
            after, plan = check.after, check.plan
            owner.note_retention(plan)
        cleanable = compaction = None
        if self._request.compaction and owner.config.compact and not (plan and plan.roll):
            cleanable = plan_cleanable(
                after, now_ms=self._request.now_ms, force=self._request.force
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
        started = self._clock.monotonic_s()
        for owner, captured, plan in self._due:
            compaction = prepare_compaction(
                captured, plan, now_ms=self._request.now_ms, seed=owner.attempt().seed
            )
            try:
                owner.report.estimate = estimator(compaction)
            except (CordwoodError, OSError) as error:
                owner.report.warnings.append(f"what its compaction would free is unknown: {error}")
        self.report.timing.estimate += self._clock.monotonic_s() - started

    # ---- execute and commit

    def execute(self, engine: EngineFactory) -> None:
        """Retention, compaction, retention, until nothing more changes.

        What is measured beside a broker that changes its segments meanwhile is measured again.
        """
        try:
            with ExitStack() as stack:
                started = StartedEngine(engine, stack, self._clock, self.report.timing)
                self._execute(self._alive(), started)
                for _ in range(_MEASUREMENTS_MAX - 1):
                    moved = self._moved()
                    for owner in moved:
                        self._measured[owner].start_again()
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
            for committer in self._run.interrupted:
                with suppress(OSError, NoSpaceError):
                    committer.clear()

    def _moved(self) -> list[PartitionRun]:
        """The owners whose segments are no longer what was measured."""
        return [owner for owner, measured in self._measured.items() if measured.has_moved()]

    def _execute(self, pending: list[PartitionRun], engine: StartedEngine) -> None:
        for owner in pending:
            with owner.guard():
                owner.restart_lost_log()
        for number in range(_PASSES_MAX):
            # Their retention comes after the compaction, which may turn out to be stale.
            interrupted = [owner for owner in pending if owner.is_interrupted]
            if self._request.retention:
                self._retain(pending)
                if not number:  # what was moved to a trash does not get free
                    self._retain_shared()
            if not self._request.compaction:
                break
            changed = {*self._compact(pending, engine), *interrupted}
            pending = [each for each in pending if each in changed and not each.failed]
            if not pending:
                break

    def _retain(self, owners: Sequence[PartitionRun]) -> None:
        """Retention of all but those of which an interrupted compaction is continued first."""
        owners = [each for each in owners if not each.failed and not each.is_interrupted]
        for owner in self._shown("retention", owners):
            begun = self._clock.monotonic_s()
            with owner.guard():
                retain(owner, now_ms=self._request.now_ms)
            planned = max(begun, owner.planned_s)
            self.report.timing.plan += planned - begun
            self.report.timing.commit += self._clock.monotonic_s() - planned

    def _retain_shared(self) -> None:
        """Applies the limits that logs share; those that were interrupted or failed only count."""
        owners = self._alive()
        plans = self._plan_shared(owners, [each.view for each in owners])
        for owner, plan in zip(owners, plans, strict=True):
            if plan.expired:
                with owner.guard():
                    owner.note_retention(plan)
                    owner.delete(plan)
                    # What went may have held back the log's own rules.
                    retain(owner, now_ms=self._request.now_ms)

    def _compact(
        self, pending: Sequence[PartitionRun], engine: StartedEngine
    ) -> list[PartitionRun]:
        owners = [
            owner
            for owner in pending
            if not owner.failed and (owner.config.compact or owner.is_interrupted)
        ]
        begun = self._clock.monotonic_s()
        runs = engine.runs
        compacted = compact(
            self._shown("planning", owners),
            engine.start,
            now_ms=self._request.now_ms,
            arranged=self._arranged,
        )
        ended = self._clock.monotonic_s()
        if engine.runs == runs:
            self.report.timing.plan += ended - begun
        else:
            self.report.timing.plan += engine.begun_s - begun
            self.report.timing.commit += ended - engine.ended_s
        return compacted

    def _arranged(self, work: list[Planned[PartitionRun]]) -> list[Planned[PartitionRun]]:
        """Compactions in the order of the request; measured ones free nothing, in any order."""
        if self._request.measured:
            return work
        by_partition = {owner.view.topic_partition: (owner, planned) for owner, planned in work}
        due = [_due_log(owner, planned, self._request) for owner, planned in work]
        ranked = CleaningSchedule(self._request.order).ranked(due)
        return [by_partition[each.partition] for each in ranked]

    def finish(self) -> None:
        """Checkpoints of log start offsets, and the sizes after."""
        begun = self._clock.monotonic_s()
        if self._request.measured or not self._request.dry_run:
            for owner in self._owners:
                with owner.guard():
                    owner.end()
        self.report.timing.commit += self._clock.monotonic_s() - begun


def _due_log(owner: PartitionRun, committer: CompactionCommitter, request: CleanRequest) -> DueLog:
    """A log as the schedule takes it; nobody else changes it."""
    compaction = committer.compaction
    return DueLog(
        partition=owner.view.topic_partition,
        cleanable=plan_cleanable(owner.view, now_ms=request.now_ms, force=request.force),
        identity=None,
        segments=lambda: compaction.segments,
        batch_bytes_max=compaction.batch_bytes_max,
    )


def _shared(owner: PartitionRun, view: LogView) -> SharedLog:
    return SharedLog(
        view=view,
        log_dir=owner.report.log_dir,
        is_deletable=not owner.is_interrupted,
        may_roll=owner.may_roll,
    )


def free_bytes_of(logs: Sequence[SharedLog]) -> dict[str, int]:
    """The free space of each log directory that has one of these logs."""
    return {path: OS.free_bytes(Path(path)) for path in {each.log_dir for each in logs}}
