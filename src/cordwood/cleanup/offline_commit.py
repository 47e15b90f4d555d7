"""The commit of a cleaning to an offline log, step by step.

Each function first checks that what was planned on is still there. A crash after any step leaves a
log that the next run, or Kafka, continues with.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteSegments, LogManager.
"""

from __future__ import annotations

from pathlib import Path

from cordwood.cleanup.capture import Captured
from cordwood.cleanup.commit import CompactionCommitter, StalePlanError, staged_files
from cordwood.cleanup.compaction_values import Manifest
from cordwood.cleanup.log_compaction import LogCompaction
from cordwood.cleanup.retention import RetentionPlan
from cordwood.format.file_names import (
    CLEANER_OFFSET_CHECKPOINT,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.producer_snapshot import build_producer_snapshot
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.log_dir import LogDir, require_closed
from cordwood.storage.replace import (
    CompactionJournal,
    Dispose,
    dispose_deleted,
    mark_deleted,
    put_in_place,
)


def commit_retention(
    captured: Captured,
    plan: RetentionPlan,
    *,
    dispose: Dispose | None = None,
    fs: FileSystem = OS,
) -> None:
    """Removes the expired segments, after an empty one was made where all go.

    The leader epochs below the new log start offset go with them. A crash leaves fewer segments
    expired, and planning again gives the rest.

    Raises:
        StalePlanError: the segments are not those that were captured.
    """
    directory = captured.directory
    view = captured.view
    bases = [segment.base_offset for segment in plan.expired]
    if bases != [s.base_offset for s in captured.sources[: len(bases)]]:
        raise StalePlanError(f"{view.topic_partition}: its segments have changed since the plan")
    if plan.roll and view.active.base_offset == view.log_end_offset:
        raise StalePlanError(f"{view.topic_partition}: an empty active segment cannot expire")
    if plan.roll:
        make_empty_segment(captured, view.log_end_offset, fs=fs)
    mark_deleted(directory, bases, fs=fs)
    fs.sync_directory(directory)
    dispose_deleted(directory, dispose, fs=fs)
    truncate_leader_epochs(directory, plan.log_start_offset, fs=fs)


def restart_log(
    captured: Captured, offset: int, *, dispose: Dispose | None = None, fs: FileSystem = OS
) -> None:
    """Restarts a log, empty, at `offset`, as Kafka does if that is beyond the log end offset.

    Source: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd.
    """
    directory = captured.directory
    make_empty_segment(captured, offset, fs=fs)
    mark_deleted(
        directory, [s.base_offset for s in captured.sources if s.base_offset != offset], fs=fs
    )
    fs.sync_directory(directory)
    dispose_deleted(directory, dispose, fs=fs)
    path = directory / LEADER_EPOCH_CHECKPOINT
    if fs.exists(path):
        LeaderEpochCache(path, fs=fs).clear_and_flush()


def make_empty_segment(captured: Captured, base_offset: int, *, fs: FileSystem = OS) -> None:
    """A new active segment, with a producer snapshot at its base as a roll leaves one."""
    directory = captured.directory
    snapshot = directory / segment_file_name(base_offset, PRODUCER_SNAPSHOT_SUFFIX)
    if not fs.exists(snapshot):
        data = build_producer_snapshot(captured.producers)
        fs.replace_durably(snapshot, data, model=captured.model)
    # The log comes last: with it the segment is there, and whole.
    for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
        path = directory / segment_file_name(base_offset, suffix)
        if not fs.exists(path):
            fs.replace_durably(path, b"", model=captured.model)


def truncate_leader_epochs(directory: Path, log_start_offset: int, *, fs: FileSystem = OS) -> None:
    """Drops the leader epochs that ended before the log start offset."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    if fs.exists(path):
        LeaderEpochCache(path, fs=fs).truncate_from_start(log_start_offset)


class OfflinePlacement:
    """A `Placement` in an offline log: a journal says how far the compaction has come."""

    def __init__(
        self, directory: Path, *, dispose: Dispose | None = None, fs: FileSystem = OS
    ) -> None:
        self._directory = directory
        self._journal = CompactionJournal(directory, fs=fs)
        self._dispose = dispose
        self._fs = fs
        self._begun = fs.exists(self._journal.path)

    def require_wanted(self) -> None:
        """A compaction of an offline log always continues."""

    def place(self, compaction: LogCompaction, number: int, manifest: Manifest) -> None:
        """As `Placement.place`; the intent is made to last first."""
        require_closed(self._directory, fs=self._fs)
        if not self._begun:
            self._journal.begin(compaction.to_json())
            self._begun = True
        self._journal.intend(number, manifest.token, manifest.after)
        put_in_place(
            staged_files(compaction, manifest),
            compaction.groups[number],
            dispose=self._dispose,
            fs=self._fs,
        )

    def end(self) -> None:
        """Forgets the journal."""
        if self._begun:
            self._journal.end()


def finish_compaction(
    committer: CompactionCommitter, log_dir: LogDir, partition: TopicPartition
) -> None:
    """Records the compaction in the cleaner's checkpoint; the journal goes last."""
    log_dir.set_checkpoint(
        CLEANER_OFFSET_CHECKPOINT, partition, committer.compaction.first_uncleanable
    )
    committer.close()


def commit_checkpoints(log_dir: LogDir, captured: Captured) -> None:
    """The log start offset's line, as Kafka writes it: only where it lies inside a segment.

    The recovery point is raised to the log start offset where it was below, and leader epochs that
    ended before it go, also if a run that removed the segments was interrupted before this step.

    Source: LogManager.checkpointLogStartOffsetsInDir, UnifiedLog.maybeIncrementLogStartOffset,
    LogLoader.load.
    """
    view = captured.view
    directory = captured.directory
    truncate_leader_epochs(directory, view.log_start_offset, fs=log_dir.fs)
    inside = view.log_start_offset > view.segments[0].base_offset
    log_dir.set_checkpoint(
        LOG_START_OFFSET_CHECKPOINT,
        view.topic_partition,
        view.log_start_offset if inside else None,
    )
    recovery_points = log_dir.checkpoints()[0].recovery_point
    recovery_point = recovery_points.get(view.topic_partition)
    if recovery_point is not None and recovery_point < view.log_start_offset:
        log_dir.set_checkpoint(
            RECOVERY_POINT_CHECKPOINT, view.topic_partition, view.log_start_offset
        )
