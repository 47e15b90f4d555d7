"""The transaction index: 34-byte entries, one for each aborted transaction.

Entries ascend by last offset.

`int16 version (0) | int64 producer id | int64 first offset | int64 last offset | int64 last stable
offset`, the last offset being that of the ABORT marker.

Source: org.apache.kafka.storage.internals.log.TransactionIndex (4.4.0; 4.3 reads entries of a
negative version, too), common.message.AbortedTxn.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, UnsupportedVersionError

ENTRY_BYTES = 34
VERSION = 0
_ENTRY = struct.Struct(">hqqqq")

assert _ENTRY.size == ENTRY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """A transaction that ended in ABORT: offsets from first record to marker, both inclusive."""

    version: int = VERSION
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def parse_transaction_index(buffer: Buffer) -> list[AbortedTransaction]:
    """Every entry.

    Raises:
        CorruptError: the size is not a multiple of 34, or last offsets do not ascend.
        UnsupportedVersionError: an entry is of another version than 0.
    """
    if len(buffer) % ENTRY_BYTES:
        raise CorruptError(
            f"transaction index of {len(buffer)} bytes, no multiple of {ENTRY_BYTES}"
        )
    entries: list[AbortedTransaction] = []
    for index, fields in enumerate(_ENTRY.iter_unpack(buffer)):
        at = index * ENTRY_BYTES
        if fields[0] != VERSION:
            raise UnsupportedVersionError(
                f"transaction index entry of version {fields[0]}", position=at
            )
        if entries and fields[3] <= entries[-1].last_offset:
            raise CorruptError(
                f"last offset {fields[3]} follows {entries[-1].last_offset}", position=at
            )
        entries.append(
            AbortedTransaction(
                version=fields[0],
                producer_id=fields[1],
                first_offset=fields[2],
                last_offset=fields[3],
                last_stable_offset=fields[4],
            )
        )
    return entries


def build_transaction_index(entries: Iterable[AbortedTransaction]) -> bytes:
    """The bytes of the entries, whose last offsets must ascend.

    Raises:
        ValueError: they do not.
    """
    out = bytearray()
    last = -1
    for entry in entries:
        if entry.last_offset <= last:
            raise ValueError(f"last offset {entry.last_offset} follows {last}")
        out += _ENTRY.pack(
            entry.version,
            entry.producer_id,
            entry.first_offset,
            entry.last_offset,
            entry.last_stable_offset,
        )
        last = entry.last_offset
    return bytes(out)
