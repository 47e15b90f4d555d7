"""The options that say how keys and values are decoded: format, schema, prefix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from cordwood.model.errors import ConfigError
from cordwood.storage.filesystem import OS

COLUMNS: Final = ("key", "value")

_BINARY: Final = "binary"
_SCHEMA_ID_MAX: Final = (1 << 31) - 1


class Format(StrEnum):
    """The format of a decoded column; `binary`, the default, is none of these."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class Malformed(StrEnum):
    """The result for a value that its schema does not describe: an error, or null."""

    FAIL = "fail"
    NULL = "null"


class Prefix(StrEnum):
    """The bytes before the encoded value."""

    NONE = "none"
    CONFLUENT = "confluent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """The way in which the bytes of a column are decoded.

    `schema` is the text of a schema in UTF-8; of Protobuf a FileDescriptorSet, of which `message`
    names a message. With `prefix` the schema's id comes first; `writer_schemas` are the Avro
    schemas that values were written with, by id, where they are not all `schema`.
    """

    column: str
    format: Format
    schema: bytes
    message: str = ""
    prefix: Prefix = Prefix.NONE
    writer_schemas: tuple[tuple[int, str], ...] = ()
    malformed: Malformed = Malformed.FAIL


#: The names of all options.
NAMES: Final = (
    "malformed",
    *(
        f"{column}{what}"
        for column in COLUMNS
        for what in ("Format", "Schema", "Message", "Prefix", "Schemas")
    ),
)


def parse_encodings(options: Mapping[str, str]) -> tuple[Encoding, ...]:
    """The encodings of the columns that have one.

    Args:
        options: by name in lower case.

    Raises:
        ConfigError: an option is missing, or has a wrong value.
        OSError: the file of a schema cannot be read.
    """
    malformed = _member(Malformed, options, "malformed", Malformed.FAIL)
    found = [_parsed(options, column, malformed) for column in COLUMNS]
    return tuple(each for each in found if each is not None)


def _parsed(options: Mapping[str, str], column: str, malformed: Malformed) -> Encoding | None:
    name = f"{column}Format"
    text = options.get(name.lower(), _BINARY)
    if text.lower() == _BINARY:
        for what in ("Schema", "Message", "Prefix", "Schemas"):
            if f"{column}{what}".lower() in options:
                raise ConfigError(f"option {column}{what} needs {name}: {', '.join(Format)}")
        return None
    kind = _member(Format, options, name, Format.JSON)
    prefix = _member(Prefix, options, f"{column}Prefix", Prefix.NONE)
    message = _required(options, f"{column}Message", kind is Format.PROTOBUF, f"{name}={kind}")
    schemas = options.get(f"{column}schemas")
    if schemas is not None and (kind is not Format.AVRO or prefix is not Prefix.CONFLUENT):
        raise ConfigError(
            f"option {column}Schemas is for {name}=avro with {column}Prefix=confluent"
        )
    schema = _required(options, f"{column}Schema", True, f"{name}={kind}")
    return Encoding(
        column=column,
        format=kind,
        schema=_content(schema, kind),
        message=message,
        prefix=prefix,
        writer_schemas=() if schemas is None else _writer_schemas(schemas, f"{column}Schemas"),
        malformed=malformed,
    )


_Member = TypeVar("_Member", bound=StrEnum)


def _member(
    kind: type[_Member], options: Mapping[str, str], name: str, default: _Member
) -> _Member:
    text = options.get(name.lower(), default)
    try:
        return kind(text.lower())
    except ValueError:
        others = f"{_BINARY}, " if kind is Format else ""
        raise ConfigError(f"option {name}: {text!r} is none of {others}{', '.join(kind)}") from None


def _required(options: Mapping[str, str], name: str, is_needed: bool, because: str) -> str:
    """The value of an option that is given if, and only if, it is needed."""
    text = options.get(name.lower(), "")
    if is_needed and not text:
        raise ConfigError(f"option {name} is missing: {because} needs it")
    if not is_needed and text:
        raise ConfigError(f"option {name} is not for {because}")
    return text


def _content(schema: str, kind: Format) -> bytes:
    """The schema itself, where the option may name a file that has it."""
    if kind is Format.PROTOBUF or (kind is Format.AVRO and not _is_avro(schema)):
        return OS.read_bytes(Path(schema))
    return schema.encode()


def _is_avro(text: str) -> bool:
    """Whether it is an Avro schema, and no name of a file: an object, a union or a name in JSON."""
    return text.lstrip().startswith(("{", "[", '"'))


def _writer_schemas(text: str, name: str) -> tuple[tuple[int, str], ...]:
    wrong = ConfigError(
        f'option {name}: expected a JSON object of schemas, or of names of files, by id: {{"7": …}}'
    )
    try:
        given = json.loads(text)
        if not isinstance(given, dict):
            raise wrong
        by_id = {int(number): schema for number, schema in given.items()}
    except ValueError:
        raise wrong from None
    if not by_id or not all(0 <= number <= _SCHEMA_ID_MAX for number in by_id):
        raise wrong
    return tuple((number, _writer_schema(by_id[number])) for number in sorted(by_id))


def _writer_schema(given: object) -> str:
    text = given if isinstance(given, str) else json.dumps(given)
    return _content(text, Format.AVRO).decode()
