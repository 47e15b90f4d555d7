"""Walks record batch headers in a buffer. Twin: `cordwood.format.record_batch.iter_batches`."""

from __future__ import annotations

import numba as nb
import numpy as np

from cordwood.format.native.machine import crc32c, load_u64

# Columns of a batch table: int64, one row a batch. Positions are bytes from the buffer's start.
POSITION = 0
SIZE = 1
BASE_OFFSET = 2
LAST_OFFSET = 3
MAGIC = 4
ATTRIBUTES = 5
BASE_TIMESTAMP = 6
MAX_TIMESTAMP = 7
PRODUCER_ID = 8
PRODUCER_EPOCH = 9
BASE_SEQUENCE = 10
COUNT = 11
LEADER_EPOCH = 12
COLUMNS = 13

# The results of a walk.
ENDED = 0  # the end, or only a partial batch, is left
FULL = 1  # the table is full
BAD_LENGTH = 2
BAD_MAGIC = 3
BAD_CRC = 4
BAD_COUNT = 5
LEGACY = 6  # a magic 0 or 1 entry: the caller walks these in Python

HEADER_SIZE = 61
_PREFIX_SIZE = 12
_RECORDS_OVERHEAD_MIN = 14
_CODEC_MASK = 0x07


@nb.njit(cache=True, nogil=True, inline="always")
def _be64(buffer, position):
    value = load_u64(buffer, position)
    swapped = np.uint64(0)
    for i in range(8):
        byte = (value >> np.uint64(8 * i)) & np.uint64(0xFF)
        swapped |= byte << np.uint64(56 - 8 * i)
    return np.int64(swapped)


@nb.njit(cache=True, nogil=True, inline="always")
def _be32(buffer, position):
    value = (
        (np.uint32(buffer[position]) << np.uint32(24))
        | (np.uint32(buffer[position + 1]) << np.uint32(16))
        | (np.uint32(buffer[position + 2]) << np.uint32(8))
        | np.uint32(buffer[position + 3])
    )
    return np.int64(np.int32(value))


@nb.njit(cache=True, nogil=True)
def scan_batches(buffer, start, end, table, check_crc):
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
        row = table[rows]
        row[POSITION] = position
        row[SIZE] = size
        row[BASE_OFFSET] = _be64(buffer, position)
        row[LEADER_EPOCH] = _be32(buffer, position + 12)
        row[MAGIC] = magic
        row[ATTRIBUTES] = (np.int64(buffer[position + 21]) << 8) | np.int64(buffer[position + 22])
        row[LAST_OFFSET] = row[BASE_OFFSET] + _be32(buffer, position + 23)
        row[BASE_TIMESTAMP] = _be64(buffer, position + 27)
        row[MAX_TIMESTAMP] = _be64(buffer, position + 35)
        row[PRODUCER_ID] = _be64(buffer, position + 43)
        epoch = (np.int64(buffer[position + 51]) << 8) | np.int64(buffer[position + 52])
        row[PRODUCER_EPOCH] = epoch - 65536 if epoch >= 32768 else epoch
        row[BASE_SEQUENCE] = _be32(buffer, position + 53)
        row[COUNT] = _be32(buffer, position + 57)
        # A record takes seven bytes at least; only a compressed batch can hold more than fit.
        if row[COUNT] < 0 or row[LAST_OFFSET] < row[BASE_OFFSET]:
            return rows, position, BAD_COUNT
        if row[ATTRIBUTES] & _CODEC_MASK == 0 and row[COUNT] * 7 > size - HEADER_SIZE:
            return rows, position, BAD_COUNT
        if row[COUNT] > row[LAST_OFFSET] - row[BASE_OFFSET] + 1:
            return rows, position, BAD_COUNT
        rows += 1
        position += size
