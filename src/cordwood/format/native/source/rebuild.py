"""Rebuilds batches from their retained records, and finds their positions for the indexes.

Twins: `cordwood.format.record_batch.build_batch` and `build_empty_batch`.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.batches import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    COUNT,
    HEADER_SIZE,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    SIZE,
)
from cordwood.format.native.codecs import NO_ROOM, NOT_HERE
from cordwood.format.native.rebuild import (
    BAD_RECORD,
    BY_PYTHON,
    COPY,
    DISCARD,
    EMPTY,
    GROWTH_PER_RECORD,
    OK,
    OUT_FULL,
    SCRATCH_FULL,
)
from cordwood.format.native.source.codecs import compress_records, decompress_records
from cordwood.format.native.source.kernel import Actions, Bytes, Ints, Rows, inlined, kernel
from cordwood.format.native.source.machine import copy_bytes, crc32c
from cordwood.format.native.source.records import body_of, deltas_of
from cordwood.format.native.source.survivor_bits import get_bit
from cordwood.format.native.source.varints import put_varint, size_of_varint

_HORIZON = 0x40
_LOG_APPEND_TIME = 0x08


@inlined
def _retain(
    buffer, start, end, table, row, ordinal, keep, horizon_ms, stamp_horizon, out, out_start, meta
):
    """Does what `retained_records` describes."""
    append_time = (table[row, ATTRIBUTES] & _LOG_APPEND_TIME) != 0
    old_base = table[row, BASE_TIMESTAMP]
    base = horizon_ms
    have_base = stamp_horizon
    newest = np.int64(-1)
    kept = 0
    position = start
    target = out_start
    for i in range(table[row, COUNT]):
        body, record_end = body_of(buffer, position, end)
        if body < 0:
            return np.int64(-1)
        if get_bit(keep, ordinal + i):
            time_delta, offset_delta, position = deltas_of(buffer, body, record_end)
            if position < 0:
                return np.int64(-1)
            timestamp = table[row, MAX_TIMESTAMP] if append_time else old_base + time_delta
            if not have_base:
                base = timestamp
                have_base = True
            newest = max(newest, timestamp)
            time_delta = timestamp - base
            tail = record_end - position
            size = 1 + size_of_varint(time_delta) + size_of_varint(offset_delta) + tail
            target = put_varint(out, target, size)
            out[target] = 0
            target = put_varint(out, target + 1, time_delta)
            target = put_varint(out, target, offset_delta)
            copy_bytes(out, target, buffer, position, tail)
            target += tail
            kept += 1
        position = record_end
    meta[0] = base
    meta[1] = table[row, MAX_TIMESTAMP] if append_time else newest
    meta[2] = kept
    return target


@kernel
def retained_records(
    buffer: Bytes,
    start: int,
    end: int,
    table: Rows,
    row: int,
    ordinal: int,
    keep: Bytes,
    horizon_ms: int,
    stamp_horizon: bool,
    out: Bytes,
    out_start: int,
    meta: Ints,
) -> int:
    """Writes the retained records of one batch, encoded again, to `out` from `out_start`.

    Args:
        table: of a block's batches.
        row: the batch's.
        horizon_ms: the delete horizon of the new batch, if `stamp_horizon`.
        stamp_horizon: the new batch carries a delete horizon.
        out: uint8, with space for the records and 10 bytes more for each.
        meta: int64[3]; receives base timestamp, maximum timestamp and count of the new batch.

    Returns:
        The position in `out` after the last record, or -1 when the records are malformed.

    Source: org.apache.kafka.common.record.MemoryRecordsBuilder.appendWithOffset.
    """
    return _retain(
        buffer,
        start,
        end,
        table,
        row,
        ordinal,
        keep,
        horizon_ms,
        stamp_horizon,
        out,
        out_start,
        meta,
    )


@inlined
def _put_be(out, position, value, size):
    for i in range(size):
        out[position + i] = np.uint8((value >> (8 * (size - 1 - i))) & 0xFF)


@kernel
def put_header(
    out: Bytes,
    position: int,
    source: Bytes,
    source_position: int,
    size: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> None:
    """Writes a batch header at `out[position]` and the CRC of the batch of `size` bytes there.

    Base offset, leader epoch, last offset delta, producer and sequence are copied from the header
    at `source[source_position]`.
    """
    copy_bytes(out, position, source, source_position, HEADER_SIZE)
    _put_be(out, position + 8, size - 12, 4)
    _put_be(out, position + 21, attributes, 2)
    _put_be(out, position + 27, base_timestamp, 8)
    _put_be(out, position + 35, max_timestamp, 8)
    _put_be(out, position + 57, count, 4)
    crc = crc32c(out, position + 21, position + size)
    _put_be(out, position + 17, np.int64(crc), 4)


@kernel
def put_empty_batch(buffer: Bytes, table: Rows, row: int, out: Bytes, target: int) -> int:
    """Writes the header of a batch without records; returns the position after it.

    Source: org.apache.kafka.common.record.DefaultRecordBatch.writeEmptyHeader.
    """
    kept_bits = table[row, ATTRIBUTES] & 0x38
    put_header(
        out,
        target,
        buffer,
        table[row, POSITION],
        HEADER_SIZE,
        kept_bits,
        np.int64(-1),
        table[row, MAX_TIMESTAMP],
        np.int64(0),
    )
    return target + HEADER_SIZE


@kernel
def assemble(
    buffer: Bytes,
    table: Rows,
    first: int,
    last: int,
    actions: Actions,
    kept: Ints,
    stamp: Bytes,
    horizons: Ints,
    ordinals: Ints,
    keep: Bytes,
    out: Bytes,
    written: Rows,
    plain: Bytes,
    retained: Bytes,
    codecs: Ints,
) -> tuple[int, int, int, int]:
    """Writes batches of a block as their `actions` say, from the start of `out`.

    Args:
        actions: int8[rows] of DISCARD, COPY, REBUILD and EMPTY.
        kept: int64[rows], number of retained records of each batch.
        stamp: uint8[rows]: the rebuilt batch has a delete horizon, `horizons[row]` (ms).
        out: uint8, filled as far as it goes.
        written: int64 (n, 3); receives size, last offset and maximum timestamp of each batch.
        plain: uint8, for the decompressed records of one batch.
        retained: uint8, for the retained records of one batch.
        codecs: `Codecs.table`.

    Returns:
        (bytes written to `out`, rows written to `written`, next row or `last`, result).
    """
    meta = np.empty(3, dtype=np.int64)
    target = np.int64(0)
    count = np.int64(0)
    for i in range(first, last):
        action = actions[i]
        if action == DISCARD:
            continue
        position = table[i, POSITION]
        size = table[i, SIZE]
        newest = table[i, MAX_TIMESTAMP]
        codec = table[i, ATTRIBUTES] & 7
        start = target
        if target + size + GROWTH_PER_RECORD * kept[i] + HEADER_SIZE > out.shape[0]:
            return target, count, i, OUT_FULL
        if action == COPY:
            copy_bytes(out, target, buffer, position, size)
            target += size
        elif action == EMPTY:
            target = put_empty_batch(buffer, table, i, out, target)
        else:
            source, begin, end = buffer, position + HEADER_SIZE, position + size
            into, into_start = out, target + HEADER_SIZE
            if codec != 0:
                end = decompress_records(buffer, begin, end, codec, plain, 0, codecs)
                if end == NO_ROOM:
                    return start, count, i, SCRATCH_FULL
                if end == NOT_HERE:
                    return start, count, i, BY_PYTHON
                if end < 0:
                    return start, count, i, BAD_RECORD
                if end + GROWTH_PER_RECORD * kept[i] > retained.shape[0]:
                    return start, count, i, SCRATCH_FULL
                source, begin, into, into_start = plain, 0, retained, 0
            after = _retain(
                source,
                begin,
                end,
                table,
                i,
                ordinals[i],
                keep,
                horizons[i],
                stamp[i] != 0,
                into,
                into_start,
                meta,
            )
            if after < 0:
                return start, count, i, BAD_RECORD
            if codec != 0:
                if target + HEADER_SIZE + after + after // 128 + 128 > out.shape[0]:
                    return start, count, i, OUT_FULL
                after = compress_records(
                    retained, 0, after, codec, out, target + HEADER_SIZE, codecs
                )
                if after < 0:
                    return start, count, i, BY_PYTHON
            attributes = table[i, ATTRIBUTES] & 0x3F
            if stamp[i]:
                attributes |= _HORIZON
            put_header(
                out, target, buffer, position, after - target, attributes, meta[0], meta[1], meta[2]
            )
            newest = meta[1]
            target = after
        written[count, 0] = target - start
        written[count, 1] = table[i, LAST_OFFSET]
        written[count, 2] = newest
        count += 1
    return target, count, last, OK


@kernel
def index_written(
    written: Rows,
    count: int,
    interval_bytes: int,
    state: Ints,
    offset_entries: Rows,
    time_entries: Rows,
    filled: Ints,
) -> None:
    """Says where index entries go for batches just appended to a segment.

    Args:
        written: int64 (n, 3), as `assemble` fills it; `count` rows.
        interval_bytes: index.interval.bytes.
        state: int64[5]: position in the segment, bytes since the last entry, maximum timestamp so
            far, its batch's last offset, timestamp of the last time index entry; updated.
        offset_entries: int64 (n, 2), receives (offset, position).
        time_entries: int64 (n, 2), receives (timestamp, offset).
        filled: int64[2], rows of both; updated.

    Source: org.apache.kafka.storage.internals.log.LogSegment.append.
    """
    for i in range(count):
        if written[i, 2] > state[2]:
            state[2] = written[i, 2]
            state[3] = written[i, 1]
        if state[1] > interval_bytes:
            offset_entries[filled[0], 0] = written[i, 1]
            offset_entries[filled[0], 1] = state[0]
            filled[0] += 1
            if state[2] > state[4]:
                time_entries[filled[1], 0] = state[2]
                time_entries[filled[1], 1] = state[3]
                filled[1] += 1
                state[4] = state[2]
            state[1] = 0
        state[0] += written[i, 0]
        state[1] += written[i, 0]
