"""Records of a segment by timestamp, through its indexes, each entry checked against the log.

A time index entry is believed when the batch that it names has its timestamp.

Source: org.apache.kafka.storage.internals.log.LogSegment.findOffsetByTimestamp,
readLargestTimestamp; FileRecords.searchForTimestamp, largestTimestampAfter;
DefaultRecordBatch.offsetOfMaxTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cordwood.format.legacy import LegacyBatch
from cordwood.format.record import Record
from cordwood.format.record_batch import RecordBatch
from cordwood.model.errors import CorruptError
from cordwood.storage.batch_walk import BatchHead, iter_heads, read_batch
from cordwood.storage.filesystem import File
from cordwood.storage.time_index import NO_TIMESTAMP, TimestampOffset


class TimestampAndOffset(NamedTuple):
    """A record: its timestamp in ms, its offset, its batch's leader epoch, -1 for none."""

    timestamp: int
    offset: int
    leader_epoch: int


def require_entry(entry: TimestampOffset, head: BatchHead, *, path: Path) -> None:
    """Checks a time index entry against the first batch that ends at or behind its offset.

    Raises:
        CorruptError: the batch does not hold that offset, or has another timestamp.
    """
    first = entry.offset if head.attributes & 0x07 and head.magic < 2 else head.base_offset
    if not first <= entry.offset <= head.last_offset or head.max_timestamp != entry.timestamp:
        raise CorruptError(
            f"time index entry ({entry.timestamp}, {entry.offset}) is not what the log holds",
            path=str(path),
            position=head.position,
        )


def first_at_or_after(
    heads: Iterator[BatchHead], file: File, timestamp: int, starting_offset: int, *, path: Path
) -> TimestampAndOffset | None:
    """The first record of `heads` with at least that timestamp and offset.

    Raises:
        CorruptError: a batch cannot be read.
    """
    for head in heads:
        if head.max_timestamp >= timestamp:
            for record in _records(file, head, path):
                if record.timestamp >= timestamp and record.offset >= starting_offset:
                    return TimestampAndOffset(record.timestamp, record.offset, head.leader_epoch)
    return None


def first_with(
    heads: Iterator[BatchHead], file: File, timestamp: int, *, path: Path
) -> TimestampAndOffset | None:
    """The first record of that very timestamp in the first batch whose largest it is.

    Raises:
        CorruptError: a batch cannot be read.
    """
    for head in heads:
        if head.max_timestamp == timestamp:
            for record in _records(file, head, path):
                if record.timestamp == timestamp:
                    return TimestampAndOffset(timestamp, record.offset, head.leader_epoch)
            return None
    return None


def largest_from(file: File, position: int, end: int, *, path: Path) -> TimestampOffset:
    """The largest timestamp of batches from `position` on, and the last offset of the first.

    Raises:
        CorruptError: a batch on the way cannot be.
    """
    largest = TimestampOffset(NO_TIMESTAMP, -1)
    for head in iter_heads(file, position, end, path=path):
        if head.max_timestamp > largest.timestamp:
            largest = TimestampOffset(head.max_timestamp, head.last_offset)
    return largest


def _records(file: File, head: BatchHead, path: Path) -> Iterator[Record]:
    batch = read_batch(file, head, path=path)
    try:
        if isinstance(batch, RecordBatch):
            yield from batch.iter_records()
        else:
            assert isinstance(batch, LegacyBatch), batch
            yield from batch.records()
    except CorruptError as error:
        raise error.located(path=str(path), base_position=head.position) from None
