"""Records that identify their writer and sequence number, and show whether they were altered.

A record carries a header with the number of its writer, its sequence number and a CRC-32 of its
key and value. Key, value and tombstone follow from writer and sequence number alone.
"""

from __future__ import annotations

import random
import struct
import zlib
from typing import NamedTuple

HEADER = "stamp"
_STAMP = struct.Struct(">BQI")
_KEYS_PER_WRITER = 200
_VALUE_BYTES = (20, 300)


class Payload(NamedTuple):
    """Content of a record that a writer sends; `value` is None for a tombstone."""

    key: bytes
    value: bytes | None
    header: bytes


class Stamp(NamedTuple):
    """Content of a header."""

    writer: int
    sequence: int


def key_of(writer: int, sequence: int) -> bytes:
    """The key of a record."""
    return b"w%d-%d" % (writer, sequence % _KEYS_PER_WRITER)


def is_tombstone(sequence: int) -> bool:
    """Whether a record of a compacted topic has no value."""
    return sequence % 11 == 3  # prime to the number of keys: all keys get some


def payload(writer: int, sequence: int, *, tombstones: bool) -> Payload:
    """The record that a writer sends under a sequence number."""
    key = key_of(writer, sequence)
    value: bytes | None = None
    if not (tombstones and is_tombstone(sequence)):
        rng = random.Random(writer << 40 | sequence)  # noqa: S311  # the same again each time
        value = rng.randbytes(rng.randint(*_VALUE_BYTES) // 2).hex().encode()
    return Payload(key, value, _STAMP.pack(writer, sequence, _crc(key, value)))


def read_stamp(key: bytes | None, value: bytes | None, header: bytes | None) -> Stamp | None:
    """The stamp of a record; None if it is not as it was sent."""
    if header is None or len(header) != _STAMP.size:
        return None
    writer, sequence, crc = _STAMP.unpack(header)
    if key != key_of(writer, sequence) or crc != _crc(key, value):
        return None
    return Stamp(writer, sequence)


def _crc(key: bytes | None, value: bytes | None) -> int:
    return zlib.crc32((key or b"") + (b"\0" if value is None else b"\1" + value))
