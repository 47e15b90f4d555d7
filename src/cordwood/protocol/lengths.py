"""Arrays that claim more elements than a message has bytes, found before kio makes room for them.

kio's native reader asks for the memory of an array when it has read its length, and ends the
process where there is not as much: whoever sends a request could so end a broker. Here a message
is walked by its lengths alone.

Source: org.apache.kafka.common.protocol (generated read methods check each length alike).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import Field, fields
from functools import cache
from types import NoneType
from typing import Any, Final, get_args, get_origin

from cordwood.model.errors import CordwoodError

Buffer = bytes | memoryview
Walk = Callable[[Buffer, int], int]
"""From where something begins to where it ends."""

_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
_SHORT: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_UVARINT_BITS: Final = 35
_NULL: Final = 0xFF


class LengthError(CordwoodError):
    """A length that goes beyond the message's end."""


@cache
def walk_of(message: Any) -> Walk:
    """A function that walks messages of kio's class; its result may lie beyond their end.

    The function raises LengthError, IndexError or struct.error where lengths cannot be.
    """
    flexible = bool(message.__flexible__)
    specs = list(fields(message))
    steps = _joined(
        [_step(spec, flexible=flexible) for spec in specs if "tag" not in spec.metadata]
    )
    tags = {
        spec.metadata["tag"]: _walk_of_field(spec, flexible=flexible, tagged=True)
        for spec in specs
        if "tag" in spec.metadata
    }

    def walk(data: Buffer, at: int) -> int:
        for step in steps:
            at = at + step if isinstance(step, int) else step(data, at)
        return _walk_tags(data, at, tags) if flexible else at

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


def is_nullable(annotation: Any) -> bool:
    """Whether a field of that type may be null."""
    return NoneType in get_args(annotation)


def without_null(annotation: Any) -> Any:
    """The type of a field that is not null."""
    if not is_nullable(annotation):
        return annotation
    return next(part for part in get_args(annotation) if part is not NoneType)


def _step(spec: Field[Any], *, flexible: bool) -> int | Walk:
    kind = spec.metadata.get("kafka_type")
    if kind in _SIZES and get_origin(without_null(spec.type)) is not tuple:
        return _SIZES[kind]
    return _walk_of_field(spec, flexible=flexible)


def _walk_of_field(spec: Field[Any], *, flexible: bool, tagged: bool = False) -> Walk:
    kind = spec.metadata.get("kafka_type")
    inner = without_null(spec.type)
    is_array = get_origin(inner) is tuple
    element = without_null(get_args(inner)[0]) if is_array else inner
    single: int | Walk
    if kind in _SIZES:
        single = _SIZES[kind]
    elif kind is None:
        single = walk_of(element)
        if not is_array and not tagged and is_nullable(spec.type):
            single = _nullable(single)
    else:
        single = _text(is_string=kind == "string", flexible=flexible)
    if is_array:
        return _array(single, flexible=flexible)
    if isinstance(single, int):
        size = single
        return lambda _data, at: at + size
    return single


def _nullable(inner: Walk) -> Walk:
    return lambda data, at: at + 1 if data[at] == _NULL else inner(data, at + 1)


def _text(*, is_string: bool, flexible: bool) -> Walk:
    def compact(data: Buffer, at: int) -> int:
        length, at = _uvarint(data, at)
        return at + max(0, length - 1)

    layout = _SHORT if is_string else _INT

    def legacy(data: Buffer, at: int) -> int:
        return at + layout.size + max(0, int(layout.unpack_from(data, at)[0]))

    return compact if flexible else legacy


def _array(single: int | Walk, *, flexible: bool) -> Walk:
    def walk(data: Buffer, at: int) -> int:
        if flexible:
            count, at = _uvarint(data, at)
            count -= 1
        else:
            count = _INT.unpack_from(data, at)[0]
            at += 4
        if count > len(data) - at:
            raise LengthError(f"an array of {count} elements in {len(data) - at} bytes")
        if isinstance(single, int):
            return at + max(0, count) * single
        for _ in range(count):
            at = single(data, at)
        return at

    return walk


def _walk_tags(data: Buffer, at: int, tags: dict[int, Walk]) -> int:
    count, at = _uvarint(data, at)
    if count > len(data) - at:
        raise LengthError(f"{count} tagged fields in {len(data) - at} bytes")
    for _ in range(count):
        tag, at = _uvarint(data, at)
        size, at = _uvarint(data, at)
        known = tags.get(tag)
        if known is not None:
            known(data, at)
        at += size
    return at


def _uvarint(data: Buffer, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    shift = 7
    while shift < _UVARINT_BITS:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise LengthError("a varint goes on too long")
