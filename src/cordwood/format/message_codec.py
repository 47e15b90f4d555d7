"""How the fields of Kafka's own messages are read and written, in each version.

Source: KIP-482 and Kafka's message generator (org.apache.kafka.message).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from cordwood.format.byte_reader import ByteReader
from cordwood.format.varint import encode_unsigned_varint
from cordwood.model.errors import CorruptError

VERSION_MAX = 32767
_UUID_BYTES = 16
STRING_BYTES_MAX: Final = 32767
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
            return cls(lowest=VERSION_MAX, highest=VERSION_MAX)
        if text.endswith("+"):
            return cls(lowest=int(text[:-1]), highest=VERSION_MAX)
        lowest, _, highest = text.partition("-")
        return cls(lowest=int(lowest), highest=int(highest or lowest))


ALL_VERSIONS = VersionRange(lowest=0, highest=VERSION_MAX)


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


def default_of(field: Field) -> Any:
    """What a field holds in a version that lacks it, or where it is left out."""
    if field.kind == "struct" and not field.is_array and field.default is not None:
        return {inner.name: default_of(inner) for inner in field.fields}
    return [] if field.is_array and field.default is not None else field.default


Read = Callable[[ByteReader], Any]
Write = Callable[[bytearray, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Reads and writes a struct in one version; `names` are the fields that the version has."""

    read: Callable[[ByteReader], dict[str, Any]]
    write: Callable[[bytearray, Mapping[str, Any]], None]
    names: tuple[str, ...]


def codec_of(fields: tuple[Field, ...], version: int, *, is_flexible: bool) -> Codec:
    """What reads and writes a struct of these fields in that version."""
    return Codec(
        read=_struct_reader(fields, version, is_flexible=is_flexible),
        write=_struct_writer(fields, version, is_flexible=is_flexible),
        names=tuple(field.name for field in fields if version in field.versions),
    )


def _is_nullable(field: Field, version: int) -> bool:
    return field.nullable is not None and version in field.nullable


# ---- reading


def _struct_reader(
    fields: tuple[Field, ...], version: int, *, is_flexible: bool
) -> Callable[[ByteReader], dict[str, Any]]:
    slots: list[tuple[str, Read | None, Field]] = [
        (
            field.name,
            _field_reader(field, version, is_flexible=is_flexible)
            if field.tag is None and version in field.versions
            else None,
            field,
        )
        for field in fields
    ]
    tagged = {
        field.tag: (
            field.name,
            _field_reader(field, version, is_flexible=True) if version in field.versions else None,
        )
        for field in fields
        if field.tag is not None
    }

    def read(reader: ByteReader) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, read_field, field in slots:
            values[name] = default_of(field) if read_field is None else read_field(reader)
        if is_flexible:
            read_tags(reader, values)
        return values

    def read_tags(reader: ByteReader, values: dict[str, Any]) -> None:
        for _ in range(reader.unsigned_varint()):
            tag = reader.unsigned_varint()
            size_bytes = reader.unsigned_varint()
            if tag not in tagged:
                reader.take(size_bytes)
                continue
            name, read_field = tagged[tag]
            if read_field is None:
                raise CorruptError(f"Tag {tag} is not valid for version {version}")
            # As in Kafka, what is known is read without a look at its size.
            values[name] = read_field(reader)

    return read


def _field_reader(field: Field, version: int, *, is_flexible: bool) -> Read:
    is_nullable = _is_nullable(field, version)
    single = _single_reader(field, version, is_flexible=is_flexible)
    if field.is_array:
        single = _array_reader(field, single, is_flexible=is_flexible)
    elif field.kind == "struct" and is_nullable:
        return _nullable_reader(single, is_tagged=field.tag is not None)
    if is_nullable or (field.kind not in {"string", "bytes"} and not field.is_array):
        return single

    def read(reader: ByteReader) -> Any:
        value = single(reader)
        if value is None:
            raise CorruptError(
                f"non-nullable field {field.name} was serialized as null", position=reader.position
            )
        return value

    return read


def _nullable_reader(single: Read, *, is_tagged: bool) -> Read:
    def read(reader: ByteReader) -> Any:
        is_present = reader.unsigned_varint() > 0 if is_tagged else reader.int8() >= 0
        return single(reader) if is_present else None

    return read


def _array_reader(field: Field, single: Read, *, is_flexible: bool) -> Read:
    def read(reader: ByteReader) -> list[Any] | None:
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
            element = single(reader)
            if element is None:
                raise CorruptError(
                    f"non-nullable field {field.name} element was serialized as null",
                    position=reader.position,
                )
            elements.append(element)
        return elements

    return read


def _single_reader(field: Field, version: int, *, is_flexible: bool) -> Read:
    kind = field.kind
    if kind == "struct":
        return _struct_reader(field.fields, version, is_flexible=is_flexible)
    if kind == "string":
        return partial(_read_string, field.name, is_flexible)
    if kind == "bytes":
        return partial(_read_bytes, is_flexible)
    return _SINGLE_READERS[kind]


