"""The cleaning of whole log directories: capture, plan, execute, commit, in that order.

Retention is committed for every partition, and its space free, before compaction starts; then
retention runs again, until nothing more changes. A round that an earlier run left half done is
finished first, as that run had planned it. What goes wrong with one partition is written down, and
the others continue.
"""

from __future__ import annotations

import fnmatch
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cordwood.cleanup.capture import Captured, capture_offline
from cordwood.cleanup.cleanable import Cleanable, plan_cleanable
from cordwood.cleanup.commit import CompactionCommitter
from cordwood.cleanup.compaction import CompactionPlan, plan_compaction
from cordwood.cleanup.log_compaction import LogCompaction, limited, prepare_compaction
from cordwood.cleanup.named_topics import missing_topics
from cordwood.cleanup.offline_commit import (
    OfflinePlacement,
    commit_checkpoints,
    commit_retention,
    finish_round,
    restart_log,
)
from cordwood.cleanup.places import Locks, Place, find_places, locked, open_log_dirs
from cordwood.cleanup.report import PartitionReport, Report, Size, Status
from cordwood.cleanup.request import CleanRequest, Engine, EngineFactory, Listener, Silence
from cordwood.cleanup.retention import RetentionPlan, plan_retention
from cordwood.format.file_names import CLEANER_OFFSET_CHECKPOINT
from cordwood.model.clock import Clock
from cordwood.model.config import LogConfig
from cordwood.model.errors import CordwoodError, CorruptError, EngineError, NoSpaceError
from cordwood.storage.filesystem import OS
from cordwood.storage.log.offline_log import load_offline_log
from cordwood.storage.log_dir import LogDir, PartitionDir, require_closed
from cordwood.storage.replace import JOURNAL_NAME, recover_directory
from cordwood.storage.reread import reread
from cordwood.storage.trash import Trash

_PASSES_MAX = 8


@dataclass(slots=True)
class _Target:
    """One partition of the run."""

    log_dir: LogDir
    place: PartitionDir
    report: PartitionReport
    config: LogConfig
    captured: Captured | None = None
    resumed: LogCompaction | None = None
    changed: bool = False
    discarded_records: int | None = None
    records_before: int | None = None

    @property
    def failed(self) -> bool:
        return self.report.status in {Status.FAILED, Status.NO_SPACE}

    def fail(self, error: Exception) -> None:
        no_space = isinstance(error, NoSpaceError)
        self.report.status = Status.NO_SPACE if no_space else Status.FAILED
        self.report.reason = str(error)


def clean(
    request: CleanRequest,
    engine: EngineFactory,
    *,
    clock: Clock,
    require_engine: Callable[[], None] = lambda: None,
    listener: Listener | None = None,
) -> Report:
    """Cleans log directories, each under its lock.

    A dry run takes no lock and changes nothing: it looks at directories that a broker runs on, too.

    Args:
        request: what is to be done.
        engine: starts what runs rounds; called only when there is something to compact.
        clock: for timings.
        require_engine: called before anything is touched when there is something to compact.
        listener: receives the progress.

    Raises:
        ConfigError: no topic has a name that was asked for, or the trash cannot be used.
        DirectoryInUseError: a broker, or another cleaning, runs on a directory.
        NotALogDirError: a directory is not Kafka's.
        EngineError: there is something to compact and the engine is unavailable.
    """
    started = clock.monotonic_s()
    run = _Run(request, clock, listener or Silence())
    log_dirs = open_log_dirs(request.log_dirs)
    with locked(log_dirs, dry_run=request.dry_run) as locks:
        places = find_places(log_dirs)
        run.report.warnings += missing_topics(
            {place.partition.topic_partition.topic for place in places}, request
        )
        run.find_targets(places, locks)
        run.report.in_use = locks.in_use
        if run.trash is not None:
            paths = [each.path for each in log_dirs]
            run.report.warnings += run.trash.prepare(paths, read_only=request.dry_run)
        run.capture_all()
        if not request.dry_run and run.rounds_wanted():
            require_engine()
        if request.dry_run:
            run.plan_only()
        else:
            run.execute(engine)
        run.finish()
    run.report.timing.total = clock.monotonic_s() - started
    return run.report


