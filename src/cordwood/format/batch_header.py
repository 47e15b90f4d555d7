"""The 61-byte header of a record batch of magic 2.

| position | bytes | field |
|---|---|---|
| 0 | 8 | base offset |
| 8 | 4 | batch length: bytes after this field |
| 12 | 4 | partition leader epoch, not covered by the CRC |
| 16 | 1 | magic |
| 17 | 4 | CRC-32C of the bytes from 21 to the end |
| 21 | 2 | attributes |
| 23 | 4 | last offset delta |
| 27 | 8 | base timestamp, or the delete horizon (attribute bit 6) |
| 35 | 8 | max timestamp |
| 43 | 8 | producer id |
| 51 | 2 | producer epoch |
| 53 | 4 | base sequence |
| 57 | 4 | records count |

All integers are big-endian; timestamps are ms since the epoch.

Source: org.apache.kafka.common.record.DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cordwood.format.compression import Codec, codec_of
from cordwood.format.record import increment_sequence
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, UnsupportedVersionError

HEADER_BYTES = 61
LOG_OVERHEAD_BYTES = 12
MAGIC_BYTES_MIN = 17  # bytes up to and including the magic of any version
CRC_START = 21
MAGIC = 2

CREATE_TIME = "CreateTime"
LOG_APPEND_TIME = "LogAppendTime"
NO_TIMESTAMP = -1

TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

_LAYOUT = struct.Struct(">qiibIhiqqqhii")

assert _LAYOUT.size == HEADER_BYTES


class BatchHeader(NamedTuple):
    """The fields of a batch's header, as stored and in the order stored."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record, inclusive, even if that record has been removed."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """One past the last offset."""
        return self.last_offset + 1

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole batch, offset and length fields included."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def codec(self) -> Codec:
        """The codec of the records.

        Raises:
            CorruptError: the attributes name none.
        """
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> str:
        """`CreateTime` or `LogAppendTime`."""
        return LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_BIT else CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        """True if the batch belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """True if the batch holds control records, which no consumer sees."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """True if the base timestamp is a delete horizon."""
        return bool(self.attributes & DELETE_HORIZON_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The moment (ms) from which on tombstones and markers of this batch may go, or None."""
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def has_producer_id(self) -> bool:
        """True if an idempotent or transactional producer wrote the batch."""
        return self.producer_id > -1

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, -1 without one; after 2^31-1 comes 0."""
        if self.base_sequence == -1:
            return -1
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The 61-byte header at `position`; neither its CRC nor its length is judged.

    Raises:
        CorruptError: fewer than 61 bytes are there.
        UnsupportedVersionError: the magic is not 2.
    """
    header = parse_header_of_any_magic(buffer, position)
    if header.magic != MAGIC:
        raise UnsupportedVersionError(f"record batch of magic {header.magic}", position=position)
    return header


def parse_header_of_any_magic(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The 61 bytes at `position` read as a header of magic 2, whatever magic they name.

    Raises:
        CorruptError: fewer than 61 bytes are there.
    """
    if position < 0 or len(buffer) - position < HEADER_BYTES:
        raise CorruptError("record batch header is cut off", position=position)
    return BatchHeader._make(_LAYOUT.unpack_from(buffer, position))


def build_header(header: BatchHeader) -> bytes:
    """The header's 61 bytes, with the CRC that it names."""
    return _LAYOUT.pack(*header)