def _read_string(name: str, is_flexible: bool, reader: ByteReader) -> str | None:
    size = reader.unsigned_varint() - 1 if is_flexible else reader.int16()
    if size < 0:
        return None
    if size > STRING_BYTES_MAX:
        raise CorruptError(f"string field {name} had invalid length {size}")
    return reader.text(size)


def _read_bytes(is_flexible: bool, reader: ByteReader) -> bytes | None:
    size = reader.unsigned_varint() - 1 if is_flexible else reader.int32()
    return None if size < 0 else reader.take(size)


_SINGLE_READERS: Final[Mapping[str, Read]] = {
    "bool": lambda reader: reader.int8() != 0,
    "uuid": lambda reader: uuid_text(reader.fixed(_UUID_BYTES)),
    "int8": ByteReader.int8,
    "int16": ByteReader.int16,
    "uint16": ByteReader.uint16,
    "int32": ByteReader.int32,
    "uint32": ByteReader.uint32,
    "int64": ByteReader.int64,
    "float64": ByteReader.float64,
}


# ---- writing


def _struct_writer(
    fields: tuple[Field, ...], version: int, *, is_flexible: bool
) -> Callable[[bytearray, Mapping[str, Any]], None]:
    here = [field for field in fields if version in field.versions]
    positional = [
        (field.name, _field_writer(field, version, is_flexible=is_flexible), default_of(field))
        for field in here
        if field.tag is None
    ]
    tagged = sorted(
        (field.tag, field.name, _field_writer(field, version, is_flexible=True), default_of(field))
        for field in here
        if field.tag is not None
    )

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        for name, write_field, default in positional:
            write_field(out, values.get(name, default))
        if not is_flexible:
            return
        given = [
            (tag, write_field, values[name])
            for tag, name, write_field, default in tagged
            if name in values and values[name] != default
        ]
        if not given:
            out.append(0)
            return
        out += encode_unsigned_varint(len(given))
        for tag, write_field, value in given:
            payload = bytearray()
            write_field(payload, value)
            out += encode_unsigned_varint(tag) + encode_unsigned_varint(len(payload)) + payload

    return write


def _field_writer(field: Field, version: int, *, is_flexible: bool) -> Write:
    single = _single_writer(field, version, is_flexible=is_flexible)
    is_nullable = _is_nullable(field, version)
    if field.is_array:
        null = _length_writer("array", is_flexible=is_flexible)
        filled = _array_writer(single, null)
    elif field.kind == "struct":
        if not is_nullable:
            return single
        return _nullable_writer(single, is_tagged=field.tag is not None)
    elif field.kind in {"string", "bytes"}:
        null, filled = _length_writer(field.kind, is_flexible=is_flexible), single
    else:
        return single

    def write(out: bytearray, value: Any) -> None:
        if value is not None:
            filled(out, value)
        elif is_nullable:
            null(out, -1)
        else:
            raise TypeError(f"non-nullable field {field.name} is null")

    return write


def _nullable_writer(single: Write, *, is_tagged: bool) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\0" if is_tagged else b"\xff"
        else:
            out += b"\x01"
            single(out, value)

    return write


def _array_writer(single: Write, write_count: Write) -> Write:
    def write(out: bytearray, values: Iterable[Any]) -> None:
        items = values if isinstance(values, list | tuple) else list(values)
        write_count(out, len(items))
        for item in items:
            single(out, item)

    return write


def _single_writer(field: Field, version: int, *, is_flexible: bool) -> Write:
    kind = field.kind
    if kind == "struct":
        return _struct_writer(field.fields, version, is_flexible=is_flexible)
    if kind in {"string", "bytes"}:
        return _text_writer(field, _length_writer(kind, is_flexible=is_flexible))
    if kind == "uuid":
        return _write_uuid
    return _NUMBER_WRITERS[kind]


def _text_writer(field: Field, write_length: Write) -> Write:
    is_string = field.kind == "string"

    def write(out: bytearray, value: Any) -> None:
        data: bytes = value.encode() if is_string else value
        if is_string and len(data) > STRING_BYTES_MAX:
            raise TypeError(
                f"the string field {field.name} is too long to be serialized: {len(data)} bytes"
            )
        write_length(out, len(data))
        out += data

    return write


def _length_writer(kind: str, *, is_flexible: bool) -> Write:
    pack = struct.Struct(">h" if kind == "string" else ">i").pack

    def write_compact(out: bytearray, length: int) -> None:
        if length < 0x7F:
            out.append(length + 1)
        else:
            out += encode_unsigned_varint(length + 1)

    def write(out: bytearray, length: int) -> None:
        out += pack(length)

    return write_compact if is_flexible else write


def _write_uuid(out: bytearray, value: str) -> None:
    out += uuid_bytes(value)


def _number_writer(layout: str) -> Write:
    pack = struct.Struct(layout).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


_NUMBER_WRITERS: Final = {kind: _number_writer(layout) for kind, layout in _LAYOUTS.items()}
