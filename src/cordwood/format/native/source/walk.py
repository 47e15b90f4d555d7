"""Walks the records of one batch. Twin: `cordwood.storage.append.record_walk.walk_plainly`.

Source: org.apache.kafka.common.record.DefaultRecord.readFrom.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.source.kernel import ReadOnlyBytes, inlined, kernel

_FEW = np.uint64(35)  # bits that the bytes of a varint hold
_MANY = np.uint64(70)  # and those of a varlong
_MASK_32 = np.uint64(0xFFFFFFFF)
_BAD = np.uint64(0)  # a valid number never ends at position 0


@inlined
def _long_form(buffer, position, end, bits):
    """The zig-zag number at `position`, and the position after it or `_BAD`.

    Bits beyond the 32 or 64 of the type are dropped, as Java's shifts drop them.
    """
    shift = np.uint64(0)
    value = np.uint64(0)
    while position < end and shift < bits:
        byte = np.uint64(buffer[position])
        position += np.uint64(1)
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if bits == _FEW:
                value &= _MASK_32
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
    return np.int64(0), _BAD


@inlined
def _number(buffer, position, end, bits):
    """As `_long_form`, faster for numbers of one byte or two."""
    if position + np.uint64(1) < end:
        low = np.uint64(buffer[position])
        if low < np.uint64(0x80):
            return np.int64(low >> np.uint64(1)) ^ -np.int64(
                low & np.uint64(1)
            ), position + np.uint64(1)
        high = np.uint64(buffer[position + np.uint64(1)])
        if high < np.uint64(0x80):
            value = (low & np.uint64(0x7F)) | (high << np.uint64(7))
            return np.int64(value >> np.uint64(1)) ^ -np.int64(
                value & np.uint64(1)
            ), position + np.uint64(2)
    return _long_form(buffer, position, end, bits)


@inlined
def _skip(buffer, position, end):
    """(length, position after it and the bytes it counts or `_BAD`); negative lengths are null."""
    length, position = _number(buffer, position, end, _FEW)
    if position != _BAD and length > 0:
        if np.uint64(length) > end - position:
            return length, _BAD
        position += np.uint64(length)
    return length, position


@inlined
def _skip_headers(buffer, position, end, count):
    """The position after `count` headers, or `_BAD`."""
    for _ in range(count):
        length, position = _skip(buffer, position, end)
        if position == _BAD or length < 0:
            return _BAD
        length, position = _skip(buffer, position, end)
        if position == _BAD:
            return _BAD
    return position


@kernel
def walk(buffer: ReadOnlyBytes, count: int) -> tuple[int, np.uint64, int, int, int, bool]:
    """Reads `count` records from the start of `buffer`, as far as they are well-formed.

    Returns:
        (records read, position after them, least and greatest timestamp delta, records without a
        key, whether offset deltas are 0, 1, 2 ...), the deltas being 0 when nothing was read.
    """
    end = np.uint64(buffer.shape[0])
    position = np.uint64(0)
    least = np.int64(0)
    greatest = np.int64(0)
    null_keys = np.int64(0)
    sequential = True
    for index in range(count):
        length, at = _number(buffer, position, end, _FEW)
        if at == _BAD or length <= 0 or np.uint64(length) > end - at:
            return index, position, least, greatest, null_keys, sequential
        record_end = at + np.uint64(length)
        # One byte of attributes, which have no meaning yet.
        time_delta, at = _number(buffer, at + np.uint64(1), record_end, _MANY)
        if at == _BAD:
            return index, position, least, greatest, null_keys, sequential
        offset_delta, at = _number(buffer, at, record_end, _FEW)
        if at == _BAD:
            return index, position, least, greatest, null_keys, sequential
        key_length, at = _skip(buffer, at, record_end)
        if at == _BAD:
            return index, position, least, greatest, null_keys, sequential
        _, at = _skip(buffer, at, record_end)
        if at == _BAD:
            return index, position, least, greatest, null_keys, sequential
        headers, at = _number(buffer, at, record_end, _FEW)
        if at == _BAD or headers < 0 or np.uint64(headers) > record_end - at:
            return index, position, least, greatest, null_keys, sequential
        if headers > 0:
            at = _skip_headers(buffer, at, record_end, headers)
        if at != record_end:
            return index, position, least, greatest, null_keys, sequential
        if index == 0:
            least = greatest = time_delta
        else:
            least = min(least, time_delta)
            greatest = max(greatest, time_delta)
        if key_length < 0:
            null_keys += 1
        if offset_delta != index:
            sequential = False
        position = record_end
    return count, position, least, greatest, null_keys, sequential
