"""Writes the schemas of src/cordwood/protocol, and what declares their classes to type checkers.

`kafka_4_4.txt` has all requests and responses in the notation of cordwood.format.messages.schema,
taken from the message definitions that Kafka's clients jar carries: only facts, which are names,
types, versions, nullable versions, tags and defaults. Without the jar it stays as it is. `data.pyi`
has the classes of those messages that the code imports.

Usage: python tools/message_schemas.py [kafka-clients.jar]
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cordwood.format.messages.schema import (
    Field,
    MessageSchema,
    VersionRange,
    schemas,
)

ROOT: Final = Path(__file__).resolve().parent.parent
SCHEMAS: Final = ROOT / "src/cordwood/protocol/kafka_4_4.txt"
STUB: Final = ROOT / "src/cordwood/protocol/data.pyi"
JAR: Final = Path.home() / ".cache/cordwood/kafka-4.4.0/jars/kafka-clients-4.4.0.jar"

Json = Mapping[str, Any]

_REQUEST: Final = "Request"
_IMPORT: Final = re.compile(r"from cordwood\.protocol\.data import (?:\(([^)]*)\)|(.*))")
_TEXT_HEAD: Final = """\
# The requests and responses of Kafka 4.4.0, in the notation of cordwood.format.messages.schema.
# Written by tools/message_schemas.py from the definitions in Kafka's clients jar.
"""
_STUB_HEAD: Final = """\
# The classes of the messages that the code imports. Written by tools/message_schemas.py.

from collections.abc import Sequence
from uuid import UUID

from cordwood.format.messages.message import Message, Request
from cordwood.format.messages.primitives import Records
"""

_TYPES: Final = {
    "bool": "bool",
    "bytes": "bytes",
    "float64": "float",
    "records": "bytes | memoryview",
    "string": "str",
    "uuid": "UUID",
}


def definitions(jar: Path) -> dict[str, Json]:
    """The definitions of all messages that have versions, by name."""
    found: dict[str, Json] = {}
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if name.startswith("common/message/") and name.endswith(".json"):
                lines = archive.read(name).decode().splitlines()
                text = "\n".join(line for line in lines if not line.lstrip().startswith("//"))
                message = json.loads(text)
                if message["validVersions"] != "none":
                    found[message["name"]] = message
    return found


def apis(found: Mapping[str, Json]) -> dict[int, tuple[str, Json, Json]]:
    """Name, request and response of every API, by key."""
    return {
        request["apiKey"]: (
            name.removesuffix("Request"),
            request,
            found[f"{name.removesuffix('Request')}Response"],
        )
        for name, request in sorted(found.items(), key=lambda item: item[1].get("apiKey", -1))
        if request["type"] == "request"
    }


# ---- JSON to the notation


class Notation:
    """Puts the definitions of one API into the notation."""

    def __init__(self) -> None:
        # Invariant: a name stands for one list of fields in the whole module.
        self._structs: dict[str, str] = {}

    def message(self, message: Json) -> list[str]:
        """The lines of one message."""
        versions = VersionRange.parse(message["validVersions"])
        flexible = message["flexibleVersions"]
        if VersionRange.parse(flexible).lowest > versions.highest:
            flexible = "none"
        common = {each["name"]: each["fields"] for each in message.get("commonStructs", ())}
        head = f"message {message['name']} key={message['apiKey']}"
        head += f" versions={message['validVersions']} flexible={flexible}"
        return [head, *self._fields(message["fields"], message["name"], versions, common, "  ")]

    def _fields(
        self,
        fields: Sequence[Json],
        message: str,
        versions: VersionRange,
        common: Mapping[str, Sequence[Json]],
        indent: str,
    ) -> Iterator[str]:
        for field in fields:
            # A tagged field may leave out the versions that it is in.
            given = field.get("versions") or field["taggedVersions"]
            there = _intersection(VersionRange.parse(given), versions)
            if there is None:
                continue
            kind = field["type"]
            prefix = "[]" if kind.startswith("[]") else ""
            kind = kind.removeprefix("[]")
            inner: list[str] = []
            if kind[0].isupper():
                nested = field.get("fields") or common[kind]
                inner = list(self._fields(nested, message, there, common, indent + "  "))
                kind = self._struct(kind, message, "\n".join(each.strip() for each in inner))
            parts = [field["name"][0].lower() + field["name"][1:]]
            parts.append(prefix + kind + _nullable(field, there))
            if there != versions:
                parts.append(_versions(given, there, versions))
            if "tag" in field:
                parts.append(f"tag={field['tag']}")
            parts += _default(field)
            yield indent + " ".join(parts)
            yield from inner

    def _struct(self, name: str, message: str, fields: str) -> str:
        """The name, with the message's before it where another struct has it."""
        if self._structs.setdefault(name, fields) != fields:
            name = message + name
            assert self._structs.setdefault(name, fields) == fields, name
        return name


