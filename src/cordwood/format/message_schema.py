"""Kafka's own messages, described in text and decoded by one generic reader.

A schema is a few lines:

    message PartitionRecord key=3 versions=0-2 flexible=0+
      partitionId int32 default=-1
      directories []uuid 1+
      eligibleLeaderReplicas []int32? 2+ tag=1 default=null
      endPoints []{}
        name string

A field is its name, its type (`[]` an array, `{}` a struct whose fields follow, indented, `?`
nullable in all versions, `?2+` in some), the versions that have it when not all do, its tag when it
lives in the tag section, and its default when that is not the type's zero.

Flexible versions use compact lengths (unsigned varint of length + 1, 0 for null) and end every
struct with a tag section; the others use int16 lengths for strings, int32 for bytes and arrays, -1
for null. A nullable struct follows a byte (-1 null, 1 there), in the tag section an unsigned varint
(0, 1). uuids are given as Kafka prints them: 22 characters of URL-safe base64.

Source: KIP-482 and Kafka's message generator (org.apache.kafka.message).
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any

from cordwood.format.byte_reader import ByteReader
from cordwood.format.message_codec import (
    ALL_VERSIONS,
    STRING_BYTES_MAX,
    ZERO_UUID,
    Codec,
    Field,
    VersionRange,
    codec_of,
    default_of,
    uuid_bytes,
    uuid_text,
)
from cordwood.format.varint import Buffer
from cordwood.model.errors import CorruptError, EncodingError, UnsupportedVersionError

__all__ = [
    "STRING_BYTES_MAX",
    "ZERO_UUID",
    "Field",
    "MessageSchema",
    "MessageValue",
    "VersionRange",
    "decode_message",
    "encode_message",
    "message_json",
    "read_message",
    "require_readable",
    "schemas",
    "uuid_bytes",
    "uuid_text",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSchema:
    """A message with the versions that can be read; `flexible` are those with tag sections."""

    name: str
    key: int
    versions: VersionRange
    flexible: VersionRange
    fields: tuple[Field, ...]
    codecs: dict[int, Codec] = dataclass_field(default_factory=dict, compare=False, repr=False)

    def codec(self, version: int) -> Codec:
        """What reads and writes that version.

        Raises:
            UnsupportedVersionError: the version is not one of the schema's.
        """
        found = self.codecs.get(version)
        if found is None:
            if version not in self.versions:
                raise UnsupportedVersionError(f"{self.name} of version {version}")
            found = self.codecs[version] = codec_of(
                self.fields, version, is_flexible=version in self.flexible
            )
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageValue:
    """A decoded message. Fields that its version lacks hold their defaults."""

    schema: MessageSchema
    version: int
    fields: dict[str, Any]


def schemas(text: str) -> dict[str, MessageSchema]:
    """The schemas that `text` describes, by name."""
    found: dict[str, MessageSchema] = {}
    lines = [line for line in text.splitlines() if line.strip()]
    position = 0
    while position < len(lines):
        word, name, *settings = lines[position].split()
        assert word == "message", lines[position]
        options = dict(setting.split("=", 1) for setting in settings)
        fields, position = _parse_fields(lines, position + 1, "  ")
        found[name] = MessageSchema(
            name=name,
            key=int(options.get("key", "-1")),
            versions=VersionRange.parse(options["versions"]),
            flexible=VersionRange.parse(options["flexible"]),
            fields=fields,
        )
    return found


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
    return MessageValue(schema=schema, version=version, fields=schema.codec(version).read(reader))


def encode_message(schema: MessageSchema, version: int, fields: Mapping[str, Any]) -> bytes:
    """The bytes of a message; fields that are not given have their defaults.

    Raises:
        UnsupportedVersionError: the version is not one of the schema's.
        EncodingError: a value does not fit its field: a string of more than 32,767 bytes, null
            where there must be a value, a number out of range.
    """
    out = bytearray()
    codec = schema.codec(version)
    try:
        codec.write(out, fields)
    except (struct.error, AttributeError, TypeError, UnicodeError, CorruptError) as error:
        raise EncodingError(f"{schema.name} of version {version}: {error}") from error
    return bytes(out)


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
    codec = schema.codec(version)
    for name in codec.names:
        if name in fields and not _is_same(fields[name], found[name]):
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


def _parse_fields(lines: list[str], position: int, indent: str) -> tuple[tuple[Field, ...], int]:
    fields: list[Field] = []
    while position < len(lines) and lines[position].startswith(indent):
        name, kind, *settings = lines[position].split()
        children, position = _parse_fields(lines, position + 1, indent + "  ")
        versions, options = ALL_VERSIONS, {}
        for setting in settings:
            key, separator, value = setting.partition("=")
            if separator:
                options[key] = value
            else:
                versions = VersionRange.parse(setting)
        kind, question, nullable = kind.partition("?")
        is_array = kind.startswith("[]")
        kind = kind.removeprefix("[]")
        field_kind = "struct" if kind == "{}" else kind
        fields.append(
            Field(
                name=name,
                kind=field_kind,
                is_array=is_array,
                versions=versions,
                nullable=VersionRange.parse(nullable or "0+") if question else None,
                tag=int(options["tag"]) if "tag" in options else None,
                default=_parse_default(field_kind, is_array, options.get("default")),
                fields=children,
            )
        )
    return tuple(fields), position


def _parse_default(kind: str, is_array: bool, text: str | None) -> Any:
    if text == "null":
        return None
    if is_array:
        return []
    if kind in {"string", "bytes"}:
        assert text is None, text
        return "" if kind == "string" else b""
    if kind == "uuid":
        return ZERO_UUID
    if kind == "struct":
        return {}
    if kind == "bool":
        return text == "true"
    return 0.0 if kind == "float64" else int(text or "0")


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
    return value
