"""Message sets of magic 0 and 1, which clients wrote before Kafka 0.11 and old disks still hold.

A message is `offset int64 | size int32 | crc uint32 | magic int8 | attributes int8 |
[timestamp int64, magic 1] | key length int32 | key | value length int32 | value`, the crc being
CRC-32 of what follows it. A compressed message wraps a message set in its value; in magic 1 the
offsets in there are relative, and the wrapper's offset is that of the last one.

Source: org.apache.kafka.common.record.LegacyRecord, AbstractLegacyRecordBatch.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cordwood.format.byte_reader import ByteReader
from cordwood.format.compression import (
    DECOMPRESSED_BYTES_MAX,
    Codec,
    codec_of,
    compress,
    decompress,
    decompress_start,
)
from cordwood.format.record import Record
from cordwood.format.record_bound import (
    RECORD_BYTES_MAX,
    require_record_within,
    sizes_to_look_at,
)
from cordwood.format.varint import Buffer
from cordwood.model.errors import BatchTooLargeError, CorruptError, UnsupportedVersionError

LOG_OVERHEAD_BYTES = 12
LEGACY_OVERHEAD_V0 = 14  # crc, magic, attributes, two lengths
LEGACY_OVERHEAD_V1 = 22  # the same and a timestamp

NO_TIMESTAMP = -1
NO_TIMESTAMP_TYPE = "NoTimestampType"
_TIMESTAMP_TYPE_BIT = 0x08


@dataclass(frozen=True, slots=True, kw_only=True)
class LegacyBatch:
    """One message of magic 0 or 1 in the log: a record, or a compressed set of records.

    `offset` is the offset of the message; for a compressed message, of its last record. `timestamp`
    is in ms, -1 in magic 0. `raw` may be a view of a larger buffer and is valid as long as that.
    """

    offset: int
    size_bytes: int
    magic: int
    crc: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    raw: Buffer

    @classmethod
    def parse(cls, raw: Buffer, *, position: int = 0) -> LegacyBatch:
        """The message in `raw`; the caller has checked the size field.

        Raises:
            CorruptError: key or value exceed the message, or bytes remain after them.
            UnsupportedVersionError: the magic is neither 0 nor 1.
        """
        reader = ByteReader(raw)
        try:
            offset = reader.int64()
            reader.int32()
            crc = reader.uint32()
            magic = reader.int8()
            if magic not in {0, 1}:
                raise UnsupportedVersionError(f"message of magic {magic}", position=16)
            attributes = reader.uint8()
            timestamp = reader.int64() if magic == 1 else NO_TIMESTAMP
            key = _parse_nullable_bytes(reader)
            value = _parse_nullable_bytes(reader)
        except CorruptError as error:
            at = position + (error.position or 0)
            raise type(error)(error.reason, position=at) from None
        return cls(
            offset=offset,
            size_bytes=len(raw),
            magic=magic,
            crc=crc,
            attributes=attributes,
            timestamp=timestamp,
            key=key,
            value=value,
            raw=raw,
        )

    @property
    def base_offset(self) -> int:
        """The offset of the first record; reading it decompresses a compressed message."""
        return self.offset if self.codec is Codec.NONE else self.records()[0].offset

    @property
    def last_offset(self) -> int:
        """The offset of the last record, inclusive."""
        return self.offset

    @property
    def next_offset(self) -> int:
        """One past the last offset."""
        return self.offset + 1

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of its records in ms, -1 in magic 0."""
        return self.timestamp

    @property
    def codec(self) -> Codec:
        """The codec of the inner message set; NONE if this message is itself the record.

        Raises:
            CorruptError: the attributes name none.
        """
        return codec_of(self.attributes)

    @property
    def timestamp_type(self) -> str:
        """`CreateTime`, `LogAppendTime`, or in magic 0 `NoTimestampType`."""
        if self.magic == 0:
            return NO_TIMESTAMP_TYPE
        return "LogAppendTime" if self.attributes & _TIMESTAMP_TYPE_BIT else "CreateTime"

    def computed_crc(self) -> int:
        """The CRC-32 of the message's bytes."""
        return zlib.crc32(memoryview(self.raw)[16:])

    def is_valid(self) -> bool:
        """True if the stored CRC is right."""
        return self.crc == self.computed_crc()

    def require_valid(self) -> None:
        """Refuses a message whose CRC is wrong.

        Raises:
            CorruptError: the stored and the computed CRC differ.
        """
        if not self.is_valid():
            raise CorruptError(
                f"message at offset {self.offset} has CRC {self.crc:#010x}, "
                f"its bytes give {self.computed_crc():#010x}"
            )

    def records(
        self,
        *,
        size_max: int = DECOMPRESSED_BYTES_MAX,
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> list[Record]:
        """The record, or the records of the compressed set, with absolute offsets.

        `size_max` limits the decompressed size in bytes, `record_bytes_max` that of one message.

        Raises:
            BatchTooLargeError: the set is larger.
            OversizedRecordError: a message in it is larger.
            CorruptError: the set is empty or malformed, or has compressed messages in it.
        """
        return [
            Record(message.offset, message.timestamp, message.key, message.value)
            for message in self.messages(size_max=size_max, record_bytes_max=record_bytes_max)
        ]

    def messages(
        self,
        *,
        size_max: int = DECOMPRESSED_BYTES_MAX,
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> list[LegacyBatch]:
        """The message itself, or those of the compressed set, with absolute offsets.

        Raises:
            CorruptError: as `records`.
        """
        if self.codec is Codec.NONE:
            return [self]
        if self.value is None:
            raise CorruptError(f"compressed message at offset {self.offset} has a null value")
        data = _decompressed(self, self.value, size_max, record_bytes_max)
        _require_messages_within(data, record_bytes_max)
        inner = [message for _, message in _iter_inner(data)]
        if not inner:
            raise CorruptError(f"compressed message at offset {self.offset} holds no records")
        shift = self._shift_of(inner[-1].offset)
        is_append_time = self.timestamp_type == "LogAppendTime"
        return [
            replace(
                message,
                offset=message.offset + shift,
                # Magic 0 has no timestamp, even if an old cleaner left it in a set of magic 1.
                timestamp=self.timestamp
                if is_append_time and message.magic == 1
                else message.timestamp,
            )
            for message in inner
        ]

    def _shift_of(self, last_inner: int) -> int:
        if self.magic == 0 or self.offset == 0:  # some producers leave the outer offset at 0
            return 0
        if self.offset < last_inner:
            raise CorruptError(
                f"compressed message at offset {self.offset} holds one at offset {last_inner}"
            )
        return self.offset - last_inner


def build_legacy_message(
    *,
    offset: int,
    magic: int,
    key: bytes | None,
    value: bytes | None,
    timestamp: int = NO_TIMESTAMP,
    attributes: int = 0,
) -> bytes:
    """The bytes of one message; magic 0 has no timestamp."""
    body = struct.pack(">bB", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    body += _build_nullable_bytes(key) + _build_nullable_bytes(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def build_legacy_wrapper(
    records: Sequence[Record],
    *,
    magic: int,
    codec: Codec,
    log_append_time_ms: int | None = None,
    is_relative: bool = True,
) -> bytes:
    """A compressed message that holds `records`, at least one.

    In magic 1 the inner offsets are relative to the first, unless `is_relative` is False, as some
    old producers left them.
    """
    first = records[0].offset if magic == 1 and is_relative else 0
    inner = b"".join(
        build_legacy_message(
            offset=record.offset - first,
            magic=magic,
            key=record.key,
            value=record.value,
            timestamp=record.timestamp,
        )
        for record in records
    )
    is_append_time = log_append_time_ms is not None
    timestamp = max(record.timestamp for record in records)
    return build_legacy_message(
        offset=records[-1].offset,
        magic=magic,
        key=None,
        value=compress(codec, inner, magic=magic),
        timestamp=timestamp if log_append_time_ms is None else log_append_time_ms,
        attributes=int(codec) | (_TIMESTAMP_TYPE_BIT if is_append_time else 0),
    )


def _decompressed(
    wrapper: LegacyBatch, packed: Buffer, size_max: int, record_bytes_max: int
) -> bytes:
    """The set of a wrapper, if none of its messages is over the bound where that is large."""
    codec, magic = wrapper.codec, wrapper.magic
    for size in sizes_to_look_at(size_max, record_bytes_max):
        try:
            return decompress(codec, packed, magic=magic, size_max=size)
        except BatchTooLargeError:
            if size == size_max:
                raise
        start = decompress_start(codec, packed, size, magic=magic)
        _require_messages_within(start, record_bytes_max)
    raise AssertionError("the last size is the largest")


def _require_messages_within(inner: Buffer, record_bytes_max: int) -> None:
    """Refuses a larger message in a set, or in the start of one; ends at a malformed one.

    Raises:
        OversizedRecordError: there is one.
    """
    position = 0
    while len(inner) - position >= LOG_OVERHEAD_BYTES:
        (size,) = struct.unpack_from(">i", inner, position + 8)
        require_record_within(size, record_bytes_max)
        if size < LEGACY_OVERHEAD_V0:
            return
        position += LOG_OVERHEAD_BYTES + size


def _iter_inner(data: bytes) -> Iterator[tuple[int, LegacyBatch]]:
    """Every message of a set, with its position in the set."""
    inner = memoryview(data)
    position = 0
    while position < len(inner):
        if len(inner) - position < LOG_OVERHEAD_BYTES + LEGACY_OVERHEAD_V0:
            raise CorruptError("inner message is cut off", position=position)
        (size,) = struct.unpack_from(">i", inner, position + 8)
        if size < LEGACY_OVERHEAD_V0 or size > len(inner) - position - LOG_OVERHEAD_BYTES:
            raise CorruptError(f"inner message of length {size}", position=position)
        end = position + LOG_OVERHEAD_BYTES + size
        message = LegacyBatch.parse(inner[position:end], position=position)
        if message.codec is not Codec.NONE:
            raise CorruptError("compressed message inside a compressed one", position=position)
        yield position, replace(message, raw=bytes(inner[position:end]))
        position = end


def _parse_nullable_bytes(reader: ByteReader) -> bytes | None:
    size_bytes = reader.int32()
    return None if size_bytes < 0 else reader.take(size_bytes)


def _build_nullable_bytes(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
