"""Protobuf as Arrow columns, decoded by Google's library value by value.

A field that a message can lack is null if it does: messages, members of a oneof, optional ones. Any
other has the default of its type. Enums are texts, a number where the schema has no name for it;
unsigned numbers take the next larger type, of 64 bits decimal(20, 0); google.protobuf.Timestamp is
a timestamp.

Source: Protocol Buffers, encoding; Confluent's wire format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from cordwood.frames.decoding.rows import Note, decoded_rows
from cordwood.model.errors import ConfigError

_TIMESTAMP: Final = "google.protobuf.Timestamp"
_INDEXES_MAX: Final = 100
_VARINT_BITS_MAX: Final = 35
_PLAIN: Final[Mapping[int, pa.DataType]] = {
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    **dict.fromkeys(
        (
            FieldDescriptor.TYPE_INT32,
            FieldDescriptor.TYPE_SINT32,
            FieldDescriptor.TYPE_SFIXED32,
        ),
        pa.int32(),
    ),
    **dict.fromkeys(
        (
            FieldDescriptor.TYPE_INT64,
            FieldDescriptor.TYPE_SINT64,
            FieldDescriptor.TYPE_SFIXED64,
            FieldDescriptor.TYPE_UINT32,
            FieldDescriptor.TYPE_FIXED32,
        ),
        pa.int64(),
    ),
}
_UNSIGNED_64: Final = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


class _Read(NamedTuple):
    """A type, and a function that makes a value of it of one of Protobuf's."""

    type: pa.DataType
    value: Callable[[Any], Any]


class ProtobufDecoder:
    """A `Decoder` of Protobuf."""

    def __init__(self, descriptor_set: bytes, message: str, *, has_indexes: bool) -> None:
        """Takes a schema.

        Args:
            descriptor_set: a FileDescriptorSet, as `protoc --descriptor_set_out` writes it.
            message: the full name of the message that values are.
            has_indexes: whether a value begins with the list of indexes of its message, which
                Confluent's wire format has behind the id.

        Raises:
            ConfigError: the schema cannot be used.
        """
        descriptor = _descriptor(descriptor_set, message)
        read = _message(descriptor, ())
        self.type = read.type
        self._value = read.value
        self._class: Any = message_factory.GetMessageClass(descriptor)
        self._has_indexes = has_indexes

    def decode(self, values: pa.Array, ids: Sequence[int], note: Note, /) -> pa.Array:
        """Implements `Decoder.decode`."""
        del ids

        def read(_: int, value: bytes) -> Any:
            message = self._class.FromString(_behind_indexes(value) if self._has_indexes else value)
            if not message.IsInitialized():
                missing = ", ".join(message.FindInitializationErrors())
                raise ValueError(f"required fields are missing: {missing}")
            return self._value(message)

        return decoded_rows(values, read, self.type, note, (DecodeError, ValueError))


def _descriptor(descriptor_set: bytes, message: str) -> Descriptor:
    pool = descriptor_pool.DescriptorPool()
    try:
        given = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
        files = {each.name: each for each in given.file}
        added: set[str] = set()
        for name in files:
            _add(pool, name, files, added)
        return pool.FindMessageTypeByName(message)
    except DecodeError:
        raise ConfigError(
            "the Protobuf schema is no FileDescriptorSet: write one with protoc "
            "--include_imports --descriptor_set_out=FILE"
        ) from None
    except (KeyError, TypeError) as error:
        why = error.args[0] if error.args else type(error).__name__
        raise ConfigError(f"the Protobuf schema cannot be used: {why}") from None


def _add(
    pool: Any,
    name: str,
    files: Mapping[str, descriptor_pb2.FileDescriptorProto],
    added: set[str],
) -> None:
    """Adds a file after those that it imports; Google's own need not be in the set."""
    if name in added:
        return
    added.add(name)
    file = files.get(name)
    if file is None:
        file = descriptor_pb2.FileDescriptorProto()
        _well_known(name).CopyToProto(file)
    for each in file.dependency:
        _add(pool, each, files, added)
    pool.Add(file)


def _well_known(name: str) -> Any:
    # They are in the default pool once they are imported.
    from google.protobuf import (  # noqa: PLC0415
        any_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    modules = (
        *(any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2),
        *(wrappers_pb2, descriptor_pb2),
    )
    found = next((each.DESCRIPTOR for each in modules if name == each.DESCRIPTOR.name), None)
    if found is None:
        raise ConfigError(
            f"the Protobuf schema imports {name}, which is not in it: write it with protoc "
            "--include_imports"
        )
    return found


def _message(descriptor: Descriptor, above: tuple[str, ...]) -> _Read:
    """A message as a struct; `above` are the messages that it is in."""
    if descriptor.full_name == _TIMESTAMP:
        return _Read(
            pa.timestamp("us", tz="UTC"),
            lambda value: value.seconds * 1_000_000 + value.nanos // 1000,
        )
    if descriptor.full_name in above:
        raise ConfigError(
            f"the Protobuf schema has no columns for {descriptor.full_name}: it contains itself"
        )
    inside = (*above, descriptor.full_name)
    fields = {each.name: _field(each, inside) for each in descriptor.fields}
    reads = [(name, read.value) for name, read in fields.items()]
    return _Read(
        pa.struct([pa.field(name, read.type) for name, read in fields.items()]),
        lambda message: {name: value(message) for name, value in reads},
    )


def _field(field: FieldDescriptor, above: tuple[str, ...]) -> _Read:
    """A field of a message, of which `value` is given the message."""
    name = field.name
    if _is_map(field):
        entry = field.message_type.fields_by_name
        key, item = _single(entry["key"], above), _single(entry["value"], above)

        def pairs(message: Any) -> list[tuple[Any, Any]]:
            found = getattr(message, name)
            return [(key.value(each), item.value(found[each])) for each in found]

        return _Read(pa.map_(key.type, item.type), pairs)
    read = _single(field, above)
    if field.is_repeated:
        return _Read(
            pa.list_(read.type),
            lambda message: [read.value(each) for each in getattr(message, name)],
        )
    if field.has_presence:
        return _Read(
            read.type,
            lambda message: read.value(getattr(message, name)) if message.HasField(name) else None,
        )
    return _Read(read.type, lambda message: read.value(getattr(message, name)))


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


def _single(field: FieldDescriptor, above: tuple[str, ...]) -> _Read:
    """One value of a field."""
    if field.message_type is not None:
        return _message(field.message_type, above)
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return _Read(pa.string(), lambda number: names.get(number) or str(number))
    if field.type in _UNSIGNED_64:
        return _Read(pa.decimal128(20, 0), Decimal)
    return _Read(_PLAIN[field.type], lambda value: value)


def _behind_indexes(value: bytes) -> bytes:
    """The message behind the list of indexes: a count and as many numbers, zigzag varints."""
    count, at = _varint(value, 0)
    if not 0 <= count <= _INDEXES_MAX:
        raise ValueError(f"{count} indexes of a message")
    for _ in range(count):
        _, at = _varint(value, at)
    return value[at:]


def _varint(value: bytes, at: int) -> tuple[int, int]:
    found = 0
    for shift in range(0, _VARINT_BITS_MAX, 7):
        if at >= len(value):
            break
        byte = value[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
    raise ValueError("the indexes of the message end too early")
