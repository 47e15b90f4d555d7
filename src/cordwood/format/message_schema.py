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
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cordwood.format.byte_reader import ByteReader
from cordwood.format.varint import Buffer, encode_unsigned_varint
from cordwood.model.errors import CorruptError, UnsupportedVersionError

_VERSION_MAX = 32767
_UUID_BYTES = 16
_STRING_BYTES_MAX = 32767
_LAYOUTS = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
    "bool": ">?",
}
ZERO_UUID = "A" * 22


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """Versions `lowest` to `highest`, both inclusive."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """The range that `3`, `2+`, `0-4` or `none` names."""
        if text == "none":
            return cls(lowest=_VERSION_MAX, highest=_VERSION_MAX)
        if text.endswith("+"):
            return cls(lowest=int(text[:-1]), highest=_VERSION_MAX)
        lowest, _, highest = text.partition("-")
        return cls(lowest=int(lowest), highest=int(highest or lowest))


ALL_VERSIONS = VersionRange(lowest=0, highest=_VERSION_MAX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a message: `kind` is a type's name, or `struct` with `fields`."""

    name: str
    kind: str
    is_array: bool
    versions: VersionRange
    nullable: VersionRange | None
    tag: int | None
    default: Any
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSchema:
    """A message with the versions that can be read; `flexible` are those with tag sections."""

    name: str
    key: int
    versions: VersionRange
    flexible: VersionRange
    fields: tuple[Field, ...]


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
    if version not in schema.versions:
        raise UnsupportedVersionError(f"{schema.name} of version {version}")
    is_flexible = version in schema.flexible
    fields = _read_struct(schema.fields, version, is_flexible, reader)
    return MessageValue(schema=schema, version=version, fields=fields)


def encode_message(schema: MessageSchema, version: int, fields: Mapping[str, Any]) -> bytes:
    """The bytes of a message; fields that are not given have their defaults.

    Raises:
        UnsupportedVersionError: the version is not one of the schema's.
    """
    if version not in schema.versions:
        raise UnsupportedVersionError(f"{schema.name} of version {version}")
    return _build_struct(schema.fields, version, version in schema.flexible, fields)


def message_json(value: MessageValue) -> dict[str, Any]:
    """The message as the JSON object that Kafka's tools print.

    Keys in the schema's order; fields that the version lacks and tagged ones that hold their
    default are left out; bytes are base64.

    Source: the generated *JsonConverter classes.
    """
    return _struct_json(value.schema.fields, value.version, value.fields)


