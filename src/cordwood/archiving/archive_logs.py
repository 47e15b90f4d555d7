"""Archives the logs of directories: plans each, copies its new segments, commits its manifest.

A broker may run on the directories: its files are only read. A run that breaks off leaves what it
has committed, and objects that nothing refers to; the next one continues behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.archiving.copied_files import FileCopier, RateLimit, WantedFile
from cordwood.archiving.local_logs import (
    end_snapshot,
    files_of,
    first_batch_timestamp,
    local_log,
    log_id,
    metadata_files,
)
from cordwood.archiving.plan import ArchivePlan, LocalLog, plan_archive
from cordwood.archiving.report import (
    ArchivedPartition,
    ArchiveReport,
    ArchiveRequest,
    ArchiveStatus,
    ByteListener,
    Silent,
)
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.report import PartitionReport, Status
from cordwood.cleanup.schedule.survey import survey
from cordwood.format.file_names import (
    BOOTSTRAP_CHECKPOINT,
    CLEAN_SHUTDOWN,
    CLUSTER_METADATA_DIR,
    META_PROPERTIES,
)
from cordwood.model.clock import Clock
from cordwood.model.errors import CordwoodError
from cordwood.model.rng import Rng
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import uuid_text
from cordwood.storage.archives.archive import Archive, ManifestConflictError
from cordwood.storage.archives.manifest import (
    DIRECTORY,
    ArchivedFile,
    ArchivedLogId,
    ArchivedSegment,
    ArchiveManifest,
)
from cordwood.storage.filesystem import OS, FileSystem

#: The logs that are copied at a time.
_COPIES_MAX: Final = 4
#: A manifest is committed after these bytes at the latest: a run that breaks off loses no more.
_COMMIT_BYTES: Final = 4 << 30
_RUN_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class _Planned:
    log: ArchivedLogId
    directory: Path
    archived: ArchiveManifest | None
    local: LocalLog
    plan: ArchivePlan
    report: ArchivedPartition


def archive_logs(
    request: ArchiveRequest,
    archive: Archive,
    *,
    clock: Clock,
    rng: Rng,
    listener: ByteListener | None = None,
    fs: FileSystem = OS,
) -> ArchiveReport:
    """Archives the logs of directories; what goes wrong with one of them is in the report.

    Args:
        request: which logs, and how.
        archive: where to.
        clock: for the manifests, and the rate.
        rng: draws the part of keys of this run.
        listener: receives the progress.
        fs: where the directories are.

    Raises:
        ConfigError: no topic has a name that was asked for.
        CorruptError: a manifest cannot be understood.
        NotALogDirError: a directory is not Kafka's.
        ObjectStoreError: the store refuses, or does not answer.
        OSError: a directory cannot be read.
    """
    return _Archiving(request, archive, clock, rng, listener or Silent(), fs).run()


class _Archiving:
    """One run."""

    def __init__(
        self,
        request: ArchiveRequest,
        archive: Archive,
        clock: Clock,
        rng: Rng,
        listener: ByteListener,
        fs: FileSystem,
    ) -> None:
        self._request = request
        self._archive = archive
        self._clock = clock
        self._listener = listener
        self._fs = fs
        self._run = rng.unique_id()[:_RUN_DIGITS]
        self._copier = FileCopier(
            archive.store,
            self._run,
            fs=fs,
            limit=RateLimit(request.bytes_per_second, clock),
            on_bytes=listener.advance,
        )

    def run(self) -> ArchiveReport:
        begun_s = self._clock.monotonic_s()
        report = ArchiveReport(url=self._archive.url, dry_run=self._request.dry_run)
        planned = self._plan(report)
        self._listener.begin(sum(each.plan.copied_bytes for each in planned))
        if not self._request.dry_run:
            for log_dir in self._request.logs.log_dirs:
                try:
                    self._archive_directory(log_dir)
                except ManifestConflictError:  # what another run has archived is as new
                    report.warnings.append(f"{log_dir}: another run archives its metadata log")
            with ThreadPoolExecutor(_COPIES_MAX, thread_name_prefix="archive") as pool:
                list(pool.map(self._carry_out, planned))
        if self._request.collects_garbage:
            garbage = self._archive.garbage(self._clock)
            report.garbage_objects, report.garbage_bytes = len(garbage.keys), garbage.size_bytes
            if not self._request.dry_run:
                self._archive.collect(garbage)
        usage = self._archive.store.usage
        report.requests, report.bytes_written = dict(usage.requests), usage.bytes_written
        report.elapsed_s = self._clock.monotonic_s() - begun_s
        return report

    # ---- plans

    def _plan(self, report: ArchiveReport) -> list[_Planned]:
        found = survey(self._request.logs, clock=self._clock)
        report.warnings += found.report.warnings
        rows = {id(each): _row(each) for each in found.report.partitions}
        report.partitions += rows.values()
        logs: list[tuple[ArchivedLogId, Captured, ArchivedPartition]] = []
        for each, captured in found.logs:
            row = rows[id(each)]
            with _noted(row):
                log = log_id(captured.view.topic_partition, captured.directory, self._fs)
                logs.append((log, captured, row))
        archived = {each.log: each for each in self._archive.manifests(log for log, *_ in logs)}
        planned: list[_Planned] = []
        for log, captured, row in logs:
            with _noted(row):
                planned.append(self._planned(log, captured, archived.get(log), row))
        return [each for each in planned if each.plan.copied or each.archived is None]

    def _planned(
        self,
        log: ArchivedLogId,
        captured: Captured,
        archived: ArchiveManifest | None,
        row: ArchivedPartition,
    ) -> _Planned:
        has_active = self._request.has_active and self._has_stopped(captured)
        local = local_log(captured, has_active=has_active, fs=self._fs)
        plan = plan_archive(local, archived, name=str(log.topic_partition))
        row.segments, row.bytes = len(plan.copied), plan.copied_bytes
        row.log_start_offset, row.end_offset = plan.log_start_offset, plan.end_offset
        row.bytes_left = sum(
            each.size_bytes for each in captured.sources if each.base_offset >= plan.end_offset
        )
        if plan.gap is not None:
            row.lost_from, row.lost_to = plan.gap
        if plan.copied or archived is None:
            row.status = ArchiveStatus.PLANNED
        return _Planned(log, captured.directory, archived, local, plan, row)

    def _has_stopped(self, captured: Captured) -> bool:
        """Whether the active segment cannot grow any more, and its indexes are whole."""
        log_dir = captured.directory.parent
        is_copy = not self._fs.exists(log_dir / META_PROPERTIES)
        return is_copy or self._fs.exists(log_dir / CLEAN_SHUTDOWN)

    # ---- copies

    def _carry_out(self, planned: _Planned) -> None:
        with _noted(planned.report):
            self._copy(planned)
            planned.report.status = ArchiveStatus.ARCHIVED

    def _copy(self, planned: _Planned) -> None:
        plan, segments = planned.plan, list(planned.plan.kept)
        number = 0 if planned.archived is None else planned.archived.number
        size_bytes = 0
        if not plan.copied:  # an empty log
            self._commit(planned, segments, number + 1)
        for each in plan.copied:
            files = self._copier.copy(planned.log, files_of(each))
            segments.append(
                ArchivedSegment(
                    base_offset=each.base_offset,
                    next_base_offset=each.next_base_offset,
                    largest_timestamp=each.largest_timestamp,
                    first_batch_timestamp=first_batch_timestamp(each, self._fs),
                    files=files,
                )
            )
            size_bytes += segments[-1].total_bytes
            if size_bytes >= _COMMIT_BYTES or each is plan.copied[-1]:
                number += 1
                self._commit(planned, segments, number)
                size_bytes = 0

    def _commit(self, planned: _Planned, segments: Sequence[ArchivedSegment], number: int) -> None:
        plan, log = planned.plan, planned.log
        end = segments[-1].next_base_offset if segments else plan.end_offset
        has_active = bool(plan.copied) and plan.copied[-1].is_active and end == plan.end_offset
        snapshot = self._copier.copy(log, [end_snapshot(planned.directory, end)])
        self._archive.commit(
            ArchiveManifest(
                topic=log.topic,
                partition=log.partition,
                topic_id=uuid_text(log.topic_id),
                number=number,
                run=self._run,
                at_ms=self._clock.now_ms(),
                log_start_offset=plan.log_start_offset,
                end_offset=end,
                cleaner_offset=self._cleaner_offset(planned),
                has_active_segment=has_active,
                leader_epochs=tuple(each for each in plan.leader_epochs if each.start_offset < end),
                segments=tuple(segments),
                others=snapshot,
            )
        )

    def _cleaner_offset(self, planned: _Planned) -> int | None:
        """The archive's own: what was copied first is as clean as it was then."""
        if planned.archived is not None:
            return planned.archived.cleaner_offset
        return planned.local.cleaner_offset

    # ---- the cluster's metadata

    def _archive_directory(self, log_dir: Path) -> None:
        """Archives the identity of a log directory, and the cluster's metadata log if it has it.

        They say which settings the topics have.
        """
        for name in (META_PROPERTIES, BOOTSTRAP_CHECKPOINT):
            path = log_dir / name
            if self._fs.exists(path):
                self._archive.store.put(f"{DIRECTORY}{name}", self._fs.read_bytes(path))
        directory = log_dir / CLUSTER_METADATA_DIR
        if not self._fs.is_directory(directory):
            return
        log = log_id(TopicPartition.parse(CLUSTER_METADATA_DIR), directory, self._fs)
        archived = self._archive.manifest(log)
        wanted = list(metadata_files(directory, self._fs))
        if archived is not None and _state(archived.others) == self._state_of(wanted):
            return
        self._archive.commit(
            ArchiveManifest(
                topic=log.topic,
                partition=log.partition,
                topic_id=uuid_text(log.topic_id),
                number=1 if archived is None else archived.number + 1,
                run=self._run,
                at_ms=self._clock.now_ms(),
                log_start_offset=0,
                end_offset=0,
                has_active_segment=True,
                others=self._copier.copy(log, wanted),
            )
        )

    def _state_of(self, wanted: Sequence[WantedFile]) -> set[tuple[str, int, int]]:
        facts = [(each.path.name, self._fs.facts_of(each.path)) for each in wanted]
        return {(name, each.size_bytes, each.modified_ns) for name, each in facts}


def _state(files: Sequence[ArchivedFile]) -> set[tuple[str, int, int]]:
    return {(each.name, each.size_bytes, each.modified_ns) for each in files}


@contextmanager
def _noted(row: ArchivedPartition) -> Iterator[None]:
    """Notes what goes wrong with a partition: the others are archived."""
    try:
        yield
    except (CordwoodError, OSError) as error:
        row.status, row.reason = ArchiveStatus.FAILED, str(error)


def _row(found: PartitionReport) -> ArchivedPartition:
    row = ArchivedPartition(
        topic=found.topic, partition=found.partition, log_dir=found.log_dir, reason=found.reason
    )
    if found.status is Status.FAILED:
        row.status = ArchiveStatus.FAILED
    elif found.status is Status.LEFT_ALONE:
        row.status = ArchiveStatus.LEFT_ALONE
    return row
