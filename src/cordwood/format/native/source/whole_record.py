"""The layout of a whole record, headers included, and its checks.

Appends, verifications and `record_longs` walk records with it. A compaction finds keys with a walk
of its own (`records.record_after`), so that a verification does not repeat a mistake of that one.

Source: org.apache.kafka.common.record.DefaultRecord.readFrom.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.source.kernel import inlined
from cordwood.format.native.source.varints import LONG_BITS, varint


@inlined
def skip_field(buffer, position, end, bits):
    """(size, position after it and the bytes it counts); the position is -1 when malformed.

    A negative size is that of a null.
    """
    size, position = varint(buffer, position, end, bits)
    if position < 0 or size > end - position:
        return size, np.int64(-1)
    if size > 0:
        position += size
    return size, position


@inlined
def fields_at(buffer, position, end, bits):
    """(end, timestamp delta, offset delta, start of the content, start of the key, its size, value
    is null, start of the headers) of a record, whose headers are not read.

    The content is key, value and headers. The end is -1 when the record is malformed, or ends after
    `end`. `bits` is the width of all numbers but the timestamp delta: INT_BITS or LONG_BITS.
    """
    bad = (
        np.int64(-1), np.int64(0), np.int64(0), np.int64(0), np.int64(0), np.int64(0), False,
        np.int64(0),
    )  # fmt: skip
    length, position = varint(buffer, position, end, bits)
    if position < 0 or length <= 0 or length > end - position:
        return bad
    record_end = position + length
    # One byte of attributes, which have no meaning yet.
    time_delta, position = varint(buffer, position + 1, record_end, LONG_BITS)
    if position < 0:
        return bad
    offset_delta, position = varint(buffer, position, record_end, bits)
    if position < 0:
        return bad
    content = position
    key_size, position = skip_field(buffer, content, record_end, bits)
    if position < 0:
        return bad
    key_start = position - max(key_size, 0)
    value_size, position = skip_field(buffer, position, record_end, bits)
    if position < 0:
        return bad
    return (
        record_end, time_delta, offset_delta, content, key_start, key_size, value_size < 0,
        position,
    )  # fmt: skip


@inlined
def count_of_headers(buffer, position, end, bits):
    """(number of headers, position of the first); the position is -1 when malformed."""
    count, position = varint(buffer, position, end, bits)
    if count < 0 or count > end - position:
        return count, np.int64(-1)
    return count, position


@inlined
def _end_of_headers(buffer, position, end, bits):
    """The position after a record's headers, -1 when they are malformed."""
    count, position = count_of_headers(buffer, position, end, bits)
    if position < 0:
        return np.int64(-1)
    for _ in range(count):
        size, position = skip_field(buffer, position, end, bits)
        if position < 0 or size < 0:
            return np.int64(-1)
        _, position = skip_field(buffer, position, end, bits)
        if position < 0:
            return np.int64(-1)
    return position


@inlined
def record_at(buffer, position, end, bits):
    """The result of `fields_at` without the last; the end is -1 also when headers are malformed."""
    record_end, time_delta, delta, content, key_start, key_size, is_null, headers = fields_at(
        buffer, position, end, bits
    )
    if record_end >= 0 and _end_of_headers(buffer, headers, record_end, bits) != record_end:
        record_end = np.int64(-1)
    return record_end, time_delta, delta, content, key_start, key_size, is_null
