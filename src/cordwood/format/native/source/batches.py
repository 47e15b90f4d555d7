"""Walks record batch headers in a buffer. Twin: `cordwood.format.record_batch.iter_batches`."""

from __future__ import annotations

import numpy as np

from cordwood.format.native.batches import (
    ATTRIBUTES,
    BAD_COUNT,
    BAD_CRC,
    BAD_LENGTH,
    BAD_MAGIC,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    COUNT,
    ENDED,
    FULL,
    HEADER_SIZE,
    LAST_OFFSET,
    LEADER_EPOCH,
    LEGACY,
    MAGIC,
    MAX_TIMESTAMP,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
)
from cordwood.format.native.source.kernel import Bytes, Rows, inlined, kernel
from cordwood.format.native.source.machine import crc32c, load_u64

_PREFIX_SIZE = 12
_RECORDS_OVERHEAD_MIN = 14
_CODEC_MASK = 0x07


@inlined
def _be64(buffer, position):
    value = load_u64(buffer, position)
    swapped = np.uint64(0)
    for i in range(8):
        byte = (value >> np.uint64(8 * i)) & np.uint64(0xFF)
        swapped |= byte << np.uint64(56 - 8 * i)
    return np.int64(swapped)


@inlined
def _be32(buffer, position):
    value = (
        (np.uint32(buffer[position]) << np.uint32(24))
        | (np.uint32(buffer[position + 1]) << np.uint32(16))
        | (np.uint32(buffer[position + 2]) << np.uint32(8))
        | np.uint32(buffer[position + 3])
    )
    return np.int64(np.int32(value))


@kernel
def scan_batches(
    buffer: Bytes, start: int, end: int, table: Rows, check_crc: bool
) -> tuple[int, int, int]:
    """Reads batch headers from `start` (inclusive) to `end` (exclusive) into rows of `table`.

    Args:
        buffer: uint8, with at least 8 readable bytes beyond `end`.
        start: position of the first batch.
        end: position after the last byte.
        table: int64 of shape (rows, COLUMNS), filled from row 0.
        check_crc: compute the CRC of every batch.

    Returns:
        (rows filled, position after the last whole batch, result of the walk). After an error the
        position is that of the bad batch.
    """
    rows = 0
    position = start
    while True:
        if end - position < 17:
            return rows, position, ENDED
        length = _be32(buffer, position + 8)
        magic = np.int64(np.int8(buffer[position + 16]))
        if length < _RECORDS_OVERHEAD_MIN:
            return rows, position, BAD_LENGTH
        if magic < 0 or magic > 2:
            return rows, position, BAD_MAGIC
        size = length + _PREFIX_SIZE
        if position + size > end:
            return rows, position, ENDED
        if magic < 2:
            return rows, position, LEGACY
        if size < HEADER_SIZE:
            return rows, position, BAD_LENGTH
        if rows == table.shape[0]:
            return rows, position, FULL
        if check_crc:
            expected = np.uint64(_be32(buffer, position + 17)) & np.uint64(0xFFFFFFFF)
            if crc32c(buffer, position + 21, position + size) != expected:
                return rows, position, BAD_CRC
        table[rows, POSITION] = position
        table[rows, SIZE] = size
        table[rows, BASE_OFFSET] = _be64(buffer, position)
        table[rows, LEADER_EPOCH] = _be32(buffer, position + 12)
        table[rows, MAGIC] = magic
        table[rows, ATTRIBUTES] = (np.int64(buffer[position + 21]) << 8) | np.int64(
            buffer[position + 22]
        )
        table[rows, LAST_OFFSET] = table[rows, BASE_OFFSET] + _be32(buffer, position + 23)
        table[rows, BASE_TIMESTAMP] = _be64(buffer, position + 27)
        table[rows, MAX_TIMESTAMP] = _be64(buffer, position + 35)
        table[rows, PRODUCER_ID] = _be64(buffer, position + 43)
        epoch = (np.int64(buffer[position + 51]) << 8) | np.int64(buffer[position + 52])
        table[rows, PRODUCER_EPOCH] = epoch - 65536 if epoch >= 32768 else epoch
        table[rows, BASE_SEQUENCE] = _be32(buffer, position + 53)
        table[rows, COUNT] = _be32(buffer, position + 57)
        # A record takes seven bytes at least; only a compressed batch can hold more than fit.
        if table[rows, COUNT] < 0 or table[rows, LAST_OFFSET] < table[rows, BASE_OFFSET]:
            return rows, position, BAD_COUNT
        if (
            table[rows, ATTRIBUTES] & _CODEC_MASK == 0
            and table[rows, COUNT] * 7 > size - HEADER_SIZE
        ):
            return rows, position, BAD_COUNT
        if table[rows, COUNT] > table[rows, LAST_OFFSET] - table[rows, BASE_OFFSET] + 1:
            return rows, position, BAD_COUNT
        rows += 1
        position += size
