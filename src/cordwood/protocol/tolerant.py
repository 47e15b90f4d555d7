"""Reads messages that Kafka accepts and kio refuses.

These are tags that the schema does not know (KIP-482: ignored), negative lengths other than -1
(null), nullable structs that begin with another byte than -1 or 1, and malformed UTF-8 (U+FFFD).
Slower than kio by far; no client in common use sends such messages but those of a later Kafka.

Source: org.apache.kafka.message.MessageDataGenerator, ByteBufferAccessor.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final
from uuid import UUID

from cordwood.model.pauses import in_steps
from cordwood.model.utf8 import decode_utf8
from cordwood.protocol.fields import (
    LAYOUTS,
    STRING_BYTES_MAX,
    Buffer,
    MessageClass,
    MessageField,
    array_error,
    bytes_error,
    fields_of,
    null_error,
    read_compact_length,
    read_uvarint,
    string_error,
)

Read = Callable[[Buffer, int], tuple[Any, int]]
"""A value that begins at a position, and where it ends."""

_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")


@cache
def values_reader(message: MessageClass) -> Read:
    """A function that reads messages of kio's class into a dict of plain values.

    Durations are in ms. Fields that are not there are left out.

    The function raises LengthError, IndexError or struct.error where Kafka would refuse the
    message.
    """
    flexible = bool(message.__flexible__)
    found = fields_of(message)
    readers = [(each.name, _field(each, flexible=flexible)) for each in found if each.tag is None]
    tagged = {
        each.tag: (each.name, _field(each, flexible=True)) for each in found if each.tag is not None
    }

    def read(data: Buffer, at: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        for name, reader in readers:
            values[name], at = reader(data, at)
        if not flexible:
            return values, at
        count, at = read_uvarint(data, at)
        for _ in range(count):
            tag, at = read_uvarint(data, at)
            size, at = read_uvarint(data, at)
            if tag in tagged:
                name, reader = tagged[tag]
                values[name], at = reader(data, at)
            else:
                at = _end(data, at, size)
        return values, at

    return read


def _end(data: Buffer, at: int, size: int) -> int:
    if not 0 <= size <= len(data) - at:
        raise bytes_error(size, len(data) - at)
    return at + size


def _field(field: MessageField, *, flexible: bool) -> Read:
    if field.is_array:
        return _array(field, flexible=flexible)
    single = _single(field, field.name, flexible=flexible, null=field.is_nullable)
    if not field.is_nullable_struct:
        return single

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        return (None, at + 1) if data[at] > 0x7F else single(data, at + 1)

    return read


def _single(field: MessageField, name: str, *, flexible: bool, null: bool) -> Read:
    kind = field.kind
    if kind is None:
        return values_reader(field.message)
    if kind in LAYOUTS:
        return _fixed(kind)
    is_string = kind == "string"
    length_of = _lengths(is_string=is_string, flexible=flexible)

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        length, at = length_of(data, at)
        if length < 0:
            if not null:
                raise null_error(name)
            return None, at
        if is_string and length > STRING_BYTES_MAX:
            raise string_error(name, length)
        end = _end(data, at, length)
        value = bytes(data[at:end])
        return (decode_utf8(value) if is_string else value), end

    return read


def _lengths(*, is_string: bool, flexible: bool) -> Callable[[Buffer, int], tuple[int, int]]:
    if flexible:
        return read_compact_length
    layout = _SHORT if is_string else _INT

    def read(data: Buffer, at: int) -> tuple[int, int]:
        return layout.unpack_from(data, at)[0], at + layout.size

    return read


def _fixed(kind: str) -> Read:
    layout = struct.Struct(LAYOUTS[kind])

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        value = layout.unpack_from(data, at)[0]
        return (UUID(bytes=value) if kind == "uuid" else value), at + layout.size

    return read


def _array(field: MessageField, *, flexible: bool) -> Read:
    element = _single(
        field, f"{field.name} element", flexible=flexible, null=field.is_element_nullable
    )
    count_of = _lengths(is_string=False, flexible=flexible)

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        count, at = count_of(data, at)
        if count < 0:
            if not field.is_nullable:
                raise null_error(field.name)
            return None, at
        if count > len(data) - at:
            raise array_error(count, len(data) - at)
        items = []
        for _ in in_steps(range(count), every=16):
            item, at = element(data, at)
            items.append(item)
        return items, at

    return read
