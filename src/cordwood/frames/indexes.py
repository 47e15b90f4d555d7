"""The entries of the indexes of segments as rows: offset, time and transaction index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from cordwood.cleanup.plan.captured import Captured
from cordwood.format.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from cordwood.frames.columns import partitions, timestamps, topics
from cordwood.frames.options import OFFSETS_OPTIONS, PARTITIONS_OPTIONS, FrameOptions
from cordwood.frames.rows import TIMESTAMP
from cordwood.frames.survey import captured_logs
from cordwood.frames.table import Table
from cordwood.frames.wanted import Wanted
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.block import Flags, Ints
from cordwood.storage.segment.offset_index import OffsetIndex
from cordwood.storage.segment.time_index import TimeIndex
from cordwood.storage.segment.transaction_index import TransactionIndex

_SCHEMA: Final = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "segmentBaseOffset": pa.int64(),
        "kind": pa.string(),
        "offset": pa.int64(),
        "position": pa.int64(),
        "timestamp": TIMESTAMP,
        "producerId": pa.int64(),
        "firstOffset": pa.int64(),
        "lastOffset": pa.int64(),
        "lastStableOffset": pa.int64(),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexesOfSegment:
    """Indexes of the segment with its log at `path`, in files with the same name but its suffix.

    `size_bytes` is what they take. Their entries are those for offsets from `first_offset` to
    before `end_offset`, and those of transactions that have some of these.
    """

    partition: TopicPartition
    path: str
    suffixes: tuple[str, ...]
    base_offset: int
    first_offset: int
    end_offset: int
    size_bytes: int


def indexes_of(
    captured: Captured, wanted: Wanted, *, fs: FileSystem = OS
) -> Iterator[IndexesOfSegment]:
    """The indexes of the segments of a log in which wanted offsets may be.

    Raises:
        OSError: a file cannot be reached.
    """
    for source in captured.sources:
        if source.next_base_offset <= wanted.first_offset:
            continue
        # A transaction is in the index of the segment of its marker, which may begin behind it.
        suffixes = [*_READERS] if source.base_offset < wanted.end_offset else [TXN_INDEX_SUFFIX]
        sizes = {each: _size(Path(source.path).with_suffix(each), fs) for each in suffixes}
        files = tuple(each for each, size in sizes.items() if size)
        if files:
            yield IndexesOfSegment(
                partition=captured.view.topic_partition,
                path=source.path,
                suffixes=files,
                base_offset=source.base_offset,
                first_offset=wanted.first_offset,
                end_offset=min(wanted.end_offset, source.next_base_offset),
                size_bytes=sum(sizes.values()),
            )


def read_indexes(
    part: IndexesOfSegment, columns: Sequence[str], *, fs: FileSystem = OS
) -> Iterator[pa.RecordBatch]:
    """An Arrow batch for each index that has wanted entries: of offsets, times, transactions.

    Raises:
        CorruptError: a file does not hold an index.
        OSError: a file cannot be read.
    """
    for suffix in part.suffixes:
        found = _READERS[suffix](part, Path(part.path).with_suffix(suffix), fs)
        rows = len(next(iter(found.values())))
        if rows:
            arrays: dict[str, pa.Array] = {
                "topic": topics(part.partition, rows),
                "partition": partitions(part.partition, rows),
                "segmentBaseOffset": pa.repeat(part.base_offset, rows),
                "kind": pa.repeat(_KINDS[suffix], rows),
                **found,
            }
            yield pa.RecordBatch.from_arrays(
                [
                    arrays[name] if name in arrays else pa.nulls(rows, _SCHEMA.field(name).type)
                    for name in columns
                ],
                list(columns),
            )


def _offset_entries(part: IndexesOfSegment, path: Path, fs: FileSystem) -> Mapping[str, pa.Array]:
    relative, positions = OffsetIndex(path, part.base_offset, fs=fs).columns()
    offsets = part.base_offset + np.array(relative, dtype=np.int64)
    wanted = _wanted(part, offsets, offsets)
    return {
        "offset": pa.array(offsets[wanted]),
        "position": pa.array(np.array(positions, dtype=np.int64)[wanted]),
    }


def _time_entries(part: IndexesOfSegment, path: Path, fs: FileSystem) -> Mapping[str, pa.Array]:
    ms, relative = TimeIndex(path, part.base_offset, fs=fs).columns()
    offsets = part.base_offset + np.array(relative, dtype=np.int64)
    wanted = _wanted(part, offsets, offsets)
    return {
        "offset": pa.array(offsets[wanted]),
        "timestamp": timestamps(np.array(ms, dtype=np.int64)[wanted]),
    }


def _transactions(part: IndexesOfSegment, path: Path, fs: FileSystem) -> Mapping[str, pa.Array]:
    entries = TransactionIndex(path, part.base_offset, fs=fs).all_aborted()
    fields = np.array(
        [
            (each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
            for each in entries
        ],
        dtype=np.int64,
    ).reshape(-1, 4)
    fields = fields[_wanted(part, fields[:, 1], fields[:, 2])]
    names = ("producerId", "firstOffset", "lastOffset", "lastStableOffset")
    return {name: pa.array(fields[:, number]) for number, name in enumerate(names)}


def _wanted(part: IndexesOfSegment, first: Ints, last: Ints) -> Flags:
    found: Flags = (last >= part.first_offset) & (first < part.end_offset)
    return found


def _size(path: Path, fs: FileSystem) -> int:
    try:
        return fs.facts_of(path).size_bytes
    except FileNotFoundError:
        return 0


_Reader = Callable[[IndexesOfSegment, Path, FileSystem], Mapping[str, pa.Array]]

_READERS: Final[Mapping[str, _Reader]] = {
    INDEX_SUFFIX: _offset_entries,
    TIME_INDEX_SUFFIX: _time_entries,
    TXN_INDEX_SUFFIX: _transactions,
}
_KINDS: Final = {INDEX_SUFFIX: "offset", TIME_INDEX_SUFFIX: "time", TXN_INDEX_SUFFIX: "transaction"}


def _parts(options: FrameOptions, wanted: Wanted) -> list[IndexesOfSegment]:
    return [
        each for captured in captured_logs(options, wanted) for each in indexes_of(captured, wanted)
    ]


INDEXES: Final = Table(
    name="indexes",
    schema=_SCHEMA,
    default_columns=tuple(_SCHEMA.names),
    options=(*PARTITIONS_OPTIONS, *OFFSETS_OPTIONS),
    parts=_parts,
    read=read_indexes,
)
