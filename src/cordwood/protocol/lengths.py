"""Checks every length of a message before kio reads it.

kio's native reader asks for the memory of an array when it has read its length, and ends the
process where there is not as much; it takes compact strings of any length, and null where the
schema has none. Here a message is walked by its lengths alone, and each is held to the bounds of
Kafka's generated readers.

Invariant: where a walk succeeds, kio reads the same fields at the same positions.

Source: org.apache.kafka.message.MessageDataGenerator, ByteBufferAccessor.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Final

from cordwood.model.errors import CordwoodError
from cordwood.model.pauses import in_steps
from cordwood.protocol.fields import (
    LAYOUTS,
    STRING_BYTES_MAX,
    Buffer,
    LengthError,
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

Walk = Callable[[Buffer, int], int]
"""From where something begins to where it ends."""

_SIZES: Final = {kind: struct.calcsize(layout) for kind, layout in LAYOUTS.items()}
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_NULL: Final = 0xFF
_STEPS: Final = 64
_PRESENT: Final = 1


class UnusualEncodingError(CordwoodError):
    """A message that Kafka accepts and kio does not: `cordwood.protocol.tolerant` reads it."""


@cache
def walk_of(message: MessageClass) -> Walk:
    """A function that walks messages of kio's class; its result may lie beyond their end.

    The function raises LengthError, IndexError or struct.error where Kafka would refuse the
    message, and UnusualEncodingError where kio would refuse what Kafka accepts.
    """
    flexible = bool(message.__flexible__)
    found = fields_of(message)
    steps = _joined([_step(each, flexible=flexible) for each in found if each.tag is None])
    if not flexible:
        return _sequence(steps)
    tags = {
        each.tag: _as_walk(_step(each, flexible=True)) for each in found if each.tag is not None
    }
    return _sequence([*steps, _tags(tags)])


def _sequence(steps: list[int | Walk]) -> Walk:
    if len(steps) == 1:
        return _as_walk(steps[0])

    def walk(data: Buffer, at: int) -> int:
        for step in steps:
            at = at + step if isinstance(step, int) else step(data, at)
        return at

    return walk


def _joined(steps: list[int | Walk]) -> list[int | Walk]:
    """Fields of fixed size that follow each other are one step."""
    joined: list[int | Walk] = []
    for step in steps:
        last = joined[-1] if joined else None
        if isinstance(step, int) and isinstance(last, int):
            joined[-1] = last + step
        else:
            joined.append(step)
    return joined


def _as_walk(step: int | Walk) -> Walk:
    if isinstance(step, int):
        size = step
        return lambda _data, at: at + size
    return step


def _step(field: MessageField, *, flexible: bool) -> int | Walk:
    """A field: its size if that is fixed, else a function that walks it."""
    if field.is_array:
        element = _single(
            field, flexible=flexible, name=f"{field.name} element", null=field.is_element_nullable
        )
        return _array(field, element, flexible=flexible)
    single = _single(field, flexible=flexible, name=field.name, null=field.is_nullable)
    if field.is_nullable_struct:
        return _nullable(_as_walk(single))
    return single


def _single(field: MessageField, *, flexible: bool, name: str, null: bool) -> int | Walk:
    kind = field.kind
    if kind is None:
        return walk_of(field.message)
    size = _SIZES.get(kind)
    if size is not None:
        return size
    longest = STRING_BYTES_MAX if kind == "string" else None
    if flexible:
        return _compact_text(name, longest, null=null)
    return _text(name, longest, _SHORT if kind == "string" else _INT, null=null)


def _nullable(inner: Walk) -> Walk:
    def walk(data: Buffer, at: int) -> int:
        byte = data[at]
        if byte == _PRESENT:
            return inner(data, at + 1)
        if byte == _NULL:
            return at + 1
        raise UnusualEncodingError(f"a nullable struct begins with {byte}")

    return walk


def _compact_text(name: str, longest: int | None, *, null: bool) -> Walk:
    def walk(data: Buffer, at: int) -> int:
        count = data[at]
        if 0 < count < 0x80:
            return at + count  # one byte of length + 1, and the text
        length, at = read_compact_length(data, at)
        return _end_of_text(data, at, length, name, longest, null=null)

    return walk


def _text(name: str, longest: int | None, layout: struct.Struct, *, null: bool) -> Walk:
    unpack, size = layout.unpack_from, layout.size

    def walk(data: Buffer, at: int) -> int:
        return _end_of_text(data, at + size, unpack(data, at)[0], name, longest, null=null)

    return walk


def _end_of_text(
    data: Buffer, at: int, length: int, name: str, longest: int | None, *, null: bool
) -> int:
    if length < 0:
        _require_usual_null(length, name, null=null)
        return at
    if longest is not None and length > longest:
        raise string_error(name, length)
    end = at + length
    if end > len(data):
        raise bytes_error(length, len(data) - at)
    return end


def _require_usual_null(length: int, name: str, *, null: bool) -> None:
    """Kafka takes any negative length for null, kio only -1."""
    if not null:
        raise null_error(name)
    if length != -1:
        raise UnusualEncodingError(f"field {name} is null by a length of {length}")


def _array(field: MessageField, element: int | Walk, *, flexible: bool) -> Walk:
    name, null = field.name, field.is_nullable

    def walk(data: Buffer, at: int) -> int:
        if flexible:
            count, at = read_compact_length(data, at)
        else:
            count = _INT.unpack_from(data, at)[0]
            at += 4
        if count < 0:
            _require_usual_null(count, name, null=null)
            return at
        if count > len(data) - at:
            raise array_error(count, len(data) - at)
        if isinstance(element, int):
            end = at + count * element
            if end > len(data):
                raise bytes_error(count * element, len(data) - at)
            return end
        steps = range(count)
        for _ in steps if count < _STEPS else in_steps(steps, every=_STEPS):
            at = element(data, at)
        return at

    return walk


def _tags(known: dict[int, Walk]) -> Walk:
    """The tag section. As in Kafka and kio, the value of a known tag ends where its type says."""

    def walk(data: Buffer, at: int) -> int:
        if not data[at]:
            return at + 1
        count, at = read_uvarint(data, at)
        if count < 0:
            raise UnusualEncodingError(f"{count} tagged fields")
        for _ in range(count):
            tag, at = read_uvarint(data, at)
            size, at = read_uvarint(data, at)
            value = known.get(tag)
            if value is None:
                if not 0 <= size <= len(data) - at:
                    raise bytes_error(size, len(data) - at)
                raise UnusualEncodingError(f"tag {tag} is unknown")
            at = value(data, at)
        return at

    return walk


__all__ = ["LengthError", "UnusualEncodingError", "Walk", "walk_of"]