def uuid_text(data: bytes) -> str:
    """The 16 bytes of a uuid as Kafka prints them.

    Source: org.apache.kafka.common.Uuid.toString.
    """
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a uuid that Kafka prints as `text`.

    Raises:
        CorruptError: it is not 22 characters of URL-safe base64.
    """
    try:
        data = base64.urlsafe_b64decode(text + "==")
    except ValueError:
        data = b""
    if len(text) != len(ZERO_UUID) or len(data) != _UUID_BYTES:
        raise CorruptError(f"{text!r} is not a uuid of 22 characters")
    return data


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


def _default_of(field: Field) -> Any:
    if field.kind == "struct" and not field.is_array and field.default is not None:
        return {inner.name: _default_of(inner) for inner in field.fields}
    return [] if field.is_array and field.default is not None else field.default


def _read_struct(
    fields: tuple[Field, ...], version: int, is_flexible: bool, reader: ByteReader
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in fields:
        if field.tag is None and version in field.versions:
            values[field.name] = _read_field(field, version, is_flexible, reader)
        else:
            values[field.name] = _default_of(field)
    if is_flexible:
        _read_tags(fields, version, values, reader)
    return values


def _read_tags(
    fields: tuple[Field, ...], version: int, values: dict[str, Any], reader: ByteReader
) -> None:
    known = {field.tag: field for field in fields if field.tag is not None}
    for _ in range(reader.unsigned_varint()):
        tag = reader.unsigned_varint()
        size_bytes = reader.unsigned_varint()
        field = known.get(tag)
        if field is None:
            reader.take(size_bytes)
            continue
        if version not in field.versions:
            raise CorruptError(f"Tag {tag} is not valid for version {version}")
        # As in Kafka, what is known is read without a look at its size.
        values[field.name] = _read_field(field, version, True, reader)


def _read_field(field: Field, version: int, is_flexible: bool, reader: ByteReader) -> Any:
    if field.is_array:
        value = _read_array(field, version, is_flexible, reader)
    elif field.kind == "struct" and field.nullable is not None and version in field.nullable:
        is_present = reader.unsigned_varint() > 0 if field.tag is not None else reader.int8() >= 0
        value = _read_one(field, version, is_flexible, reader) if is_present else None
    else:
        value = _read_one(field, version, is_flexible, reader)
    if value is None and (field.nullable is None or version not in field.nullable):
        raise CorruptError(
            f"non-nullable field {field.name} was serialized as null", position=reader.position
        )
    return value


def _read_array(
    field: Field, version: int, is_flexible: bool, reader: ByteReader
) -> list[Any] | None:
    count = reader.unsigned_varint() - 1 if is_flexible else reader.int32()
    if count < 0:
        return None
    if count > reader.remaining:
        raise CorruptError(
            f"Tried to allocate a collection of size {count}, "
            f"but there are only {reader.remaining} bytes remaining.",
            position=reader.position,
        )
    elements = []
    for _ in range(count):
        element = _read_one(field, version, is_flexible, reader)
        if element is None:
            raise CorruptError(
                f"non-nullable field {field.name} element was serialized as null",
                position=reader.position,
            )
        elements.append(element)
    return elements


def _read_one(field: Field, version: int, is_flexible: bool, reader: ByteReader) -> Any:
    if field.kind == "struct":
        return _read_struct(field.fields, version, is_flexible, reader)
    if field.kind == "uuid":
        return uuid_text(reader.fixed(_UUID_BYTES))
    if field.kind in {"string", "bytes"}:
        if is_flexible:
            size = reader.unsigned_varint() - 1
        else:
            size = reader.int16() if field.kind == "string" else reader.int32()
        if size < 0:
            return None
        if field.kind == "string" and size > _STRING_BYTES_MAX:
            raise CorruptError(f"string field {field.name} had invalid length {size}")
        return reader.text(size) if field.kind == "string" else reader.take(size)
    if field.kind == "bool":
        return reader.int8() != 0
    return _NUMBER_READERS[field.kind](reader)


_NUMBER_READERS = {
    "int8": ByteReader.int8,
    "int16": ByteReader.int16,
    "uint16": ByteReader.uint16,
    "int32": ByteReader.int32,
    "uint32": ByteReader.uint32,
    "int64": ByteReader.int64,
    "float64": ByteReader.float64,
}


def _build_struct(
    fields: tuple[Field, ...], version: int, is_flexible: bool, values: Mapping[str, Any]
) -> bytes:
    out = bytearray()
    tagged: list[tuple[int, bytes]] = []
    for field in fields:
        if version not in field.versions:
            continue
        value = values.get(field.name, _default_of(field))
        if field.tag is None:
            out += _build_field(field, version, is_flexible, value)
        elif is_flexible and value != _default_of(field):
            tagged.append((field.tag, _build_field(field, version, True, value)))
    if is_flexible:
        out += encode_unsigned_varint(len(tagged))
        for tag, payload in sorted(tagged):
            out += encode_unsigned_varint(tag) + encode_unsigned_varint(len(payload)) + payload
    return bytes(out)


def _build_field(field: Field, version: int, is_flexible: bool, value: Any) -> bytes:
    if field.is_array:
        count = -1 if value is None else len(value)
        out = bytearray(_build_length("array", is_flexible, count))
        for element in value or ():
            out += _build_one(field, version, is_flexible, element)
        return bytes(out)
    if field.kind == "struct" and field.nullable is not None and version in field.nullable:
        if value is None:
            return b"\xff" if field.tag is None else b"\0"
        return b"\x01" + _build_one(field, version, is_flexible, value)
    return _build_one(field, version, is_flexible, value)


def _build_one(field: Field, version: int, is_flexible: bool, value: Any) -> bytes:
    if field.kind == "struct":
        return _build_struct(field.fields, version, is_flexible, value)
    if field.kind == "uuid":
        return uuid_bytes(value)
    if field.kind in {"string", "bytes"}:
        if value is None:
            return _build_length(field.kind, is_flexible, -1)
        data: bytes = value.encode() if field.kind == "string" else value
        return _build_length(field.kind, is_flexible, len(data)) + data
    return struct.pack(_LAYOUTS[field.kind], value)


def _build_length(kind: str, is_flexible: bool, length: int) -> bytes:
    if is_flexible:
        return encode_unsigned_varint(length + 1)
    return struct.pack(">h" if kind == "string" else ">i", length)


def _struct_json(
    fields: tuple[Field, ...], version: int, values: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        field.name: _field_json(field, version, values[field.name])
        for field in fields
        if version in field.versions
        and (field.tag is None or values[field.name] != _default_of(field))
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
