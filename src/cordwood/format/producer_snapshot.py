"""Producer snapshots: the state of each producer at the offset in the file name.

`int16 version (1) | uint32 crc | int32 count | entries of 46 bytes`, the crc being CRC-32C of what
follows it.

Source: org.apache.kafka.storage.internals.log.ProducerStateManager.readSnapshot, writeSnapshot.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.format.crc32c import crc32c
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, UnsupportedVersionError

VERSION = 1
HEADER_BYTES = 10
ENTRY_BYTES = 46
CRC_START = 6

_HEADER = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")

assert _HEADER.size == HEADER_BYTES
assert _ENTRY.size == ENTRY_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerEntry:
    """One producer's state.

    `last_offset` and `last_sequence` are those of its last batch, -1 if it has none (only a marker
    of the producer is in the log); `offset_delta` is that batch's last offset minus its base
    offset; `timestamp` is in ms; `current_txn_first_offset` is -1 if no transaction is open.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    offset_delta: int = 0
    timestamp: int = -1
    coordinator_epoch: int = -1
    current_txn_first_offset: int = -1


def parse_producer_snapshot(buffer: Buffer) -> list[ProducerEntry]:
    """The entries, in the order stored.

    Raises:
        CorruptError: the CRC is wrong, or the size does not match the count.
        UnsupportedVersionError: the version is not 1.
    """
    if len(buffer) < HEADER_BYTES:
        raise CorruptError(f"producer snapshot of {len(buffer)} bytes")
    version, crc, count = _HEADER.unpack_from(buffer)
    if version != VERSION:
        raise UnsupportedVersionError(
            "Snapshot failed schema validation: "
            f"Snapshot contained an unknown file version {version}"
        )
    if count < 0 or len(buffer) < HEADER_BYTES + count * ENTRY_BYTES:
        raise CorruptError(
            "Snapshot failed schema validation: "
            f"{len(buffer)} bytes cannot hold the {count} entries declared"
        )
    computed = crc32c(memoryview(buffer)[CRC_START:])
    if crc != computed:
        raise CorruptError(
            "Snapshot is corrupt (CRC is no longer valid). "
            f"Stored crc: {crc}. Computed crc: {computed}",
            position=2,
        )
    if len(buffer) > HEADER_BYTES + count * ENTRY_BYTES:
        raise CorruptError(f"producer snapshot of {len(buffer)} bytes declares {count} entries")
    return [
        ProducerEntry(
            producer_id=fields[0],
            producer_epoch=fields[1],
            last_sequence=fields[2],
            last_offset=fields[3],
            offset_delta=fields[4],
            timestamp=fields[5],
            coordinator_epoch=fields[6],
            current_txn_first_offset=fields[7],
        )
        for fields in _ENTRY.iter_unpack(memoryview(buffer)[HEADER_BYTES:])
    ]


def build_producer_snapshot(entries: Sequence[ProducerEntry]) -> bytes:
    """The bytes of a snapshot with those entries, in that order."""
    body = struct.pack(">i", len(entries)) + b"".join(
        _ENTRY.pack(
            entry.producer_id,
            entry.producer_epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.offset_delta,
            entry.timestamp,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for entry in entries
    )
    return struct.pack(">hI", VERSION, crc32c(body)) + body
