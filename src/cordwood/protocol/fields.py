"""The fields of kio's message classes, and the bounds that Kafka's types have.

Source: org.apache.kafka.message.FieldSpec, FieldType; the generated message classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, fields
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin

from cordwood.model.errors import CordwoodError

MessageClass = Any
"""One of kio's frozen dataclasses; mypy does not take `type[Any]` for hashable."""

Buffer = bytes | memoryview

STRING_BYTES_MAX: Final = (1 << 15) - 1
"""The longest string of the protocol and of records, in bytes of UTF-8, compact or not."""

_INT_MIN: Final = -(1 << 31)
_INT_MAX: Final = (1 << 31) - 1

LAYOUTS: Final[Mapping[str, str]] = {
    "bool": ">b",
    "int8": ">b",
    "uint8": ">B",
    "int16": ">h",
    "uint16": ">H",
    "error_code": ">h",
    "int32": ">i",
    "uint32": ">I",
    "timedelta_i32": ">i",
    "int64": ">q",
    "uint64": ">Q",
    "float64": ">d",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
    "uuid": ">16s",
}
"""The types of fixed size, as `struct` describes them."""


class MessageField(NamedTuple):
    """A field of a message in one version.

    `kind` is kio's name of the type (of the elements, if `is_array`), None for a nested message,
    whose class is `message`. `tag` is None outside the tag section.
    """

    name: str
    kind: str | None
    message: MessageClass
    is_array: bool
    is_nullable: bool
    is_element_nullable: bool
    tag: int | None
    spec: Field[Any]

    @property
    def is_nullable_struct(self) -> bool:
        """Whether a byte before the nested message says if it is there."""
        return self.kind is None and not self.is_array and self.is_nullable and self.tag is None


def fields_of(message: MessageClass) -> list[MessageField]:
    """The fields of one of kio's classes, in the order they are written in."""
    return [_field(spec) for spec in fields(message)]


def _field(spec: Field[Any]) -> MessageField:
    inner = _without_null(spec.type)
    is_array = get_origin(inner) is tuple
    annotation = get_args(inner)[0] if is_array else inner
    kind = spec.metadata.get("kafka_type")
    return MessageField(
        name=spec.name,
        kind=kind,
        message=_without_null(annotation) if kind is None else None,
        is_array=is_array,
        is_nullable=_is_nullable(spec.type),
        is_element_nullable=is_array and _is_nullable(annotation),
        tag=spec.metadata.get("tag"),
        spec=spec,
    )


def _is_nullable(annotation: Any) -> bool:
    return NoneType in get_args(annotation)


def _without_null(annotation: Any) -> Any:
    if not _is_nullable(annotation):
        return annotation
    return next(part for part in get_args(annotation) if part is not NoneType)


class LengthError(CordwoodError):
    """A length or a null that a field must not have; in the words of Kafka's generated readers."""


def null_error(name: str) -> LengthError:
    """The error of a null where the schema allows none."""
    return LengthError(f"non-nullable field {name} was serialized as null")


def string_error(name: str, length: int) -> LengthError:
    """The error of a string that is too long."""
    return LengthError(f"string field {name} had invalid length {length}")


def bytes_error(length: int, remaining: int) -> LengthError:
    """The error of a length beyond the end of the message."""
    return LengthError(
        f"Error reading byte array of {length} byte(s): only {remaining} byte(s) available"
    )


def array_error(count: int, remaining: int) -> LengthError:
    """The error of an array that claims more elements than there are bytes."""
    return LengthError(
        f"Tried to allocate a collection of size {count}, but there are only {remaining} bytes "
        "remaining."
    )


def read_uvarint(data: Buffer, at: int) -> tuple[int, int]:
    """An unsigned varint as the int32 that Kafka takes it for, and the position behind it.

    Raises:
        LengthError: it has more than five bytes.
        IndexError: it extends beyond the end.

    Source: org.apache.kafka.common.utils.ByteUtils.readUnsignedVarint.
    """
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    value = byte & 0x7F
    shift = 7
    while shift <= 28:
        at += 1
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFF
            return value - (1 << 32) if value >> 31 else value, at + 1
        shift += 7
    raise LengthError("Varint is too long, the most significant bit in the 5th byte is set")


def read_compact_length(data: Buffer, at: int) -> tuple[int, int]:
    """A compact length or count, negative for null, and the position behind it.

    Raises:
        LengthError, IndexError: as `read_uvarint`.
    """
    count, at = read_uvarint(data, at)
    return (count - 1 if count > _INT_MIN else _INT_MAX), at  # an int32 wraps around
