"""Functions of compiled readers and writers: lengths, tags, arrays of numbers, and their errors.

The errors are in the words of Kafka's generated readers, which its tools pass on.

Source: org.apache.kafka.message.MessageDataGenerator, ByteBufferAccessor.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol
from uuid import UUID

from cordwood.format.varint import Buffer, CutOffError, decode_unsigned_varint
from cordwood.model.errors import CorruptError
from cordwood.model.pauses import in_steps, is_pausing
from cordwood.model.utf8 import decode_utf8
from cordwood.model.uuids import uuid_of_bytes

STRING_BYTES_MAX: Final = (1 << 15) - 1
"""The longest string of the protocol and of records, in bytes of UTF-8, compact or not."""

ARRAY_ELEMENTS_MAX: Final = 1_000_000
"""The most elements of an array that is read."""

TAGGED_FIELDS_MAX: Final = 10_000
"""The most tagged fields of a struct, or of a header, that are read."""

COPIED_BYTES_MAX: Final = 1 << 20
"""The largest message that is copied where this is simpler."""

READ_STEPS: Final = 64
WRITE_STEPS: Final = 16
"""So many elements of an array are read, or written, between two pauses."""

_INT_MIN: Final = -(1 << 31)
_INT_MAX: Final = (1 << 31) - 1
_SIZES: Final = {code: struct.calcsize(f">{code}") for code in "?bhHiIqd"}
TABLE_SIZE: Final = 16
"""For fewer numbers there are functions that pack and unpack them."""

_UNPACKERS: Final = {
    code: [struct.Struct(f">{count}{code}").unpack_from for count in range(TABLE_SIZE)]
    for code in _SIZES
}
PACKERS: Final = {
    code: [struct.Struct(f">{count}{code}").pack for count in range(TABLE_SIZE)] for code in _SIZES
}
"""Functions that pack so many numbers of a type."""

_NUMBERS_AT_ONCE: Final = 4096


# ---- errors


def null_error(name: str) -> CorruptError:
    """A null where the schema allows none."""
    return CorruptError(f"non-nullable field {name} was serialized as null")


def string_error(name: str, length: int) -> CorruptError:
    """A string that is too long."""
    return CorruptError(f"string field {name} had invalid length {length}")


def bytes_error(length: int, at: int, end: int) -> CorruptError:
    """A length beyond the end of the message."""
    return CorruptError(
        f"Error reading byte array of {length} byte(s): only {end - at} byte(s) available",
        position=at,
    )


def array_error(count: int, at: int, end: int) -> CorruptError:
    """An array that claims more elements than there are bytes, or than may be."""
    return CorruptError(
        f"Tried to allocate a collection of size {count}, "
        f"but there are only {end - at} bytes remaining."
        if count > end - at
        else f"Tried to read a collection of size {count}, "
        f"which exceeds the maximum allowed size of {ARRAY_ELEMENTS_MAX}.",
        position=at,
    )


def tag_error(tag: int, version: int) -> CorruptError:
    """A tag that the schema knows, in a version that does not have it."""
    return CorruptError(f"Tag {tag} is not valid for version {version}")


def null_value_error(name: str) -> TypeError:
    """A null that is to be written where the schema allows none."""
    return TypeError(f"non-nullable field {name} is null")


def long_value_error(name: str, length: int) -> TypeError:
    """A string that is to be written and is too long."""
    return TypeError(f"the string field {name} is too long to be serialized: {length} bytes")


# ---- reading


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint as the int32 that Kafka takes it for, and the position after it.

    Raises:
        CorruptError: it has more than five bytes, or continues beyond the end.
    """
    value, at = decode_unsigned_varint(data, at)
    return value - (1 << 32) if value > _INT_MAX else value, at


def read_length(data: Buffer, at: int) -> tuple[int, int]:
    """A compact length or count, negative for null, and the position after it.

    Raises:
        CorruptError: as `read_uvarint`.
    """
    count, at = read_uvarint(data, at)
    return (count - 1 if count > _INT_MIN else _INT_MAX), at  # an int32 wraps around


def read_long_string(
    data: Buffer, at: int, end: int, name: str, is_nullable: bool
) -> tuple[str | None, int]:
    """A compact string, whatever its length is, and the position after it.

    Raises:
        CorruptError: the string is too long, ends beyond `end`, or is null and must not be.
    """
    length, at = read_length(data, at)
    if length < 0:
        if not is_nullable:
            raise null_error(name)
        return None, at
    if length > STRING_BYTES_MAX:
        raise string_error(name, length)
    if length > end - at:
        raise bytes_error(length, at, end)
    return decode_utf8(data[at : at + length]), at + length


def read_tag_count(data: Buffer, at: int) -> tuple[int, int]:
    """The number of tagged fields in a section that begins at `at`, and the position after it.

    Raises:
        CorruptError: it is negative, more than `TAGGED_FIELDS_MAX` or than the bytes that
            follow; or as `read_uvarint`.
    """
    count, at = read_uvarint(data, at)
    if 0 <= count <= min(len(data) - at, TAGGED_FIELDS_MAX):
        return count, at
    if count < 0:
        raise CorruptError(f"Invalid negative number of tagged fields {count}", position=at)
    raise CorruptError(
        f"Tried to read {count} tagged fields, but there are only {len(data) - at} bytes remaining."
        if count > len(data) - at
        else f"Tried to read {count} tagged fields, "
        f"which exceeds the maximum allowed count of {TAGGED_FIELDS_MAX}.",
        position=at,
    )


