"""Zig-zag varints. Twin: `cordwood.format.varint`."""

from __future__ import annotations

import numpy as np

from cordwood.format.native.source.kernel import inlined


@inlined
def varint(buffer, position, end):
    """(zig-zag decoded value, next position); next position is -1 when malformed."""
    shift = np.uint64(0)
    value = np.uint64(0)
    while position < end and shift < np.uint64(70):
        byte = np.uint64(buffer[position])
        position += 1
        value |= (byte & np.uint64(0x7F)) << shift
        if byte < np.uint64(0x80):
            decoded = np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1))
            return decoded, position
        shift += np.uint64(7)
    return np.int64(0), np.int64(-1)


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
