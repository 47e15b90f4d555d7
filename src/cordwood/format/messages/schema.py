"""The notation in which Kafka's messages are described.

A schema is a few lines:

    message PartitionRecord key=3 versions=0-2 flexible=0+
      partitionId int32 default=-1
      directories []uuid 1+
      eligibleLeaderReplicas []int32? 2+ tag=1 default=null
      endPoints []{}
        name string
      topics []TopicData
        name string

A field is its name, its type (`[]` an array, `{}` a struct whose fields follow, indented, a name
with a capital letter a struct of that name, `?` nullable in all versions, `?2+` in some), the
versions that have it when not all do, its tag when it is in the tag section, and its default when
that is not the type's zero.

Flexible versions use compact lengths (unsigned varint of length + 1, 0 for null) and end every
struct with a tag section; the others use int16 lengths for strings, int32 for bytes and arrays, -1
for null. A nullable struct follows a byte (-1 null, 1 present), in the tag section an unsigned
varint (0, 1).

Source: KIP-482 and Kafka's message generator (org.apache.kafka.message).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from cordwood.model.uuids import ZERO_UUID

VERSION_MAX: Final = 32767

LAYOUTS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The types of fixed size, as `struct` describes them."""

TEXTS: Final = frozenset({"string", "bytes", "records"})
"""The types with a length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRange:
    """Versions `lowest` to `highest`, both inclusive."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    @staticmethod
    @cache
    def parse(text: str) -> VersionRange:
        """The range that `3`, `2+`, `0-4` or `none` names."""
        if text == "none":
            return VersionRange(lowest=VERSION_MAX, highest=VERSION_MAX)
        if text.endswith("+"):
            return VersionRange(lowest=int(text[:-1]), highest=VERSION_MAX)
        lowest, _, highest = text.partition("-")
        return VersionRange(lowest=int(lowest), highest=int(highest or lowest))


ALL_VERSIONS = VersionRange(lowest=0, highest=VERSION_MAX)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Field:
    """One field of a message.

    `attribute` is the name as Python code spells it: `topic_id` of `topicId`. `kind` is a type's
    name, or `struct` with `fields`; of the elements, if `is_array`. `struct` is the name of the
    struct, empty if it has none. `default_text` is None where the default is the type's zero.
    """

    name: str
    attribute: str
    kind: str
    is_array: bool
    versions: VersionRange
    nullable: VersionRange | None
    tag: int | None
    default_text: str | None
    struct: str
    fields: tuple[Field, ...]

    def is_nullable(self, version: int) -> bool:
        """Whether the field can be null in that version."""
        return self.nullable is not None and version in self.nullable

    @property
    def can_be_null(self) -> bool:
        """Whether the field can be null in some version."""
        return self.nullable is not None

    @property
    def default(self) -> Any:
        """The value of the field where it is left out. Structs: {}; arrays: []."""
        text, kind = self.default_text, self.kind
        if text == "null":
            return None
        if self.is_array:
            return []
        if kind == "string":
            return (text or "").strip('"')
        if kind == "bool":
            return text == "true"
        if kind == "float64":
            return float(text or "0")
        if kind in LAYOUTS and kind != "uuid":
            return int(text or "0", 0)
        assert text is None, f"{self.name}: {text}"
        return {"uuid": ZERO_UUID, "struct": {}}.get(kind, b"")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MessageSchema:
    """A message with the versions that can be read; `flexible` are those with tag sections."""

    name: str
    key: int
    versions: VersionRange
    flexible: VersionRange
    fields: tuple[Field, ...]


def snake_case(name: str) -> str:
    """`topicId` as `topic_id`.

    Source: org.apache.kafka.message.MessageGenerator.toSnakeCase.
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def schemas(text: str) -> dict[str, MessageSchema]:
    """The schemas that `text` describes, by name; lines that begin with # are comments."""
    found: dict[str, MessageSchema] = {}
    lines = [line for line in text.splitlines() if line.strip() and line[0] != "#"]
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


@cache
def fields_of(fields: tuple[Field, ...], version: int) -> tuple[Field, ...]:
    """The fields that the version has."""
    return tuple(field for field in fields if version in field.versions)


def has_records(fields: Sequence[Field]) -> bool:
    """Whether a message of these fields has records in it."""
    return any(field.kind == "records" or has_records(field.fields) for field in fields)


def default_of(field: Field) -> Any:
    """A new value of what a field holds in a version that lacks it, or where it is left out."""
    if field.kind == "struct" and not field.is_array and field.default is not None:
        return {inner.name: default_of(inner) for inner in field.fields}
    return [] if field.is_array and field.default is not None else field.default


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
        is_struct = kind == "{}" or kind[0].isupper()
        fields.append(
            Field(
                name=sys.intern(name),
                attribute=sys.intern(snake_case(name)),
                kind="struct" if is_struct else sys.intern(kind),
                is_array=is_array,
                versions=versions,
                nullable=VersionRange.parse(nullable or "0+") if question else None,
                tag=int(options["tag"]) if "tag" in options else None,
                default_text=options.get("default"),
                struct=kind if is_struct and kind != "{}" else "",
                fields=children,
            )
        )
    return tuple(fields), position
