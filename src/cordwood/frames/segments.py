"""The segments of logs as rows: offsets, files, times. No whole log is read for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from cordwood.cleanup.plan.captured import Captured
from cordwood.configs.log_config import LogConfig
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from cordwood.frames.options import OFFSETS_OPTIONS, PARTITIONS_OPTIONS, FrameOptions
from cordwood.frames.rows import TIMESTAMP, Row, batches_of, timestamp
from cordwood.frames.survey import captured_logs
from cordwood.frames.table import Table
from cordwood.frames.wanted import Wanted
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.overlay_filesystem import OverlayFileSystem
from cordwood.storage.reading.batch_heads import find_offset
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.resources import ResourceCache

_SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "baseOffset": pa.int64(),
        "nextOffset": pa.int64(),
        "firstOffset": pa.int64(),
        "lastOffset": pa.int64(),
        "isActive": pa.bool_(),
        "logBytes": pa.int64(),
        "indexBytes": pa.int64(),
        "timeIndexBytes": pa.int64(),
        "transactionIndexBytes": pa.int64(),
        "snapshotBytes": pa.int64(),
        "largestTimestamp": TIMESTAMP,
        "modificationTime": TIMESTAMP,
        "path": pa.string(),
    }
)
_FILES: Final = {
    "indexBytes": INDEX_SUFFIX,
    "timeIndexBytes": TIME_INDEX_SUFFIX,
    "transactionIndexBytes": TXN_INDEX_SUFFIX,
    "snapshotBytes": PRODUCER_SNAPSHOT_SUFFIX,
}
#: About what is read to find the first and the last offset of a segment.
_READ_BYTES: Final = 16 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenSegment:
    """One segment as it was captured; `largest_timestamp` (ms) is -1 if no record has one."""

    source: SegmentSource
    is_active: bool
    largest_timestamp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsOfLog:
    """Some segments of a log."""

    partition: TopicPartition
    segments: tuple[SeenSegment, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes that are read, about."""
        return len(self.segments) * _READ_BYTES


def segments_of(captured: Captured, wanted: Wanted) -> SegmentsOfLog:
    """The segments of a log in which wanted offsets may be."""
    view = captured.view
    return SegmentsOfLog(
        partition=view.topic_partition,
        segments=tuple(
            SeenSegment(
                source=source,
                is_active=segment is view.active,
                largest_timestamp=segment.largest_record_timestamp,
            )
            for source, segment in zip(captured.sources, view.segments, strict=True)
            if source.base_offset < wanted.end_offset
            # An empty one ends where it begins.
            and max(source.next_base_offset, source.base_offset + 1) > wanted.first_offset
        ),
    )


def read_segments(
    part: SegmentsOfLog, columns: Sequence[str], *, fs: FileSystem = OS
) -> Iterator[pa.RecordBatch]:
    """Arrow batches of which each row is a segment.

    Raises:
        CorruptError: the first batch of a segment can be none.
        OSError: a log cannot be read.
    """
    rows = (_row(part.partition, each, columns, fs) for each in part.segments)
    return batches_of(rows, _SCHEMA, columns)


def _row(
    partition: TopicPartition, segment: SeenSegment, columns: Sequence[str], fs: FileSystem
) -> Row:
    source, path = segment.source, Path(segment.source.path)
    found: dict[str, Any] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "baseOffset": source.base_offset,
        "nextOffset": source.next_base_offset,
        "isActive": segment.is_active,
        "logBytes": source.size_bytes,
        "largestTimestamp": timestamp(segment.largest_timestamp),
        "modificationTime": source.modified_ns // 1000,
        "path": source.path,
    }
    if {"firstOffset", "lastOffset"} & {*columns}:
        found["firstOffset"], found["lastOffset"] = _ends(source, fs)
    for name, suffix in _FILES.items():
        if name in columns:
            found[name] = _size(path.with_suffix(suffix), fs)
    return found


def _ends(source: SegmentSource, fs: FileSystem) -> tuple[int | None, int | None]:
    """The first offset of the first batch and the last one of the last; None without a batch.

    The last batch is walked to from the last entry of the offset index; an index that is not of
    this log is rebuilt, in memory.
    """
    path, overlay = Path(source.path), OverlayFileSystem(fs)
    facts = replace(overlay.facts_of(path), size_bytes=source.size_bytes)
    segment = LogSegment.open(
        path.parent,
        source.base_offset,
        config=LogConfig(),
        resources=ResourceCache(overlay),
        now_ms=0,
        facts=facts,
    )
    behind = segment.read_next_offset()
    if behind == source.base_offset:
        return None, None
    with closing(fs.open(path)) as file:
        first = find_offset(file, 0, source.size_bytes, source.base_offset, path=path)
    assert first is not None, "a batch ends below the next offset"
    return first.base_offset, behind - 1


def _size(path: Path, fs: FileSystem) -> int | None:
    try:
        return fs.facts_of(path).size_bytes
    except FileNotFoundError:
        return None


def _parts(options: FrameOptions, wanted: Wanted) -> list[SegmentsOfLog]:
    return [segments_of(captured, wanted) for captured in captured_logs(options, wanted)]


SEGMENTS: Final = Table(
    name="segments",
    schema=_SCHEMA,
    default_columns=tuple(_SCHEMA.names),
    options=(*PARTITIONS_OPTIONS, *OFFSETS_OPTIONS),
    parts=_parts,
    read=read_segments,
)
