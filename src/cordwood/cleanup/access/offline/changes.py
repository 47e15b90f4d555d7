"""Changes of an offline log: the segments that retention deletes, and the checkpoints.

An offline log is changed file by file, not by a `PartitionLog`: a crash after any step leaves a log
that the next run, or Kafka, continues with; new files have the owner and the mode of the log's; and
deleted files may be moved to a trash.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.deleteSegments, LogManager.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cordwood.cleanup.access.offline.log_directory import OfflineLogDirectory
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.leader_epoch_checkpoint import parse_leader_epoch_checkpoint
from cordwood.format.producer_snapshot import ProducerEntry, build_producer_snapshot
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileFacts, FileSystem
from cordwood.storage.log.leader_epochs import LeaderEpochCache
from cordwood.storage.replace import Dispose, dispose_deleted, mark_deleted


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSegment:
    """An empty active segment: `producers` go to its snapshot, `model` gives owner and mode."""

    base_offset: int
    producers: Sequence[ProducerEntry]
    model: FileFacts

    def write(self, directory: Path, *, fs: FileSystem = OS) -> None:
        """Writes those of its files that do not exist, as a roll would leave them."""
        snapshot = directory / segment_file_name(self.base_offset, PRODUCER_SNAPSHOT_SUFFIX)
        if not fs.exists(snapshot):
            data = build_producer_snapshot(self.producers)
            fs.replace_durably(snapshot, data, model=self.model)
        # The log comes last: with it the segment is there, and whole.
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
            path = directory / segment_file_name(self.base_offset, suffix)
            if not fs.exists(path):
                fs.replace_durably(path, b"", model=self.model)


def delete_oldest(
    directory: Path,
    base_offsets: Sequence[int],
    *,
    log_start_offset: int,
    rolled: NewSegment | None = None,
    dispose: Dispose | None = None,
    fs: FileSystem = OS,
) -> None:
    """Removes the oldest segments, and the leader epochs below the new log start offset.

    A crash leaves fewer segments deleted, and planning again gives the rest.

    Args:
        directory: the partition's.
        base_offsets: of the segments, ascending.
        log_start_offset: the new one.
        rolled: the new active segment, where all segments go.
        dispose: what becomes of deleted files.
        fs: where the directory lies.
    """
    if rolled is not None:
        rolled.write(directory, fs=fs)
    mark_deleted(directory, base_offsets, fs=fs)
    fs.sync_directory(directory)
    dispose_deleted(directory, dispose, fs=fs)
    truncate_leader_epochs(directory, log_start_offset, fs=fs)


def restart_log(
    directory: Path,
    base_offsets: Sequence[int],
    rolled: NewSegment,
    *,
    dispose: Dispose | None = None,
    fs: FileSystem = OS,
) -> None:
    """Restarts a log, empty, at a new segment, as Kafka does if it begins beyond the log's end.

    Source: LogLoader.deleteSegmentsIfLogStartGreaterThanLogEnd.
    """
    rolled.write(directory, fs=fs)
    mark_deleted(directory, [base for base in base_offsets if base != rolled.base_offset], fs=fs)
    fs.sync_directory(directory)
    dispose_deleted(directory, dispose, fs=fs)
    path = directory / LEADER_EPOCH_CHECKPOINT
    if fs.exists(path):
        LeaderEpochCache(path, fs=fs).clear_and_flush()


def leader_epochs_of(directory: Path, *, fs: FileSystem = OS) -> tuple[tuple[int, int], ...]:
    """The lines of a log's leader epoch checkpoint, (epoch, start offset); none without one.

    Raises:
        CorruptError: it cannot be understood.
    """
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        return tuple(parse_leader_epoch_checkpoint(fs.read_bytes(path)))
    except FileNotFoundError:
        return ()
    except CorruptError as error:
        raise error.located(path=str(path)) from error


def truncate_leader_epochs(directory: Path, log_start_offset: int, *, fs: FileSystem = OS) -> None:
    """Drops the leader epochs that ended before the log start offset."""
    path = directory / LEADER_EPOCH_CHECKPOINT
    if fs.exists(path):
        LeaderEpochCache(path, fs=fs).truncate_from_start(log_start_offset)


def write_log_start(
    log_dir: OfflineLogDirectory,
    directory: Path,
    topic_partition: TopicPartition,
    *,
    log_start_offset: int,
    first_base_offset: int,
) -> None:
    """The log start offset's line, as Kafka writes it: only where it lies inside a segment.

    The recovery point is raised to the log start offset where it was below, and leader epochs that
    ended before it go, also if a run that removed the segments was interrupted before this step.

    Source: LogManager.checkpointLogStartOffsetsInDir, UnifiedLog.maybeIncrementLogStartOffset,
    LogLoader.load.
    """
    truncate_leader_epochs(directory, log_start_offset, fs=log_dir.fs)
    inside = log_start_offset > first_base_offset
    log_dir.set_log_start(topic_partition, log_start_offset if inside else None)
    recovery_point = log_dir.checkpoints()[0].recovery_point.get(topic_partition)
    if recovery_point is not None and recovery_point < log_start_offset:
        log_dir.set_recovery_point(topic_partition, log_start_offset)
