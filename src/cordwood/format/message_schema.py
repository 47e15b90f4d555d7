"""Messages kept in records, as values by the schema's names, and as the JSON of Kafka's tools.

Requests and responses are objects of typed classes (`cordwood.protocol.messages`). Records are
dicts by field name: Kafka's tools print them by those names, and a record's kind is known only when
its key has been read.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from cordwood.format.byte_reader import ByteReader
from cordwood.format.messages.codec import codec_of
from cordwood.format.messages.primitives import STRING_BYTES_MAX
from cordwood.format.messages.schema import (
    Field,
    MessageSchema,
    VersionRange,
    default_of,
    schemas,
)
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, EncodingError, UnsupportedVersionError
from cordwood.model.uuids import uuid_text

__all__ = [
    "FRAME_VERSION",
    "STRING_BYTES_MAX",
    "Field",
    "MessageSchema",
    "MessageValue",
    "VersionRange",
    "decode_message",
    "encode_message",
    "message_json",
    "read_framed_message",
    "read_message",
    "require_readable",
    "schemas",
]

FRAME_VERSION = 1
"""The first byte of a record whose value names its message and version (`read_framed_message`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageValue:
    """A decoded message. Fields that its version lacks hold their defaults."""

    schema: MessageSchema
    version: int
    fields: dict[str, Any]


def decode_message(
    schema: MessageSchema, version: int, buffer: Buffer, *, position: int = 0
) -> MessageValue:
    """The message at `position`, which must reach to the end of `buffer`.

    Raises:
        UnsupportedVersionError: the version is not one of the schema's.
        CorruptError: the bytes are malformed, or some are left over.
    """
    reader = ByteReader(buffer, position)
    value = read_message(schema, version, reader)
    reader.require_end(schema.name)
    return value


def read_message(schema: MessageSchema, version: int, reader: ByteReader) -> MessageValue:
    """The message at the reader's position, which moves past it.

    Errors are put in the words of Kafka's generated readers, which its tools pass on.

    Raises:
        UnsupportedVersionError: the version is not one of the schema's.
        CorruptError: the bytes are malformed.
    """
    fields, reader.position = codec_of(schema, version).read(reader.buffer, reader.position)
    return MessageValue(schema=schema, version=version, fields=fields)


def read_framed_message(
    value: Buffer, schema_of_api_key: Mapping[int, MessageSchema], *, kind: str
) -> MessageValue:
    """The message of a record whose value begins with the versions of frame and message.

    Args:
        value: the record's value.
        schema_of_api_key: the messages that it may hold.
        kind: what the messages are, for errors.

    Raises:
        CorruptError: the value is malformed or has bytes left over.
        UnsupportedVersionError: the frame's version, the api key or the message's version is
            unknown.

    Source: org.apache.kafka.server.common.serialization.AbstractApiMessageSerde.
    """
    reader = ByteReader(value)
    frame_version = reader.unsigned_varint()
    if frame_version != FRAME_VERSION:
        raise UnsupportedVersionError(f"{kind} in a frame of version {frame_version}")
    api_key = reader.unsigned_varint()
    version = reader.unsigned_varint()
    schema = schema_of_api_key.get(api_key)
    if schema is None:
        raise UnsupportedVersionError(f"{kind} of unknown type {api_key}")
    message = read_message(schema, version, reader)
    reader.require_end(schema.name)
    return message


def encode_message(schema: MessageSchema, version: int, fields: Mapping[str, Any]) -> bytes:
    """The bytes of a message; fields that are not given have their defaults.

    Raises:
        UnsupportedVersionError: the version is not one of the schema's.
        EncodingError: a value does not fit its field: a string of more than 32,767 bytes, null
            where there must be a value, a number out of range.
    """
    (data,) = codec_of(schema, version).write(fields)
    return bytes(data)


def require_readable(
    schema: MessageSchema, version: int, fields: Mapping[str, Any], data: Buffer
) -> None:
    """Reads a message that is about to be written back, and compares it with what was meant.

    Raises:
        EncodingError: it cannot be read, or reads differently.
    """
    what = f"{schema.name} of version {version}"
    try:
        found = decode_message(schema, version, data).fields
    except CorruptError as error:
        raise EncodingError(f"{what} cannot be read back: {error}") from error
    for field in schema.fields:
        name = field.name
        if version in field.versions and name in fields and not _is_same(fields[name], found[name]):
            raise EncodingError(f"{what} reads back with another {name}")


def _is_same(meant: Any, found: Any) -> bool:
    if isinstance(meant, Mapping):
        return isinstance(found, Mapping) and all(
            _is_same(value, found[name]) for name, value in meant.items() if name in found
        )
    if isinstance(meant, list | tuple):
        return len(meant) == len(found) and all(map(_is_same, meant, found))
    if isinstance(meant, float) and math.isnan(meant):
        return isinstance(found, float) and math.isnan(found)
    return bool(meant == found)


def message_json(value: MessageValue) -> dict[str, Any]:
    """The message as the JSON object that Kafka's tools print.

    Keys in the schema's order; fields that the version lacks and tagged ones that hold their
    default are left out; bytes are base64.

    Source: the generated *JsonConverter classes.
    """
    return _struct_json(value.schema.fields, value.version, value.fields)


# ---- JSON


def _struct_json(
    fields: tuple[Field, ...], version: int, values: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        field.name: _field_json(field, version, values[field.name])
        for field in fields
        if version in field.versions
        and (field.tag is None or values[field.name] != default_of(field))
    }


def _field_json(field: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    if field.is_array:
        return [_element_json(field, version, element) for element in value]
    return _element_json(field, version, value)


def _element_json(field: Field, version: int, value: Any) -> Any:
    if field.kind == "struct":
        return _struct_json(field.fields, version, value)
    if field.kind == "bytes":
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return uuid_text(value)
    return value
