"""One record inside a batch of magic 2: values, parser, builder.

`length varint | attributes int8 (0) | timestampDelta varlong | offsetDelta varint | keyLength
varint | key | valueLength varint | value | headerCount varint | headers`, where a header is
`keyLength varint | key | valueLength varint | value`; the length does not count itself, and a
length of -1 stands for null.

Source: org.apache.kafka.common.record.DefaultRecord.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from cordwood.format.byte_reader import ByteReader
from cordwood.format.varint import decode_varint, decode_varlong, encode_varint, encode_varlong
from cordwood.model.errors import CorruptError
from cordwood.model.utf8 import decode_utf8

SEQUENCE_MAX = (1 << 31) - 1
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a record: a name (never null) and a value."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Record:
    """A record with its absolute offset, its timestamp in ms, and its sequence (-1 without one)."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
    sequence: int = -1


class RecordFields(NamedTuple):
    """A record as its batch has it, and the position after it."""

    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    end: int


def increment_sequence(sequence: int, increment: int) -> int:
    """The sequence `increment` after `sequence`; after 2^31-1 comes 0.

    Source: DefaultRecordBatch.incrementSequence.
    """
    if sequence > SEQUENCE_MAX - increment:
        return increment - (SEQUENCE_MAX - sequence) - 1
    return sequence + increment


def parse_fields(data: bytes, position: int) -> RecordFields:  # noqa: PLR0912  # calls cost most
    """The record at `position`.

    Raises:
        CorruptError: a length is negative or exceeds the record, or the record's size differs from
            its length field.
    """
    # Most numbers take a byte, and most records have no headers; all else is read carefully.
    try:
        number = data[position]
        if number < 0x80:
            end = position + 1
            number = (number >> 1) ^ -(number & 1)
        else:
            number, end = decode_varint(data, position)
        start, end = end, end + number
        number = data[start + 1]
        if number < 0x80:
            timestamp_delta, at = (number >> 1) ^ -(number & 1), start + 2
        else:
            timestamp_delta, at = decode_varlong(data, start + 1)
        offset_delta = data[at]
        if offset_delta < 0x80:
            offset_delta, at = (offset_delta >> 1) ^ -(offset_delta & 1), at + 1
        else:
            offset_delta, at = decode_varint(data, at)
        number = data[at]
        if number < 0x80:
            number, at = (number >> 1) ^ -(number & 1), at + 1
        else:
            number, at = decode_varint(data, at)
        if number < 0:
            key = None
        else:
            key = data[at : at + number]
            at += number
        number = data[at]
        if number < 0x80:
            number, at = (number >> 1) ^ -(number & 1), at + 1
        else:
            number, at = decode_varint(data, at)
        if number < 0:
            value = None
        else:
            value = data[at : at + number]
            at += number
        if data[at] == 0 and at + 1 == end:
            return RecordFields(timestamp_delta, offset_delta, key, value, (), end)
    except (IndexError, CorruptError):
        pass
    return _parse_carefully(ByteReader(data, position))


def _parse_carefully(reader: ByteReader) -> RecordFields:
    size_bytes = reader.varint()
    start = reader.position
    if size_bytes < 0 or size_bytes > reader.remaining:
        raise CorruptError(
            f"record of {size_bytes} bytes in a batch with {reader.remaining} left", position=start
        )
    reader.int8()
    timestamp_delta = reader.varlong()
    offset_delta = reader.varint()
    key = _parse_nullable_bytes(reader)
    value = _parse_nullable_bytes(reader)
    headers = _parse_headers(reader)
    end = reader.position
    if end - start != size_bytes:
        raise CorruptError(
            f"record has length {size_bytes} but takes {end - start} bytes", position=start
        )
    return RecordFields(timestamp_delta, offset_delta, key, value, headers, end)


def build_record(record: Record, *, base_offset: int, base_timestamp: int) -> bytes:
    """The record's bytes inside a batch with that base offset and base timestamp (ms)."""
    headers = _NO_HEADERS
    if record.headers:
        parts = [encode_varint(len(record.headers))]
        for header in record.headers:
            parts.append(_build_nullable_bytes(header.key.encode()))
            parts.append(_build_nullable_bytes(header.value))
        headers = b"".join(parts)
    return build_fields(
        record.timestamp - base_timestamp,
        record.offset - base_offset,
        record.key,
        record.value,
        headers,
    )


def build_fields(
    timestamp_delta: int,
    offset_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: bytes = _NO_HEADERS,
) -> bytes:
    """A record's bytes inside its batch; `headers` are their count and their bytes."""
    body = b"".join(
        (
            b"\0",
            encode_varlong(timestamp_delta),
            encode_varint(offset_delta),
            _NULL if key is None else encode_varint(len(key)),
            key or b"",
            _NULL if value is None else encode_varint(len(value)),
            value or b"",
            headers,
        )
    )
    return encode_varint(len(body)) + body


def _parse_nullable_bytes(reader: ByteReader) -> bytes | None:
    size_bytes = reader.varint()
    return None if size_bytes < 0 else reader.take(size_bytes)


def _parse_headers(reader: ByteReader) -> tuple[Header, ...]:
    count = reader.varint()
    if count < 0 or count > reader.remaining:
        raise CorruptError(
            f"{count} headers are declared in {reader.remaining} bytes", position=reader.position
        )
    headers = []
    for _ in range(count):
        key_size_bytes = reader.varint()
        if key_size_bytes < 0:
            raise CorruptError("a header's key is null", position=reader.position)
        key = decode_utf8(reader.take(key_size_bytes))
        headers.append(Header(key, _parse_nullable_bytes(reader)))
    return tuple(headers)


def _build_nullable_bytes(data: bytes | None) -> bytes:
    return encode_varint(-1) if data is None else encode_varint(len(data)) + data
