"""The offset index: 8-byte entries `int32 relative offset | int32 position`.

An entry has the last offset of a batch, relative to the segment's base offset, and the position
in bytes of that batch's start in the `.log` file. Offsets ascend strictly. The index of an active
segment is padded with zeros.

Source: org.apache.kafka.storage.internals.log.OffsetIndex.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError

ENTRY_BYTES = 8
_ENTRY = struct.Struct(">ii")

assert _ENTRY.size == ENTRY_BYTES


def parse_offset_index(buffer: Buffer, base_offset: int) -> list[tuple[int, int]]:
    """Every entry as (absolute offset, position), the trailing zeros of an open index left out.

    Raises:
        CorruptError: the size is not a multiple of 8, or offsets or positions do not ascend.
    """
    if len(buffer) % ENTRY_BYTES:
        raise CorruptError(f"offset index of {len(buffer)} bytes, no multiple of {ENTRY_BYTES}")
    entries: list[tuple[int, int]] = []
    last_relative, last_position = -1, -1
    for index, (relative, position) in enumerate(_ENTRY.iter_unpack(buffer)):
        if relative == 0 and position == 0 and index > 0:
            # Only zeros may follow: they are space set aside, never written.
            if any(memoryview(buffer)[index * ENTRY_BYTES :]):
                raise CorruptError(
                    "offset index has entries after its end", position=index * ENTRY_BYTES
                )
            break
        if relative <= last_relative or position <= last_position:
            raise CorruptError(
                f"offset index entry ({relative}, {position}) follows "
                f"({last_relative}, {last_position})",
                position=index * ENTRY_BYTES,
            )
        entries.append((base_offset + relative, position))
        last_relative, last_position = relative, position
    if len(entries) == 1 and entries[0] == (base_offset, 0) and len(buffer) > ENTRY_BYTES:
        return []  # nothing but zeros
    return entries


def build_offset_index(entries: Iterable[tuple[int, int]], base_offset: int) -> bytes:
    """The bytes of entries (absolute offset, position), which must ascend.

    Raises:
        ValueError: they do not, or an offset is out of reach of the base offset.
    """
    out = bytearray()
    last = -1
    for offset, position in entries:
        if offset <= last:
            raise ValueError(f"offset {offset} follows {last}")
        if not 0 <= offset - base_offset < 1 << 31:
            raise ValueError(f"offset {offset} is out of reach of {base_offset}")
        out += _ENTRY.pack(offset - base_offset, position)
        last = offset
    return bytes(out)


def lookup_offset(
    entries: Sequence[tuple[int, int]], target_offset: int, base_offset: int
) -> tuple[int, int]:
    """The last entry with an offset <= the target, or (base offset, 0).

    Source: OffsetIndex.lookup.
    """
    index = bisect_right(entries, target_offset, key=lambda entry: entry[0])
    return entries[index - 1] if index else (base_offset, 0)
