"""Zig-zag varints. Twin: `cordwood.format.varint`."""

from __future__ import annotations

import numpy as np

from cordwood.format.native.source.kernel import inlined

INT_BITS = np.uint64(35)  # bits that the bytes of a varint hold
LONG_BITS = np.uint64(70)  # and those of a varlong
_MASK_32 = np.uint64(0xFFFFFFFF)


@inlined
def _zigzag(value):
    return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))


@inlined
def _long_form(buffer, position, end, bits):
    shift = np.uint64(0)
    value = np.uint64(0)
    while position < end and shift < bits:
        byte = np.uint64(buffer[np.uint64(position)])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            if bits == INT_BITS:
                value &= _MASK_32
            return _zigzag(value), position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


@inlined
def varint(buffer, position, end, bits):
    """(zig-zag decoded value, next position); next position is -1 when malformed.

    Bits beyond the 32 or 64 of the type are dropped, as Java's shifts drop them. The position is
    not negative, so an index is unsigned: a signed one would be compared with 0 for each byte.
    """
    if position + 1 < end:  # most numbers take a byte or two
        low = np.uint64(buffer[np.uint64(position)])
        if low < np.uint64(0x80):
            return _zigzag(low), position + 1
        high = np.uint64(buffer[np.uint64(position + 1)])
        if high < np.uint64(0x80):
            return _zigzag((low & np.uint64(0x7F)) | (high << np.uint64(7))), position + 2
    return _long_form(buffer, position, end, bits)


@inlined
def put_varint(out, position, value):
    """Writes `value` at `out[position]`; returns the position after it."""
    encoded = np.uint64(value << 1) ^ np.uint64(value >> 63)
    while encoded >= np.uint64(0x80):
        out[position] = np.uint8((encoded & np.uint64(0x7F)) | np.uint64(0x80))
        encoded >>= np.uint64(7)
        position += 1
    out[position] = np.uint8(encoded)
    return position + 1


@inlined
def size_of_varint(value):
    """The encoded size of `value` in bytes."""
    encoded = np.uint64(value << 1) ^ np.uint64(value >> 63)
    size = 1
    while encoded >= np.uint64(0x80):
        encoded >>= np.uint64(7)
        size += 1
    return size