class _Run:
    """One call of `clean`."""

    def __init__(self, request: CleanRequest, clock: Clock, listener: Listener) -> None:
        self._request = request
        self._clock = clock
        self._listener = listener
        self._targets: list[_Target] = []
        self._interrupted: list[CompactionCommitter] = []
        self.trash = None if request.trash is None else Trash(request.trash)
        self.report = Report(now_ms=request.now_ms, dry_run=request.dry_run)

    # ---- capture

    def find_targets(self, places: Sequence[Place], locks: Locks) -> None:
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
            config = self._config_of(partition, report)
            if config is None:
                if report.reason != "not asked for":
                    self.report.partitions.append(report)
                continue
            self.report.partitions.append(report)
            refused = place.refused or locks.take_for(place)
            if refused is not None:
                report.status, report.reason = Status.FAILED, refused
                continue
            report.status = Status.UNCHANGED
            report.policy = ",".join(sorted(config.cleanup_policy))
            self._targets.append(
                _Target(log_dir=place.log_dir, place=partition, report=report, config=config)
            )

    def _config_of(self, place: PartitionDir, report: PartitionReport) -> LogConfig | None:
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
                "no source describes its settings (metadata log, --config-file, --set); "
                "--defaults applies Kafka's defaults"
            )
            return None
        report.warnings += resolved.warnings
        if resolved.config.remote_storage_enable:
            report.reason = "tiered storage is on"
            return None
        return resolved.config

    def capture_all(self) -> None:
        """Finishes or undoes half-done work, and takes the first view of every partition."""
        started = self._clock.monotonic_s()
        self._listener.begin("reading partitions", len(self._targets))
        for target in self._targets:
            with self._guard(target):
                if not self._request.dry_run:
                    self._recover(target)
                self._capture(target)
                if target.captured is None:
                    continue
                view = self._view(target)
                target.report.before = Size(segments=len(view.segments), bytes=view.size_bytes)
            self._listener.advance(target.report.topic)
        self.report.timing.capture += self._clock.monotonic_s() - started

    def _recover(self, target: _Target) -> None:
        found = recover_directory(target.place.path, dispose=self.trash)
        target.report.warnings += [
            f"{change} (an earlier run was interrupted)" for change in found.changes
        ]
        if found.plan is None:
            return
        target.resumed = replace(
            _round_of(found.plan, target.place.path),
            groups_done=found.groups_done,
            before=found.after or [[], []],
        )

    def _capture(self, target: _Target) -> None:
        if not self._request.dry_run:
            target.captured = self._captured(target)
        else:
            try:
                target.captured = reread(
                    lambda: self._captured(target), directory=target.place.path
                )
            except FileNotFoundError:
                if target.place.path.exists():
                    raise
                target.report.status = Status.LEFT_ALONE
                target.report.reason = "it was deleted while it was being read"
                return
        for warning in target.captured.warnings:
            if warning not in target.report.warnings:
                target.report.warnings.append(warning)

    def _captured(self, target: _Target) -> Captured:
        checkpoints, warnings = target.log_dir.checkpoints()
        for warning in warnings:
            if warning not in self.report.warnings:
                self.report.warnings.append(warning)
        offline = load_offline_log(
            target.place.path,
            target.place.topic_partition,
            config=target.config,
            checkpoints=checkpoints,
            clean_shutdown=target.log_dir.clean_shutdown or target.log_dir.meta is None,
            producer_expiration_ms=self._request.producer_expiration_ms,
            now_ms=self._request.now_ms,
        )
        captured = capture_offline(
            offline, cleaner_checkpoint=checkpoints.cleaner.get(target.place.topic_partition)
        )
        if not self._request.dry_run:  # after all that could be refused
            offline.repair()
        return captured

    def _view(self, target: _Target) -> Any:
        assert target.captured is not None, "a view is asked for before the capture"
        return target.captured.view

    @contextmanager
    def _guard(self, target: _Target) -> Iterator[None]:
        """Records the error of one partition, so that the others continue."""
        try:
            yield
        except (CordwoodError, OSError) as error:
            target.fail(error)

    # ---- plan

    def _alive(self) -> list[_Target]:
        return [t for t in self._targets if not t.failed and t.captured is not None]

    def rounds_wanted(self) -> bool:
        """Whether anything would be compacted, before retention takes its part."""
        if not self._request.compaction:
            return False
        return any(
            target.resumed is not None
            or (target.config.compact and self._cleanable(target).reason is None)
            for target in self._alive()
        )

    def _cleanable(self, target: _Target) -> Cleanable:
        return plan_cleanable(
            self._view(target), now_ms=self._request.now_ms, force=self._request.force
        )

    def plan_only(self) -> None:
        """Plans without executing, from views alone."""
        started = self._clock.monotonic_s()
        targets = self._alive()
        self._listener.begin("planning", len(targets))
        for target in targets:
            with self._guard(target):
                self._plan_one(target)
            self._listener.advance(target.report.topic)
        self.report.timing.plan += self._clock.monotonic_s() - started

    def _plan_one(self, target: _Target) -> None:
        view = self._view(target)
        plan = None
        after = view
        if self._request.retention:
            plan = plan_retention(view, now_ms=self._request.now_ms)
            after = replace(
                view,
                segments=tuple(view.segments[len(plan.expired) :]) or view.segments[-1:],
                log_start_offset=plan.log_start_offset,
            )
            self._note_retention(target, plan)
        cleanable = compaction = None
        if self._request.compaction and target.config.compact and not (plan and plan.roll):
            cleanable = plan_cleanable(
                after, now_ms=self._request.now_ms, force=self._request.force
            )
            if cleanable.reason is None:
                compaction = plan_compaction(after, cleanable)
        freed = plan.bytes_freed if plan else 0
        before = target.report.before
        assert before is not None, "a plan is made of what was captured"
        target.report.after = Size(
            segments=before.segments - (len(plan.expired) - plan.roll if plan else 0),
            bytes=before.bytes - freed,
        )
        if (plan and plan.expired) or compaction:
            target.report.status = Status.PLANNED
        self._note_plan(target, plan, cleanable, compaction)

    def _note_retention(self, target: _Target, plan: RetentionPlan) -> None:
        target.report.warnings += [w for w in plan.warnings if w not in target.report.warnings]
        target.report.expired += [
            {"base_offset": e.base_offset, "bytes": e.size_bytes, "rule": e.rule, "text": e.text}
            for e in plan.expired
        ]

    def _note_plan(
        self,
        target: _Target,
        retention: RetentionPlan | None,
        cleanable: Cleanable | None,
        compaction: CompactionPlan | None,
    ) -> None:
        entry: dict[str, Any] = {
            "topic": target.report.topic,
            "partition": target.report.partition,
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
            if cleanable.reason and not target.report.reason:
                target.report.reason = f"not compacted: {cleanable.reason}"
        self.report.plan.append(entry)

    # ---- execute and commit

    def execute(self, engine: EngineFactory) -> None:
        """Retention, compaction, retention, until nothing more changes."""
        pending = self._alive()
        started_engine: AbstractContextManager[Engine] | None = None
        running: Engine | None = None
        try:
            for number in range(_PASSES_MAX):
                if number == 0:
                    self._restart_lost_logs(pending)
                resumed = [t for t in pending if t.resumed is not None and not t.failed]
                fresh = [t for t in pending if t.resumed is None]
                if self._request.retention:
                    self._retain(fresh)
                rounds = self._rounds(fresh) if self._request.compaction else []
                if self._request.compaction:
                    rounds = self._resumed_rounds(resumed) + rounds
                if not rounds:
                    break
                if running is None:
                    begun = self._clock.monotonic_s()
                    started_engine = engine()
                    running = started_engine.__enter__()
                    self.report.timing.session += self._clock.monotonic_s() - begun
                self._compact(rounds, running)
                pending = [t for t, _ in rounds if not t.failed]
        finally:
            if started_engine is not None:
                started_engine.__exit__(None, None, None)
            # A stopped task may have written one more file before the engine ended.
            for committer in self._interrupted:
                committer.clear()

    def _restart_lost_logs(self, targets: Sequence[_Target]) -> None:
        for target in targets:
            assert target.captured is not None, "captured above"
            offset = target.captured.beyond_end
            if offset is None or target.failed:
                continue
            with self._guard(target):
                restart_log(target.captured, offset, dispose=self.trash)
                target.changed = True
                self._capture(target)

    def _retain(self, targets: Sequence[_Target]) -> None:
        self._listener.begin("retention", len(targets))
        for target in targets:
            with self._guard(target):
                begun = self._clock.monotonic_s()
                assert target.captured is not None, "captured above"
                plan = plan_retention(self._view(target), now_ms=self._request.now_ms)
                self._note_retention(target, plan)
                planned = self._clock.monotonic_s()
                self.report.timing.plan += planned - begun
                if plan.expired:
                    require_closed(target.place.path)
                    commit_retention(target.captured, plan, dispose=self.trash)
                    target.changed = True
                    self._note_plan(target, plan, None, None)
                    self._capture(target)
                self.report.timing.commit += self._clock.monotonic_s() - planned
            self._listener.advance(target.report.topic)

    def _rounds(self, targets: Sequence[_Target]) -> list[tuple[_Target, LogCompaction]]:
        begun = self._clock.monotonic_s()
        rounds = []
        wanted = [each for each in targets if each.config.compact and not each.failed]
        self._listener.begin("planning", len(wanted))
        for target in wanted:
            self._listener.advance(target.report.topic)
            with self._guard(target):
                assert target.captured is not None, "captured above"
                cleanable = self._cleanable(target)
                target.report.warnings += [
                    w for w in cleanable.warnings if w not in target.report.warnings
                ]
                if cleanable.reset_checkpoint:
                    target.log_dir.set_checkpoint(
                        CLEANER_OFFSET_CHECKPOINT,
                        target.place.topic_partition,
                        cleanable.first_dirty,
                    )
                if cleanable.reason is not None:
                    if not target.changed:
                        target.report.reason = f"not compacted: {cleanable.reason}"
                    continue
                plan = plan_compaction(self._view(target), cleanable)
                compaction = prepare_compaction(
                    target.captured,
                    plan,
                    now_ms=self._request.now_ms,
                    seed=secrets.randbits(127),
                )
                self._note_plan(target, None, cleanable, plan)
                rounds.append((target, self._limited(compaction)))
        self.report.timing.plan += self._clock.monotonic_s() - begun
        return rounds

    def _limited(self, compaction: LogCompaction) -> LogCompaction:
        return limited(
            compaction,
            attempt=secrets.token_hex(4),
            free_bytes=OS.free_bytes(Path(compaction.directory)),
            space_max=self._request.max_extra_bytes,
            throttle_bytes=self._request.throttle_bytes,
            verify=self._request.verify,
        )

    def _resumed_rounds(self, targets: Sequence[_Target]) -> list[tuple[_Target, LogCompaction]]:
        """Rounds of an earlier run, where what is left of them is still as it was planned."""
        rounds = []
        for target in targets:
            compaction, target.resumed = target.resumed, None
            assert compaction is not None, "asked for only where a round was found"
            assert target.captured is not None, "captured above"
            if _still_holds(compaction, target.captured):
                rounds.append((target, self._limited(compaction)))
            else:
                with self._guard(target):
                    self._committer(compaction).close()
                    target.report.warnings.append(
                        "an earlier run's round was dropped: the log has changed since then"
                    )
                rounds += self._rounds([target])
        return rounds

    def _compact(self, rounds: Sequence[tuple[_Target, LogCompaction]], engine: Engine) -> None:
        begun = self._clock.monotonic_s()
        committers = [(target, self._committer(compaction)) for target, compaction in rounds]
        try:
            engine.run([committer for _, committer in committers])
        except EngineError as error:
            for _, committer in committers:
                committer.result.error = committer.result.error or error
        except KeyboardInterrupt:
            self._interrupted = [committer for _, committer in committers]
            for committer in self._interrupted:
                committer.clear()
            raise
        finally:
            executed = self._clock.monotonic_s()
            self.report.timing.execute += executed - begun
        for target, committer in committers:
            with self._guard(target):
                self._settle(target, committer)
        self.report.timing.commit += self._clock.monotonic_s() - executed

    def _committer(self, compaction: LogCompaction) -> CompactionCommitter:
        directory = Path(compaction.directory)
        return CompactionCommitter(compaction, OfflinePlacement(directory, dispose=self.trash))

    def _settle(self, target: _Target, committer: CompactionCommitter) -> None:
        result = committer.result
        target.changed = target.changed or any(not m.unchanged for m in result.manifests)
        target.report.discarded = target.report.discarded.plus(result.discarded)
        if not committer.done:
            committer.close()
            target.fail(
                result.error or EngineError("the engine stopped before the end of the round")
            )
            return
        finish_round(committer, target.log_dir, target.place.topic_partition)
        target.changed = True
        target.report.reason = ""
        before = sum(m.records_before for m in result.manifests)
        after = sum(m.records_after for m in result.manifests)
        if target.records_before is None:
            target.records_before = before
        target.discarded_records = (target.discarded_records or 0) + before - after
        self._capture(target)

    def finish(self) -> None:
        """Checkpoints of log start offsets, and the sizes after."""
        begun = self._clock.monotonic_s()
        for target in self._targets:
            if target.captured is None or self._request.dry_run:
                continue
            with self._guard(target):
                if not target.failed:
                    commit_checkpoints(target.log_dir, target.captured)
                else:
                    self._capture_again(target)
                self._note_after(target)
        self.report.timing.commit += self._clock.monotonic_s() - begun

    def _capture_again(self, target: _Target) -> None:
        """Sizes of a partition that failed, if it can be read at all."""
        status, reason = target.report.status, target.report.reason
        try:
            self._capture(target)
        except (CordwoodError, OSError):
            target.captured = None
        target.report.status, target.report.reason = status, reason

    def _note_after(self, target: _Target) -> None:
        report = target.report
        if target.captured is None:
            return
        view = target.captured.view
        records = None
        if target.records_before is not None and report.before is not None:
            report.before = replace(report.before, records=target.records_before)
            records = target.records_before - (target.discarded_records or 0)
        report.after = Size(segments=len(view.segments), bytes=view.size_bytes, records=records)
        report.cleaner_checkpoint = target.log_dir.checkpoints()[0].cleaner.get(
            target.place.topic_partition
        )
        if target.changed and not target.failed:
            report.status = Status.CLEANED


def _round_of(plan: dict[str, Any], directory: Path) -> LogCompaction:
    """The round that a journal names, in the directory where it lies now.

    Raises:
        CorruptError: it is none.
    """
    try:
        return LogCompaction.from_json(plan).in_directory(directory)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(
            f"not a round's plan ({error}); remove it to have the round planned again",
            path=str(directory / JOURNAL_NAME),
        ) from error


def _still_holds(compaction: LogCompaction, captured: Captured) -> bool:
    """Whether the groups left of a round are still what it was planned on."""
    now = {s.base_offset: (s.size_bytes, s.modified_ns) for s in captured.sources}
    left = {base for group in compaction.groups[compaction.groups_done :] for base in group}
    return all(
        now.get(s.base_offset) == (s.size_bytes, s.modified_ns)
        for s in compaction.segments
        if s.base_offset in left
    )