def _intersection(one: VersionRange, other: VersionRange) -> VersionRange | None:
    lowest, highest = max(one.lowest, other.lowest), min(one.highest, other.highest)
    return VersionRange(lowest=lowest, highest=highest) if lowest <= highest else None


def _versions(text: str, there: VersionRange, outer: VersionRange) -> str:
    if there.highest == outer.highest:
        return f"{there.lowest}+"
    return text if there.lowest == there.highest else f"{there.lowest}-{there.highest}"


def _nullable(field: Json, there: VersionRange) -> str:
    text = field.get("nullableVersions", "none")
    found = _intersection(VersionRange.parse(text), there) if text != "none" else None
    if found is None:
        return ""
    return "?" if found == there else f"?{text}"


def _default(field: Json) -> list[str]:
    default = field.get("default")
    if default is None:
        return []
    text = str(default).lower() if isinstance(default, bool) else str(default)
    if field["type"] == "string" and text != "null" and "nullableVersions" not in field:
        assert not text, field
        return []
    if field["type"] == "string" and text != "null":
        return [f'default="{text}"']
    if field["type"] in {"bool", "uuid"} and text in {"false", ""}:
        return []
    if field["type"].startswith(("int", "uint")):
        number = int(text, 0)
        return [f"default={number}"] if number else []
    return [f"default={text}"]


# ---- the notation to declarations


def declarations(text: str, names: set[str]) -> str:
    """Declares the classes of the messages of those names to type checkers, as a stub."""
    parsed = schemas(text)
    names = names | {_answer(each) for each in names if each.endswith(_REQUEST)}
    missing = names - parsed.keys()
    assert not missing, missing
    # A request names its response as its base.
    ordered = sorted(names, key=lambda name: (_api(name), name.endswith(_REQUEST)))
    classes = "\n".join(_message(parsed[name]) for name in ordered)
    return f"{_STUB_HEAD}\n{classes}"


def _message(message: MessageSchema) -> str:
    structs: dict[str, Field] = {}
    _collect(message.fields, structs)
    base = "Message"
    if message.name.endswith(_REQUEST):
        base = f"Request[{_answer(message.name)}]"
    lines = [f"class {message.name}({base}):"]
    for name, struct in structs.items():
        lines += [f"    class {name}(Message):", *_fields(message, struct.fields, " " * 8), ""]
    return "\n".join([*lines, *_fields(message, message.fields, " " * 4), ""])


def _api(message: str) -> str:
    return message.removesuffix(_REQUEST).removesuffix("Response")


def _answer(request: str) -> str:
    return f"{_api(request)}Response"


def _collect(fields: Sequence[Field], structs: dict[str, Field]) -> None:
    for field in fields:
        if field.kind == "struct":
            structs.setdefault(field.struct, field)
            _collect(field.fields, structs)


def _fields(message: MessageSchema, fields: Sequence[Field], indent: str) -> Iterator[str]:
    if not fields:
        yield f"{indent}..."
    for field in fields:
        kind = _TYPES.get(field.kind, "int")
        if field.kind == "struct":
            kind = f"{message.name}.{field.struct}"
        elif field.kind == "records" and message.name.endswith("Response"):
            kind = "bytes | memoryview | Records"
        kind = f"Sequence[{kind}]" if field.is_array else kind
        null = " | None" if field.can_be_null else ""
        yield f"{indent}{field.attribute}: {kind}{null} = ..."


def used_messages() -> set[str]:
    """The names of the messages whose classes the code imports."""
    found: set[str] = set()
    for directory in ("src", "tests", "tools", "benchmarks"):
        for path in (ROOT / directory).rglob("*.py"):
            for one, several in _IMPORT.findall(path.read_text()):
                found.update(re.findall(r"\w+", one or several))
    return found


def text_of(jar: Path) -> str:
    """The schemas of all messages."""
    found = apis(definitions(jar))
    parts = []
    for _, request, response in found.values():
        notation = Notation()
        parts += ["\n".join(notation.message(each)) for each in (request, response)]
    return f"{_TEXT_HEAD}\n" + "\n\n".join(parts) + "\n"


def main() -> None:
    jar = Path(sys.argv[1]) if len(sys.argv) > 1 else JAR
    if jar.exists():
        SCHEMAS.write_text(text_of(jar))
    STUB.write_text(declarations(SCHEMAS.read_text(), used_messages()))


if __name__ == "__main__":
    main()
