"""Messages read as kio's native reader does, with pauses: it would read a large one in one go.

Elements of arrays are read one by one, by the native reader where they hold no arrays themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from kio.serial import entity_reader
from kio.serial._parse import get_field_reader, get_reader
from kio.serial.readers import (
    read_compact_array_length,
    read_legacy_array_length,
)

from cordwood.model.pauses import in_steps
from cordwood.protocol.fields import Buffer, MessageClass, MessageField, fields_of, read_uvarint

Read = Callable[[Buffer, int], tuple[Any, int]]
"""From where a value begins to the value and where it ends."""

_NULL: Final = 0xFF
_STEPS: Final = 64


@cache
def pausing_reader(message: MessageClass, distinct: str = "") -> Read:
    """A function that reads messages of kio's class, which `lengths.walk_of` has walked.

    Args:
        message: the class.
        distinct: an array of the message, of whose equal elements one is kept.
    """
    flexible = bool(message.__flexible__)
    found = fields_of(message)
    positional = [
        (each.name, _field(message, each, flexible=flexible, distinct=each.name == distinct))
        for each in found
        if each.tag is None
    ]
    tagged = {
        each.tag: (each.name, _ended(get_field_reader(message, each.spec, False, True)))
        for each in found
        if each.tag is not None
    }

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        values = {}
        for name, read_field in positional:
            values[name], at = read_field(data, at)
        if flexible:
            count, at = read_uvarint(data, at)
            for _ in range(count):  # no more than the schema knows: the walk has seen to that
                tag, at = read_uvarint(data, at)
                _, at = read_uvarint(data, at)
                name, read_field = tagged[tag]
                values[name], at = read_field(data, at)
        return message(**values), at

    return read


def _ended(read: Any) -> Read:
    """kio's readers give a value's size; these give its end."""

    def read_to_end(data: Buffer, at: int) -> tuple[Any, int]:
        value, size = read(data, at)
        return value, at + size

    return read_to_end


def _field(message: MessageClass, field: MessageField, *, flexible: bool, distinct: bool) -> Read:
    if field.is_array:
        if field.kind is None:
            single = _entity(field.message)
        else:
            single = _ended(get_reader(field.kind, flexible, field.is_element_nullable))
        return _array(single, flexible=flexible, distinct=distinct)
    if field.kind is None and field.tag is None:
        single = _entity(field.message)
        return _nullable(single) if field.is_nullable_struct else single
    return _ended(get_field_reader(message, field.spec, False, False))


def _entity(message: MessageClass) -> Read:
    return pausing_reader(message) if _has_arrays(message) else _ended(entity_reader(message))


@cache
def _has_arrays(message: MessageClass) -> bool:
    return any(
        each.is_array or (each.kind is None and _has_arrays(each.message))
        for each in fields_of(message)
    )


def _nullable(inner: Read) -> Read:
    def read(data: Buffer, at: int) -> tuple[Any, int]:
        return (None, at + 1) if data[at] == _NULL else inner(data, at + 1)

    return read


def _array(single: Read, *, flexible: bool, distinct: bool) -> Read:
    read_length = read_compact_array_length if flexible else read_legacy_array_length

    def read(data: Buffer, at: int) -> tuple[Any, int]:
        count, size = read_length(data, at)
        at += size
        if count is None or count < 0:
            return None, at
        items: list[Any] = []
        if distinct:
            return _distinct(single, data, at, count)
        for _ in in_steps(range(count), every=_STEPS):
            item, at = single(data, at)
            items.append(item)
        return tuple(items), at

    return read


def _distinct(single: Read, data: Buffer, at: int, count: int) -> tuple[Any, int]:
    """Each element once, in the order in which they first come."""
    items: dict[Any, None] = {}

    def one_by_one() -> Iterator[Any]:
        nonlocal at
        for _ in in_steps(range(count), every=_STEPS):
            item, at = single(data, at)
            yield item

    for item in one_by_one():
        items.setdefault(item)
    return tuple(items), at
