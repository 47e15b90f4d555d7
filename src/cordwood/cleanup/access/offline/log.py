"""A log whose broker is stopped, opened by the loader and left as it is on disk.

The loader runs with `RecoveryPolicy.KEEP` on an `OverlayFileSystem`: what it repairs is repaired in
memory. `OfflineLog.repair` writes to disk what Kafka repairs at every start, clean or not: missing
indexes, indexes without a log, snapshots of no segment.

Source: org.apache.kafka.storage.internals.log.LogLoader.load, UnifiedLog.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cordwood.cleanup.access.offline.log_directory import Checkpoints
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    base_offset_of,
    is_index_file,
    is_log_file,
    segment_file_name,
)
from cordwood.model.clock import FixedClock
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.failures import RaisedFailures
from cordwood.storage.filesystem import OS, FileFacts, FileSystem
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_loader import LoadRequest, RecoveryPolicy, load_log
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.overlay_filesystem import OverlayFileSystem
from cordwood.storage.producers.producer_snapshots import tidy_snapshots
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.resources import ResourceCache


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineLog:
    """An offline log.

    `log` is as it would be after `repair`; its changes stay in memory. `beyond_end` is the log
    start offset where that lies beyond the log's end, which Kafka answers by starting the log again
    there: then `log` ends where its log start offset is.
    """

    log: PartitionLog
    names: tuple[str, ...]
    warnings: tuple[str, ...]
    clean_shutdown: bool
    beyond_end: int | None

    @property
    def _fs(self) -> FileSystem:
        """The file system of the log, with the repairs of the loader."""
        return self.log.context.fs

    def facts_of(self, segment: LogSegment) -> FileFacts:
        """The metadata of a segment's log file, which may be longer than its whole batches.

        The file may have another name on disk, if an interrupted cleaning has to be finished.
        """
        return self._fs.facts_of(segment.path)

    def repair(self, *, fs: FileSystem = OS) -> None:
        """Writes what is repaired on disk: indexes that were missing, and producer snapshots.

        Indexes without a log are removed. Nothing else changes.
        """
        log, directory = self.log, self.log.directory
        logs = {base_offset_of(name) for name in self.names if is_log_file(name)}
        indexed = {base_offset_of(name) for name in self.names if name.endswith(INDEX_SUFFIX)}
        for name in self.names:
            if is_index_file(name) and base_offset_of(name) not in logs:
                fs.remove(directory / name)
        for base in sorted(logs - indexed):
            model = self._fs.facts_of(directory / segment_file_name(base, LOG_SUFFIX))
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                path = directory / segment_file_name(base, suffix)
                fs.replace_durably(path, self._fs.read_bytes(path), model=model)
        tidy_snapshots(
            directory,
            log.segments.base_offsets,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            clean_shutdown=self.clean_shutdown,
            fs=fs,
        )


def load_offline_log(
    directory: Path,
    topic_partition: TopicPartition,
    *,
    config: LogConfig,
    checkpoints: Checkpoints,
    clean_shutdown: bool,
    producer_expiration_ms: int,
    now_ms: int,
    metadata_version: int = 0,
    is_in_use: bool = False,
    for_reading: bool = False,
    fs: FileSystem = OS,
) -> OfflineLog:
    """Opens the log in `directory`; no file changes.

    After an unclean shutdown, as while the broker runs, the high watermark counts as no higher than
    the recovery point, so that nothing above either is cleaned. For reading it is the checkpoint's,
    up to which consumers may have read.

    Args:
        directory: the partition's.
        topic_partition: whose.
        config: the topic's settings in force.
        checkpoints: those of the log directory.
        clean_shutdown: the broker stopped in good order.
        producer_expiration_ms: producer.id.expiration.ms.
        now_ms: for the expiry of producers.
        metadata_version: the cluster's level, 0 if unknown.
        is_in_use: a broker has the directory open: see `LoadRequest`.
        for_reading: records are to be read, and nothing is to be cleaned.
        fs: where the directory lies.

    Raises:
        CorruptError: an index, a checkpoint or a segment's name cannot be read, or the active
            segment has an impossible offset.
        OSError: a file cannot be reached, or is no regular file.
    """
    entries = fs.entries_in(directory)
    names = tuple([entry.name for entry in entries])
    for entry in entries:
        if not entry.is_regular and (is_log_file(entry.name) or is_index_file(entry.name)):
            fs.require_regular(directory / entry.name)
    warnings: list[str] = []
    clock = FixedClock(now_ms)
    checkpointed_start = checkpoints.log_start.get(topic_partition, 0)
    recovery_point = checkpoints.recovery_point.get(topic_partition, 0)
    log = load_log(
        LoadRequest(
            directory=directory,
            topic_partition=topic_partition,
            config=config,
            context=LogContext(
                clock=clock,
                resources=ResourceCache(OverlayFileSystem(fs)),
                failures=RaisedFailures(clock),
                producer_id_expiration_ms=producer_expiration_ms,
                metadata_version=lambda: metadata_version,
            ),
            clean_shutdown=clean_shutdown,
            recovery_point=recovery_point,
            log_start_offset=checkpointed_start,
            policy=RecoveryPolicy.KEEP,
            is_in_use=is_in_use,
            for_reading=for_reading,
            on_warning=warnings.append,
        )
    )
    log.remove_expired_producers()
    high_watermark = checkpoints.high_watermark.get(topic_partition)
    if high_watermark is None:
        high_watermark = log.log_end_offset if clean_shutdown else log.log_start_offset
    if not (clean_shutdown or for_reading):
        high_watermark = min(high_watermark, recovery_point)
    log.update_high_watermark(high_watermark)
    return OfflineLog(
        log=log,
        names=names,
        warnings=tuple(warnings),
        clean_shutdown=clean_shutdown,
        beyond_end=checkpointed_start if checkpointed_start > log.log_end_offset else None,
    )
