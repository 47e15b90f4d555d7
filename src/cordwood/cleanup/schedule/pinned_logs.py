"""The logs of whole log directories, found, locked and pinned: what a cleaning plans on."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from cordwood.cleanup.access.measured_log import MeasuredLog
from cordwood.cleanup.access.offline.directories import (
    Locks,
    Place,
    find_places,
    open_log_dirs,
)
from cordwood.cleanup.access.offline.groups import OfflineGroups
from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory, PartitionDir
from cordwood.cleanup.access.offline.run import OfflineRun
from cordwood.cleanup.access.owned_logs import is_archived, owned_log
from cordwood.cleanup.plan.assumed_retention import AssumedRetention, assumed_of, removes_by_time
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.check_plan import (
    CheckPlan,
    plan_check_of,
)
from cordwood.cleanup.plan.emptied import Emptied, emptied_topics
from cordwood.cleanup.plan.named_topics import missing_topics
from cordwood.cleanup.plan.report import PartitionReport, Report, Status
from cordwood.cleanup.plan.request import CleanRequest, Listener, Resolved
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.retention import RetentionPlan
from cordwood.cleanup.rules.shared_retention import (
    SharedLog,
    plan_shared_retention,
)
from cordwood.cleanup.schedule.partition_run import PartitionRun, Run
from cordwood.model.clock import Clock
from cordwood.model.errors import ConfigError
from cordwood.storage.filesystem import OS
from cordwood.storage.holds import HoldRegistry
from cordwood.storage.tiered.mount import is_tiered
from cordwood.storage.trash import Trash

# Threads that remove old segments: they wait for the disk.
REMOVERS = 2

# Logs of an archive that are read at a time: each waits for answers.
_REQUESTS_MAX = 16


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


class PinnedLogs:
    """The logs of one run over log directories, each pinned for planners, and its report.

    `measured` are those whose changes are only predicted.
    """

    def __init__(
        self, request: CleanRequest, clock: Clock, listener: Listener, remover: Executor
    ) -> None:
        self.request = request
        self.clock = clock
        self._listener = listener
        self.owners: list[PartitionRun] = []
        self._resolved: dict[str, Resolved] = {}
        self._holds = HoldRegistry(OS)
        self.measured: dict[PartitionRun, MeasuredLog] = {}
        self._places: Sequence[Place] = ()
        self.scratch: Path | None = None
        if request.trash is not None and any(map(OS.is_mounted, request.log_dirs)):
            raise ConfigError(
                "--trash: an archive has none. What a cleaning removes stays in object storage, "
                "until garbage is collected that no manifest has named for a day"
            )
        if not request.dry_run and any(map(is_tiered, request.log_dirs)):
            raise ConfigError(
                "nothing is cleaned by tiered:// URLs: remote segments are only read. Give the log "
                "directory itself, of which tiered logs are left alone"
            )
        self.trash = None if request.trash is None else Trash(request.trash)
        self.report = Report(
            now_ms=request.now_ms, dry_run=request.dry_run, measured=request.measured
        )
        self.run = Run(request=request, clock=clock, report=self.report)
        self._offline = OfflineRun(
            clock=clock,
            now_ms=request.now_ms,
            remover=remover,
            only_reads=request.dry_run,
            for_reading=request.for_reading,
            producer_expiration_ms=request.producer_expiration_ms,
            metadata_version=request.metadata_version,
            trash=self.trash,
            compared_with=request.compared_config,
            warnings=self.report.warnings,
        )

    # ---- pin

    def read(self, log_dirs: Sequence[OfflineLogDirectory], locks: Locks) -> None:
        """Finds the partitions, and takes the first view of every one. Raises as `clean`."""
        self._holds.read(log_dir.path for log_dir in log_dirs)
        self._places = places = find_places(log_dirs)
        self._offline.groups = offline_groups(self.request, places)
        self._offline.in_use = self.report.in_use = locks.in_use
        self.report.warnings += missing_topics(
            {place.partition.topic_partition.topic for place in places}, self.request
        )
        self._find_partitions(places, locks)
        if self.trash is not None:
            paths = [each.path for each in log_dirs]
            on_disk = self.trash.prepare(paths, read_only=self.request.dry_run)
            self.report.warnings += on_disk
            self.report.trash_on_disk = str(self.trash.directory) if on_disk else None
            if not self.request.dry_run:
                locks.take(self.trash.directory)  # its notes are rewritten
        self._capture_all()

    @property
    def groups(self) -> OfflineGroups:
        """The committed offsets in the directories."""
        return self._offline.groups

    def captured(self) -> list[tuple[PartitionReport, Captured]]:
        """Every partition that was read, with its report."""
        return [(owner.report, owner.captured) for owner in self.alive()]

    @property
    def assumed(self) -> AssumedRetention:
        """The topics whose retention may not be that of the broker."""
        return assumed_of(self._resolved.items())

    def shared_logs(self) -> list[SharedLog]:
        """The same logs, for the limits that they share."""
        return [_shared(owner, owner.view) for owner in self.alive()]

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
            self.owners.append(self._owner_of(place, report, resolved))

    def _owner_of(self, place: Place, report: PartitionReport, resolved: Resolved) -> PartitionRun:
        config = resolved.config
        on_disk = owned_log(
            self._offline,
            place,
            config=config,
            scratch=self.scratch,
            stages_there=self.request.stages_in_archive and not self.request.measured,
            origins=resolved.origin,
            holds=report.holds,
        )
        if not self.request.measured or self.scratch is None:
            return PartitionRun(self.run, on_disk, report=report, config=config)
        measured = MeasuredLog(on_disk, self.scratch, now_ms=self.request.now_ms)
        owner = PartitionRun(self.run, measured, report=report, config=config)
        self.measured[owner] = measured
        return owner

    def _settings_of(self, place: PartitionDir, report: PartitionReport) -> Resolved | None:
        topic = place.topic_partition.topic
        globs = self.request.topics
        if globs and not any(fnmatch.fnmatchcase(topic, glob) for glob in globs):
            report.reason = "not asked for"
            return None
        if place.left_alone is not None:
            report.reason = place.left_alone
            return None
        resolved = self.request.resolve(topic)
        if resolved is None:
            report.reason = (
                "no source describes its settings: --metadata-dir names where the metadata log "
                "is, --config-file and --set have them; --defaults takes Kafka's"
            )
            return None
        report.warnings += resolved.warnings
        if resolved.config.remote_storage_enable and not is_tiered(place.path):
            report.reason = (
                "tiered storage is on; tiered:///LOG_DIR?remote-dir=DIR reads such a log as a whole"
            )
            return None
        return resolved

    def _capture_all(self) -> None:
        """Finishes or undoes half-done work, and takes the first view of every partition."""
        started = self.clock.monotonic_s()
        with ThreadPoolExecutor(_REQUESTS_MAX, thread_name_prefix="archive") as pool:
            asked = {
                owner: pool.submit(_capture, owner)
                for owner in self.owners
                if is_archived(Path(owner.report.log_dir))
                and not owner.config.cordwood_retention_groups  # which all logs share
            }
            for owner in self.shown("reading partitions", self.owners):
                if owner in asked:
                    asked[owner].result()
                else:
                    _capture(owner)
        self.report.timing.capture += self.clock.monotonic_s() - started

    def alive(self) -> list[PartitionRun]:
        """The logs that were captured, and of which nothing failed."""
        return [owner for owner in self.owners if owner.is_alive]

    def shown(self, phase: str, owners: Sequence[PartitionRun]) -> Iterator[PartitionRun]:
        """The owners, one after the other; the listener follows."""
        self._listener.begin(phase, len(owners))
        for owner in owners:
            yield owner
            self._listener.advance(owner.report.topic)

    def is_compaction_due(self) -> bool:
        """Whether anything would be compacted, now or when retention has taken its part."""
        if not self.request.compaction:
            return False
        alive = self.alive()
        if any(owner.is_due for owner in alive):
            return True
        if not self.request.retention or not any(owner.config.compact for owner in alive):
            return False
        return any(
            owner.would_be_due(each.after)
            for owner, each in zip(alive, self.first_checks(), strict=True)
        )

    def first_checks(self, *, after_ms: int = 0) -> list[CheckPlan]:
        """The plan of a check of retention for each log that is alive; nothing is reported.

        It is the first one, or one that comes `after_ms`.
        """
        logs = self.shared_logs()
        free = free_bytes_of(logs)
        return plan_check_of(
            logs,
            self.request.applied_limits,
            free_bytes=free,
            freeing=free if self.trash is None else (),
            now_ms=self.request.now_ms + after_ms,
        )

    def assumed_retention(self) -> AssumedRetention:
        """The topics of assumed retention from which it would remove records."""
        assumed = self.assumed
        if not assumed or not self.request.retention:
            return AssumedRetention()
        found = {
            owner.report.topic
            for owner, check in zip(self.alive(), self.first_checks(), strict=True)
            if removes_by_time(check, compacts=self.request.compaction and owner.is_due)
        }
        return assumed.among(found)

    def emptied(self) -> Emptied:
        """The topics of which retention leaves nothing."""
        alive = self.alive()
        checks = self.first_checks() if self.request.retention else []
        views = [(owner.view, check.after) for owner, check in zip(alive, checks, strict=False)]
        known = {owner.view.topic_partition for owner in alive}
        return emptied_topics(
            views,
            [
                each.partition.path
                for each in self._places
                if each.partition.topic_partition not in known
            ],
            now_ms=self.request.now_ms,
            clock_ms=self.clock.now_ms(),
        )

    def plan_shared(
        self, owners: Sequence[PartitionRun], views: Sequence[LogView]
    ) -> list[RetentionPlan]:
        """The plan of the limits that logs share, for each of the owners."""
        limits = self.request.applied_limits
        known = self.report.warnings
        known += [each for each in self.request.limits_warnings if each not in known]
        logs = [_shared(owner, view) for owner, view in zip(owners, views, strict=True)]
        free_bytes: dict[str, int] = {}
        if limits.free_bytes_min >= 0:
            free_bytes = free_bytes_of(logs)
            if self.request.dry_run and self.trash is None:
                # What a run would have removed before is still there.
                for owner, view in zip(owners, views, strict=True):
                    before = owner.report.before
                    freed = before.bytes - view.size_bytes if before is not None else 0
                    free_bytes[owner.report.log_dir] += freed
        return plan_shared_retention(
            logs, limits, free_bytes=free_bytes, now_ms=self.request.now_ms
        )


def _capture(owner: PartitionRun) -> None:
    with owner.guard():
        if not owner.only_reads:
            owner.recover()
        owner.capture()
        owner.note_before()


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
