"""Writes src/cordwood/protocol/apis from the message definitions that Kafka's clients jar carries.

One module for each API, with the schemas of its request and its response in the notation of
cordwood.format.messages.schema, and a typed class for each of their structs. Only facts are taken:
names, types, versions, nullable versions, tags and defaults.

Usage: python tools/message_schemas.py [kafka-clients.jar]
"""

from __future__ import annotations

import json
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
    snake_case,
)

ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "src/cordwood/protocol/apis"
JAR: Final = Path.home() / ".cache/cordwood/kafka-4.3.0/jars/kafka-clients-4.3.0.jar"

Json = Mapping[str, Any]

_TYPES: Final = {
    "bool": "bool",
    "bytes": "bytes",
    "float64": "float",
    "records": "memoryview",
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
            there = _intersection(VersionRange.parse(field["versions"]), versions)
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
                parts.append(_versions(field["versions"], there, versions))
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


# ---- the notation to Python


def module(key: int, name: str, request: Json, response: Json) -> str:
    """The source of an API's module."""
    notation = Notation()
    text = "\n".join([*notation.message(request), "", *notation.message(response)])
    parsed = schemas(text)
    classes = "\n\n\n".join(_classes(list(parsed.values())))
    versions = next(iter(parsed.values())).versions
    to = f" to {versions.highest}" if versions.highest > versions.lowest else ""
    of = "versions" if to else "version"
    imports = "from uuid import UUID\n\n" if "UUID" in classes else ""
    return (
        f'"""{name} ({key}), {of} {versions.lowest}{to}.\n\n'
        "Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.\n"
        '"""\n\n'
        f"from __future__ import annotations\n\n{imports}"
        "from cordwood.format.messages.message import Message\n\n"
        f'SCHEMAS = """\n{text}\n"""\n\n\n{classes}\n'
    )


def _classes(messages: Sequence[MessageSchema]) -> Iterator[str]:
    seen: set[str] = set()
    for message in messages:
        seen.add(message.name)
        what = "request" if message.name.endswith("Request") else "response"
        yield _class(message.name, f"The {what} in every version.", message.fields)
        yield from _structs(message.fields, message.name, seen)


def _structs(fields: Sequence[Field], owner: str, seen: set[str]) -> Iterator[str]:
    for field in fields:
        if field.kind == "struct" and field.struct not in seen:
            seen.add(field.struct)
            of = f"`{field.attribute}` of {owner}"
            text = f"An element of {of}." if field.is_array else f"The struct {of}."
            yield _class(field.struct, text, field.fields)
            yield from _structs(field.fields, field.struct, seen)


def _class(name: str, docstring: str, fields: Sequence[Field]) -> str:
    lines = [f"class {name}(Message):", f'    """{docstring}"""']
    if fields:
        lines.append("")
    for field in fields:
        kind = field.struct or _TYPES.get(field.kind, "int")
        kind = f"list[{kind}]" if field.is_array else kind
        null = " | None" if field.nullable is not None else ""
        lines.append(f"    {field.attribute}: {kind}{null}")
    return "\n".join(lines)


def index(found: Mapping[int, tuple[str, Json, Json]]) -> str:
    """The source of the table of all APIs."""
    entries = []
    for key, (name, request, _) in found.items():
        versions = VersionRange.parse(request["validVersions"])
        entries.append(
            f'    {key}: KnownApi("{name}", "{snake_case(name)}", '
            f"{versions.lowest}, {versions.highest}),"
        )
    return (
        '"""The APIs of Kafka\'s protocol, each in a module of its own.\n\n'
        "Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.\n"
        '"""\n\n'
        "from __future__ import annotations\n\n"
        "from typing import Final, NamedTuple\n\n\n"
        "class KnownApi(NamedTuple):\n"
        '    """An API: Kafka\'s name, that of its module, and its versions, both inclusive."""\n\n'
        "    name: str\n    module: str\n    min_version: int\n    max_version: int\n\n\n"
        "APIS: Final = {\n" + "\n".join(entries) + "\n}\n"
        '"""Every API by its key."""\n'
    )


def files(jar: Path) -> dict[str, str]:
    """The source of every module, by the name of its file."""
    found = apis(definitions(jar))
    written = {f"{snake_case(api[0])}.py": module(key, *api) for key, api in found.items()}
    return {"__init__.py": index(found)} | written


def main() -> None:
    jar = Path(sys.argv[1]) if len(sys.argv) > 1 else JAR
    TARGET.mkdir(exist_ok=True)
    for name, text in files(jar).items():
        (TARGET / name).write_text(text)


if __name__ == "__main__":
    main()
