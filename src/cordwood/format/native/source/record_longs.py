"""Reads one number of each record: its timestamp, that of a header, or when it expires.

Twin: `cordwood.format.record_longs`.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.batches import ATTRIBUTES, BASE_TIMESTAMP, COUNT, MAX_TIMESTAMP
from cordwood.format.native.record_longs import EXPIRY, TIMESTAMP
from cordwood.format.native.records import BAD_RECORD, OK
from cordwood.format.native.source.kernel import Bytes, Flags, Ints, Rows, inlined, kernel
from cordwood.format.native.source.varints import LONG_BITS
from cordwood.format.native.source.whole_record import (
    count_of_headers,
    fields_at,
    skip_field,
)

_LOG_APPEND_TIME = 0x08
_LONG_BYTES = 8
_LONG_MAX = (1 << 63) - 1
_LONG_DIGITS = 19
_ZERO, _NINE = 0x30, 0x39


@inlined
def _big_endian(buffer, start):
    value = np.uint64(0)
    for i in range(_LONG_BYTES):
        value = (value << np.uint64(8)) | np.uint64(buffer[start + i])
    return np.int64(value)


@inlined
def _decimal(buffer, start, size):
    """The number of some decimal digits; -1 if they are none, or it is too large."""
    if size < 1 or size > _LONG_DIGITS:
        return np.int64(-1)
    value = np.int64(0)
    for i in range(size):
        digit = np.int64(buffer[start + i])
        if digit < _ZERO or digit > _NINE:
            return np.int64(-1)
        digit -= _ZERO
        if value > (_LONG_MAX - digit) // 10:
            return np.int64(-1)
        value = 10 * value + digit
    return value


@inlined
def _duration(buffer, start, size):
    """A number of milliseconds; -1 if it is none."""
    value = _decimal(buffer, start, size)
    if value >= 0:
        return value
    if size == _LONG_BYTES:
        return max(_big_endian(buffer, start), np.int64(-1))
    return np.int64(-1)


@inlined
def _is_key(buffer, start, size, key):
    if size != key.shape[0]:
        return False
    differing = 0
    for i in range(size):
        differing |= buffer[start + i] ^ key[i]
    return differing == 0


@inlined
def _last_header(buffer, position, end, key):
    """(position behind the headers or -1, start and size of the value of the last with `key`).

    The size is -1 where there is none, or its value is null.
    """
    start = np.int64(0)
    found = np.int64(-1)
    count, position = count_of_headers(buffer, position, end, LONG_BITS)
    if position < 0:
        return np.int64(-1), start, found
    for _ in range(count):
        size, position = skip_field(buffer, position, end, LONG_BITS)
        if position < 0 or size < 0:
            return np.int64(-1), start, found
        is_it = _is_key(buffer, position - size, size, key)
        size, position = skip_field(buffer, position, end, LONG_BITS)
        if position < 0:
            return np.int64(-1), start, found
        if is_it:
            start = position - max(size, 0)
            found = size
    return position, start, found


@kernel
def record_longs(
    buffer: Bytes,
    batches: Rows,
    first: int,
    last: int,
    spans: Rows,
    starts: Ints,
    kind: int,
    key: Bytes,
    values: Ints,
    known: Flags,
) -> tuple[int, int]:
    """Reads a number of each record of the rows `first` to `last` (exclusive) of a batch table.

    Args:
        buffer: uint8, with at least 24 readable bytes beyond the records.
        batches: a batch table.
        first: the first row.
        last: exclusive.
        spans: int64 of shape (rows, 2): where in `buffer` each batch's records start and end; a
            start of -1 leaves the batch out.
        starts: int64[rows], the place of each batch's first record in the next two.
        kind: which number (`cordwood.format.native.record_longs`).
        key: that of the header, if it is asked for; of several the last counts.
        values: int64, written; 0 where there is no such number.
        known: bool, written: whether the record has one.

    Returns:
        (OK, `last`), or (BAD_RECORD, row).
    """
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        position = spans[i, 0]
        end = spans[i, 1]
        is_append_time = batches[i, ATTRIBUTES] & _LOG_APPEND_TIME != 0
        for record in range(batches[i, COUNT]):
            position, delta, _, _, _, _, _, headers = fields_at(buffer, position, end, LONG_BITS)
            if position < 0:
                return BAD_RECORD, i
            at = starts[i] + record
            timestamp = batches[i, BASE_TIMESTAMP] + delta
            if is_append_time:
                timestamp = batches[i, MAX_TIMESTAMP]
            values[at] = 0
            known[at] = False
            if kind == TIMESTAMP:
                values[at] = timestamp
                known[at] = True
                continue
            behind, start, size = _last_header(buffer, headers, position, key)
            if behind != position:
                return BAD_RECORD, i
            if kind == EXPIRY:
                ttl = _duration(buffer, start, size)
                if ttl >= 0 and timestamp >= 0 and timestamp <= _LONG_MAX - ttl:
                    values[at] = timestamp + ttl
                    known[at] = True
            elif size == _LONG_BYTES:
                values[at] = _big_endian(buffer, start)
                known[at] = True
    return OK, last
