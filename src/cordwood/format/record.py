"""One record inside a batch of magic 2: values, parser, builder.

`length varint | attributes int8 (0) | timestampDelta varlong | offsetDelta varint | keyLength
varint | key | valueLength varint | value | headerCount varint | headers`, where a header is
`keyLength varint | key | valueLength varint | value`; the length does not count itself, and a
length of -1 stands for null.

Source: org.apache.kafka.common.record.DefaultRecord.
"""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.format.byte_reader import ByteReader
from cordwood.format.varint import encode_varint, encode_varlong
from cordwood.model.errors import CorruptError
from cordwood.model.utf8 import decode_utf8

SEQUENCE_MAX = (1 << 31) - 1


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


def increment_sequence(sequence: int, increment: int) -> int:
    """The sequence `increment` after `sequence`; after 2^31-1 comes 0.

    Source: DefaultRecordBatch.incrementSequence.
    """
    if sequence > SEQUENCE_MAX - increment:
        return increment - (SEQUENCE_MAX - sequence) - 1
    return sequence + increment


def parse_record(
    reader: ByteReader,
    *,
    base_offset: int,
    base_timestamp: int,
    base_sequence: int,
    log_append_time_ms: int | None,
) -> Record:
    """The record at the reader's position, which moves past it.

    `log_append_time_ms`, when given, is the timestamp of every record of the batch.

    Raises:
        CorruptError: a length is negative or exceeds the record, or the record's size differs from
            its length field.
    """
    size_bytes = reader.varint()
    start = reader.position
    if size_bytes < 0 or size_bytes > reader.remaining:
        raise CorruptError(
            f"record of {size_bytes} bytes in a batch with {reader.remaining} left", position=start
        )
    reader.int8()
    timestamp = base_timestamp + reader.varlong()
    offset_delta = reader.varint()
    key = _parse_nullable_bytes(reader)
    value = _parse_nullable_bytes(reader)
    headers = _parse_headers(reader)
    if reader.position - start != size_bytes:
        raise CorruptError(
            f"record has length {size_bytes} but takes {reader.position - start} bytes",
            position=start,
        )
    return Record(
        offset=base_offset + offset_delta,
        timestamp=timestamp if log_append_time_ms is None else log_append_time_ms,
        key=key,
        value=value,
        headers=headers,
        sequence=increment_sequence(base_sequence, offset_delta) if base_sequence >= 0 else -1,
    )


def build_record(record: Record, *, base_offset: int, base_timestamp: int) -> bytes:
    """The record's bytes inside a batch with that base offset and base timestamp (ms)."""
    body = bytearray(b"\0")
    body += encode_varlong(record.timestamp - base_timestamp)
    body += encode_varint(record.offset - base_offset)
    body += _build_nullable_bytes(record.key)
    body += _build_nullable_bytes(record.value)
    body += encode_varint(len(record.headers))
    for header in record.headers:
        body += _build_nullable_bytes(header.key.encode())
        body += _build_nullable_bytes(header.value)
    return encode_varint(len(body)) + bytes(body)


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
