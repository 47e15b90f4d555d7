"""The time index: 12-byte entries `int64 timestamp | int32 relative offset`.

All records up to and including that offset have timestamps (ms) of at most the entry's. Timestamps
ascend strictly, offsets do not descend. The index of an active segment is padded with zeros.

Source: org.apache.kafka.storage.internals.log.TimeIndex.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError

ENTRY_BYTES = 12
_ENTRY = struct.Struct(">qi")

assert _ENTRY.size == ENTRY_BYTES


def parse_time_index(buffer: Buffer, base_offset: int) -> list[tuple[int, int]]:
    """Every entry as (timestamp in ms, absolute offset), trailing zeros left out.

    Raises:
        CorruptError: the size is not a multiple of 12, or timestamps or offsets descend.
    """
    if len(buffer) % ENTRY_BYTES:
        raise CorruptError(f"time index of {len(buffer)} bytes, no multiple of {ENTRY_BYTES}")
    entries: list[tuple[int, int]] = []
    last: tuple[int, int] | None = None
    for index, (timestamp, relative) in enumerate(_ENTRY.iter_unpack(buffer)):
        at = index * ENTRY_BYTES
        if timestamp == 0 and relative == 0 and not any(memoryview(buffer)[at:]):
            if index == 0 and len(buffer) == ENTRY_BYTES:
                entries.append((0, base_offset))  # a real entry: one record at the epoch
            break
        if relative < 0 or (last is not None and (timestamp <= last[0] or relative < last[1])):
            raise CorruptError(
                f"time index entry ({timestamp}, {relative}) follows {last}", position=at
            )
        last = (timestamp, relative)
        entries.append((timestamp, base_offset + relative))
    return entries


def build_time_index(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """The bytes of entries (timestamp in ms, absolute offset), whose timestamps must ascend.

    Raises:
        ValueError: they do not, or offsets descend or are out of reach of the base offset.
    """
    out = bytearray()
    last: tuple[int, int] | None = None
    for timestamp, offset in entries:
        if last is not None and (timestamp <= last[0] or offset < last[1]):
            raise ValueError(f"{(timestamp, offset)} follows {last}")
        if not 0 <= offset - base_offset < 1 << 31:
            raise ValueError(f"offset {offset} is out of reach of {base_offset}")
        out += _ENTRY.pack(timestamp, offset - base_offset)
        last = (timestamp, offset)
    return bytes(out)


def lookup_timestamp(
    entries: Sequence[tuple[int, int]], target_ms: int, base_offset: int
) -> tuple[int, int]:
    """The last entry with a timestamp <= the target, or (-1, base offset).

    Source: TimeIndex.lookup.
    """
    index = bisect_right(entries, target_ms, key=lambda entry: entry[0])
    return entries[index - 1] if index else (-1, base_offset)
