"""Logs of directories as a plan takes them: the segments that may be archived."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from cordwood.archiving.copied_files import WantedFile
from cordwood.archiving.plan import LocalLog, LocalSegment
from cordwood.cleanup.plan.captured import Captured
from cordwood.configs.value import LONG_MAX
from cordwood.format.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    PART_SUFFIX,
    PARTITION_METADATA,
    PRODUCER_SNAPSHOT_SUFFIX,
    TEMPORARY_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.leader_epoch_checkpoint import parse_leader_epoch_checkpoint
from cordwood.format.partition_metadata import parse_partition_metadata
from cordwood.model.errors import CorruptError
from cordwood.model.topic_partition import TopicPartition
from cordwood.model.uuids import ZERO_UUID
from cordwood.storage.archives.manifest import ArchivedLogId, LeaderEpoch
from cordwood.storage.filesystem import FileSystem
from cordwood.storage.reading.batch_heads import iter_heads

#: The files of a segment beside its log.
_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX)


def log_id(partition: TopicPartition, directory: Path, fs: FileSystem) -> ArchivedLogId:
    """The log of a partition's directory.

    Raises:
        CorruptError: partition.metadata cannot be understood.
        OSError: it cannot be read.
    """
    path = directory / PARTITION_METADATA
    topic_id = ZERO_UUID
    try:
        topic_id = parse_partition_metadata(fs.read_bytes(path)).topic_id
    except FileNotFoundError:
        pass
    except CorruptError as error:
        raise error.located(path=str(path)) from error
    return ArchivedLogId(partition.topic, partition.partition, topic_id)


def local_log(captured: Captured, *, has_active: bool, fs: FileSystem) -> LocalLog:
    """The log as it was captured.

    Args:
        captured: by a survey that is for reading.
        has_active: its active segment may be archived, too.
        fs: where it is.

    Raises:
        CorruptError: the leader epochs cannot be understood.
        OSError: they cannot be read.
    """
    view = captured.view
    segments = []
    for number, (source, segment) in enumerate(
        zip(captured.sources, view.segments, strict=True), start=1
    ):
        is_active = number == len(view.segments)
        if is_active and not has_active:
            break
        if source.next_base_offset > view.high_watermark:
            break
        segments.append(
            LocalSegment(
                path=source.path,
                base_offset=source.base_offset,
                next_base_offset=source.next_base_offset,
                size_bytes=source.size_bytes,
                modified_ns=source.modified_ns,
                largest_timestamp=segment.largest_record_timestamp,
                is_active=is_active,
            )
        )
    return LocalLog(
        segments=tuple(segments),
        log_start_offset=view.log_start_offset,
        cleaner_offset=view.cleaner_checkpoint,
        leader_epochs=_leader_epochs(captured.directory, fs),
    )


def _leader_epochs(directory: Path, fs: FileSystem) -> tuple[LeaderEpoch, ...]:
    path = directory / LEADER_EPOCH_CHECKPOINT
    try:
        found = parse_leader_epoch_checkpoint(fs.read_bytes(path))
    except FileNotFoundError:
        return ()
    except CorruptError as error:
        raise error.located(path=str(path)) from error
    return tuple(LeaderEpoch(epoch=epoch, start_offset=start) for epoch, start in found)


def files_of(segment: LocalSegment) -> list[WantedFile]:
    """The files of a segment; of its log, the batches that the plan knows.

    A closed segment has to be the one that was planned: a cleaner gives its name to another one,
    which may have the records of those behind it, too.
    """
    path = Path(segment.path)
    modified_ns = None if segment.is_active else segment.modified_ns
    log = WantedFile(path, segment.size_bytes, modified_ns=modified_ns, is_needed=True)
    beside = [path.with_name(segment_file_name(segment.base_offset, each)) for each in _SUFFIXES]
    return [log, *map(WantedFile, beside)]


def end_snapshot(directory: Path, end_offset: int) -> WantedFile:
    """The producer snapshot at the end of what is archived: of the segment behind it."""
    return WantedFile(directory / segment_file_name(end_offset, PRODUCER_SNAPSHOT_SUFFIX))


def metadata_files(directory: Path, fs: FileSystem) -> Iterator[WantedFile]:
    """The files of a cluster's metadata log, but for those that are being written or removed."""
    for entry in fs.entries_in(directory):
        is_passing = entry.name.endswith((DELETED_SUFFIX, PART_SUFFIX, TEMPORARY_SUFFIX))
        if entry.is_regular and not is_passing:
            yield WantedFile(directory / entry.name)


def first_batch_timestamp(segment: LocalSegment, fs: FileSystem) -> int | None:
    """The largest timestamp of a segment's first batch (ms), 2^63 - 1 if there is none.

    None if the file is not the one that was planned any more, since a broker has compacted it.

    Raises:
        OSError: the file cannot be read.

    Source: org.apache.kafka.storage.internals.log.LogSegment.getFirstBatchTimestamp.
    """
    path = Path(segment.path)
    try:
        with closing(fs.open(path)) as file:
            heads = iter_heads(file, 0, segment.size_bytes, path=path, is_strict=False)
            first = next(heads, None)
        if fs.facts_of(path).modified_ns != segment.modified_ns:
            return None
    except FileNotFoundError:
        return None
    return first.max_timestamp if first is not None and first.max_timestamp >= 0 else LONG_MAX
