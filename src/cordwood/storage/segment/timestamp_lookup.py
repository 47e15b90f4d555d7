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

from cordwood.configs.value import LONG_MAX
from cordwood.format.batch_header import (
    HEADER_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    parse_header,
)
from cordwood.format.legacy import LegacyBatch
from cordwood.format.record_batch import RecordBatch
from cordwood.format.record_bound import require_record_within
from cordwood.format.varint import decode_varint, decode_varlong
from cordwood.model.errors import CorruptError, OversizedRecordError
from cordwood.storage.filesystem import File
from cordwood.storage.reading.batch_heads import BatchHead, iter_heads, read_batch
from cordwood.storage.segment.time_index import NO_TIMESTAMP, TimestampOffset

_CODEC_MASK = 0x07


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
    heads: Iterator[BatchHead],
    file: File,
    timestamp: int,
    starting_offset: int,
    *,
    record_bytes_max: int,
    path: Path,
) -> TimestampAndOffset | None:
    """The first record of `heads` with at least that timestamp and offset.

    Raises:
        OversizedRecordError: a record up to it, compressed, is of more than `record_bytes_max`.
        CorruptError: a batch cannot be read.
    """
    for head in heads:
        if head.max_timestamp >= timestamp:
            wanted = _Wanted(timestamp, LONG_MAX, starting_offset, record_bytes_max)
            found = _first(file, head, wanted, path)
            if found is not None:
                return found
    return None


def first_with(
    heads: Iterator[BatchHead], file: File, timestamp: int, *, record_bytes_max: int, path: Path
) -> TimestampAndOffset | None:
    """The first record of that very timestamp in the first batch whose largest it is.

    None if there is no such batch, and if it has magic 0, whose records have no timestamps.
    Source: org.apache.kafka.common.record.internal.RecordBatch.offsetOfMaxTimestamp.

    Raises:
        OversizedRecordError: as `first_at_or_after`.
        CorruptError: a batch cannot be read.
    """
    for head in heads:
        if head.max_timestamp == timestamp:
            if head.magic == 0:
                return None
            wanted = _Wanted(timestamp, timestamp, 0, record_bytes_max)
            return _first(file, head, wanted, path)
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


class _Wanted(NamedTuple):
    """Timestamps from `least` to `most`, and offsets from `starting_offset` on."""

    least: int
    most: int
    starting_offset: int
    record_bytes_max: int


def _first(file: File, head: BatchHead, wanted: _Wanted, path: Path) -> TimestampAndOffset | None:
    """The first record of a batch that is wanted."""
    try:
        if head.magic == MAGIC:
            return _first_of(file.read_at(head.size_bytes, head.position), wanted)
        batch = read_batch(file, head, path=path)
        assert isinstance(batch, LegacyBatch), batch
        least, most, starting_offset, record_bytes_max = wanted
        for record in batch.records(record_bytes_max=record_bytes_max):
            if least <= record.timestamp <= most and record.offset >= starting_offset:
                return TimestampAndOffset(record.timestamp, record.offset, head.leader_epoch)
    except CorruptError as error:
        raise error.located(path=str(path), base_position=head.position) from None
    return None


def _first_of(raw: bytes, wanted: _Wanted) -> TimestampAndOffset | None:
    """Finds the first such record; only size and timestamp are decoded of records before it."""
    header = parse_header(raw)
    if not header.attributes & _CODEC_MASK:
        unbounded = wanted._replace(record_bytes_max=LONG_MAX)
        return _first_in(header, raw, HEADER_BYTES, unbounded)
    batch = RecordBatch(header, raw)
    try:
        payload = batch.payload(record_bytes_max=wanted.record_bytes_max)
    except OversizedRecordError as error:
        return _first_before(batch, wanted, error)
    return _first_in(header, payload, 0, wanted)


def _first_before(
    batch: RecordBatch, wanted: _Wanted, error: OversizedRecordError
) -> TimestampAndOffset:
    """Finds it before the record that `error` is about, and raises that if it is not there."""
    start = batch.payload_start(record_bytes_max=wanted.record_bytes_max)
    try:
        found = _first_in(batch.header, start, 0, wanted)
    except OversizedRecordError:
        raise
    except CorruptError:  # the start ends somewhere
        raise error from None
    if found is None:
        raise error
    return found


def _first_in(
    header: BatchHeader, payload: bytes | bytearray, position: int, wanted: _Wanted
) -> TimestampAndOffset | None:
    least, most, starting_offset, record_bytes_max = wanted
    end = len(payload)
    base = header.base_timestamp
    stamp = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else None
    for _ in range(header.records_count):
        size, position = decode_varint(payload, position)
        require_record_within(size, record_bytes_max)
        if not 0 < size <= end - position:
            raise CorruptError(
                f"record of {size} bytes in a batch with {end - position} left", position=position
            )
        delta, at = decode_varlong(payload, position + 1)  # behind a byte of attributes
        timestamp = base + delta if stamp is None else stamp
        if least <= timestamp <= most:
            delta, _ = decode_varint(payload, at)
            if header.base_offset + delta >= starting_offset:
                epoch = header.partition_leader_epoch
                return TimestampAndOffset(timestamp, header.base_offset + delta, epoch)
        position += size
    return None
