"""Turns erased offsets into bits: one for each record of a segment, clear if it is erased.

Offsets of a batch that has lost no record yet follow from its header. Only a batch with gaps that
overlaps an erased range is decompressed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.engine.search.offsets import ranges_of
from cordwood.cleanup.engine.search.search import Searched
from cordwood.cleanup.engine.segment_facts import SegmentFacts
from cordwood.cleanup.engine.survivors import Progress, no_progress
from cordwood.cleanup.plan.compaction_values import OffsetRanges
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.format.native import batches as rows_of
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.block import Block, Ints
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import SegmentSource


def facts_without(
    compaction: LogCompaction,
    segments: Sequence[SegmentSource],
    *,
    progress: Progress = no_progress,
    fs: FileSystem = OS,
) -> list[SegmentFacts]:
    """The facts of segments of an erasure: every record is kept but those of erased offsets.

    Raises:
        CorruptError: a segment is damaged.
        OSError: a segment cannot be read.
    """
    assert compaction.erased is not None, "called for an erasure"
    reader = SegmentReader(bounds=compaction.bounds, fs=fs)
    return [_facts_of(source, compaction.erased, reader, progress) for source in segments]


def facts_of_one(source: SegmentSource, erased: OffsetRanges, *, fs: FileSystem) -> SegmentFacts:
    """Like `facts_without`, for one file that is no part of a compaction."""
    return _facts_of(source, erased, SegmentReader(fs=fs), no_progress)


def _facts_of(
    source: SegmentSource,
    erased: OffsetRanges,
    reader: SegmentReader,
    progress: Progress,
) -> SegmentFacts:
    ranges = np.array(erased, dtype=np.int64).reshape(-1, 2)
    fact = SegmentFacts(source.base_offset)
    kept = [np.empty(0, dtype=np.bool_)]
    for block in reader.blocks(source):
        kept.append(_kept_in(block, ranges))
        fact.batches += block.rows
        progress(block.size_bytes)
    bits = np.concatenate(kept)
    fact.records = len(bits)
    fact.keep = np.packbits(bits, bitorder="little").tobytes()
    fact.nulls = bytes(len(fact.keep))
    # A segment that loses no record is here because of the bytes behind its last batch.
    fact.special = True
    return fact


def present_in(searched: Searched, ranges: OffsetRanges, *, fs: FileSystem = OS) -> OffsetRanges:
    """The offsets of `ranges` that have a record of data in a file.

    Raises:
        CorruptError: the file is damaged.
        OSError: it cannot be read.
    """
    looked_for = np.array(ranges, dtype=np.int64).reshape(-1, 2)
    found: list[int] = []
    for block in SegmentReader(bounds=searched.bounds, fs=fs).blocks(searched.source):
        for row in rows_overlapping(block, looked_for).tolist():
            offsets = block.offsets(row, record_bytes_max=searched.bounds.record_bytes_max)
            found += offsets[contains(looked_for, offsets)].tolist()
    return ranges_of(found)


def _kept_in(block: Block, erased: Ints) -> npt.NDArray[np.bool_]:
    """One value for each record of a block."""
    starts = block.ordinals()
    kept = np.ones(block.records_count, dtype=np.bool_)
    for row in rows_overlapping(block, erased).tolist():
        offsets = block.offsets(row)
        first = int(starts[row])
        kept[first : first + len(offsets)] = ~contains(erased, offsets)
    return kept


def rows_overlapping(block: Block, ranges: Ints) -> Ints:
    """The data batches of a block with records whose offsets may be in `ranges` (n, 2)."""
    table = block.table
    if not len(ranges):
        return np.empty(0, dtype=np.int64)
    at = np.searchsorted(ranges[:, 1], table[:, rows_of.BASE_OFFSET])
    overlaps = at < len(ranges)
    at = np.minimum(at, len(ranges) - 1)
    overlaps &= ranges[at, 0] <= table[:, rows_of.LAST_OFFSET]
    return np.flatnonzero(overlaps & block.has_data)


def contains(ranges: Ints, offsets: Ints) -> npt.NDArray[np.bool_]:
    """Flags of the offsets that are in `ranges`, of which there is at least one."""
    at = np.searchsorted(ranges[:, 1], offsets)
    inside = at < len(ranges)
    inside &= ranges[np.minimum(at, len(ranges) - 1), 0] <= offsets
    return inside