def skip_tag(data: Buffer, at: int, size: int) -> int:
    """The position after the value of an unknown tag.

    Raises:
        CorruptError: the value ends beyond the message.
    """
    if not 0 <= size <= len(data) - at:
        raise bytes_error(size, at, len(data))
    return at + size


def skip_tags(data: Buffer, at: int) -> int:
    """The position after a tag section of which no tag is known.

    Raises:
        CorruptError: it ends beyond the message; or as `read_tag_count`.
    """
    count, at = read_tag_count(data, at)
    for _ in range(count):
        _, at = read_uvarint(data, at)
        size, at = read_uvarint(data, at)
        at = skip_tag(data, at, size)
    return at


def read_numbers(data: Buffer, at: int, count: int, code: str) -> tuple[list[Any], int]:
    """Reads `count` numbers of `struct`'s type `code`; also returns the position after them.

    Raises:
        struct.error: the message ends before.
    """
    if count < TABLE_SIZE:
        return list(_UNPACKERS[code][count](data, at)), at + count * _SIZES[code]
    size = _SIZES[code]
    if count * size > len(data) - at:
        raise CutOffError(f"{count * size} bytes are needed, {len(data) - at} remain", position=at)
    found: list[Any] = []
    for start in in_steps(range(0, count, _NUMBERS_AT_ONCE)):
        some = min(_NUMBERS_AT_ONCE, count - start)
        found += struct.unpack_from(f">{some}{code}", data, at)
        at += some * size
    return found, at


def read_uuids(data: Buffer, at: int, count: int) -> tuple[list[UUID], int]:
    """Reads `count` UUIDs; also returns the position after them.

    Raises:
        CutOffError: the message ends before.
    """
    end = at + 16 * count
    if end > len(data):
        raise CutOffError(f"{16 * count} bytes are needed, {len(data) - at} remain", position=at)
    starts = range(at, end, 16)
    return [
        uuid_of_bytes(bytes(data[each : each + 16])) for each in in_steps(starts, every=READ_STEPS)
    ], end


def read_rows(
    layout: struct.Struct, data: Buffer, at: int, count: int
) -> Iterator[tuple[Any, ...]]:
    """The fields of so many structs of fixed size.

    Raises:
        CutOffError: the message ends before.
    """
    end = at + layout.size * count
    if end > len(data):
        raise CutOffError(f"{end - at} bytes are needed, {len(data) - at} remain", position=at)
    rows = layout.iter_unpack(data[at:end])
    return rows if count < READ_STEPS or not is_pausing() else in_steps(rows, every=READ_STEPS)


# ---- writing


def write_uvarint(out: bytearray, value: int) -> None:
    """Appends an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_numbers(out: bytearray, values: Sequence[Any], code: str) -> None:
    """Appends numbers of `struct`'s type `code`.

    Raises:
        struct.error: one of them is not in the type's range.
    """
    if len(values) <= _NUMBERS_AT_ONCE:
        out += struct.pack(f">{len(values)}{code}", *values)
        return
    for start in in_steps(range(0, len(values), _NUMBERS_AT_ONCE)):
        some = values[start : start + _NUMBERS_AT_ONCE]
        out += struct.pack(f">{len(some)}{code}", *some)


def finished(out: bytearray) -> bytes | memoryview:
    """A part of a message that has been written; a large one is not copied."""
    return bytes(out) if len(out) < COPIED_BYTES_MAX else memoryview(out)


def iterated(values: Iterable[Any]) -> Sequence[Any]:
    """The values of an array that is to be written, which can be counted."""
    return values if isinstance(values, list | tuple) else list(values)


def is_default_struct(value: Any, defaults: dict[str, Any]) -> bool:
    """Whether all fields of a struct that is to be written are at their defaults."""
    if value is None:
        return False
    is_mapping = isinstance(value, Mapping)
    return all(
        is_default_struct(found, default)
        if isinstance(default, dict)
        else found == default or (not found and not default)
        for name, default in defaults.items()
        for found in (value.get(name, default) if is_mapping else getattr(value, name),)
    )


class Records(Protocol):
    """Records that need not be in memory."""

    @property
    def size_bytes(self) -> int:
        """Their size."""


CONTEXT: Final[dict[str, Callable[..., Any] | Any]] = {
    "BYTES": frozenset({bytes, bytearray, memoryview}),
    "PACKERS": PACKERS,
    "array_error": array_error,
    "bytes_error": bytes_error,
    "finished": finished,
    "in_steps": in_steps,
    "is_default_struct": is_default_struct,
    "is_pausing": is_pausing,
    "iterated": iterated,
    "long_value_error": long_value_error,
    "new": object.__new__,
    "null_error": null_error,
    "null_value_error": null_value_error,
    "read_length": read_length,
    "read_long_string": read_long_string,
    "read_numbers": read_numbers,
    "read_rows": read_rows,
    "read_tag_count": read_tag_count,
    "read_uuids": read_uuids,
    "read_uvarint": read_uvarint,
    "skip_tag": skip_tag,
    "skip_tags": skip_tags,
    "tag_error": tag_error,
    "uuid_of_bytes": uuid_of_bytes,
    "write_numbers": write_numbers,
    "write_uvarint": write_uvarint,
}
"""The names that compiled source may use."""
