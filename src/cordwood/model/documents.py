"""Answers as JSON documents, documents as answers, and the JSON schema of a document.

An answer is a dataclass; each of its fields is a key of the document, in the same order. The key is
the name of the field, in camel case if the answer is `CamelCase`, or what its metadata have as
`KEY`. Fields are texts, numbers, flags, None, enumerations of texts, sequences, mappings with texts
as keys, unions with None, and other dataclasses, of which a union is read as the first that fits.
Only written are literal texts, and bytes: as a text, or where they are not UTF-8, in Base64 under
the key `KEY_base64`.

Source: JSON Schema, draft 2020-12.
"""

from __future__ import annotations

import base64
import json
import types
import typing
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import EnumType, StrEnum
from functools import cache, partial
from pathlib import PurePath
from typing import Any, Final, NamedTuple, TypeVar, cast

from cordwood.model.errors import CorruptError

T = TypeVar("T")

ABSENT: Final[Mapping[str, bool]] = {"absent": True}
"""The metadata of a field of which a document has no key if it is None."""
KEY: Final = "key"
"""The metadata that has the key of a field, if that is not its name."""
_BASE64: Final = "_base64"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_PLAIN: Final[Mapping[Any, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


class CamelCase:
    """Base of answers with keys as Kafka's own documents have them: `log_dir` is `logDir`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The answer of a command that failed, whatever it would have answered."""

    error: str
    exit_code: int


class _Key(NamedTuple):
    """The key of a field of a dataclass, and whether it is left out if the value is None."""

    field: str
    key: str
    is_absent: bool


# ---- to a document


def document_text(answer: Any) -> str:
    """The JSON of an answer, on one line."""
    return json.dumps(to_document(answer))


def keys_of(kind: Any) -> tuple[str, ...]:
    """The keys of the documents of a dataclass, in their order."""
    return tuple(each.key for each in _keys_of(kind))


def to_document(answer: Any) -> Any:
    """The plain values of an answer, as `json.dumps` takes them."""
    if answer is None or type(answer) in _PLAIN:
        return answer
    if is_dataclass(answer):
        found: dict[str, Any] = {}
        kind: Any = type(answer)
        for name, key, is_absent in _keys_of(kind):
            value = getattr(answer, name)
            if type(value) is bytes:
                found.update([_readable(key, value)])
            elif value is not None or not is_absent:
                found[key] = value if type(value) in _PLAIN else to_document(value)
        return found
    if isinstance(answer, str | PurePath):
        return str(answer)
    if isinstance(answer, Mapping):
        return {str(key): to_document(value) for key, value in answer.items()}
    assert isinstance(answer, Sequence), f"{answer!r} is not part of an answer"
    return [to_document(each) for each in answer]


def _readable(key: str, data: bytes) -> tuple[str, str]:
    """The key and the text of bytes."""
    try:
        return key, data.decode()
    except UnicodeDecodeError:
        return key + _BASE64, base64.b64encode(data).decode()


@cache
def _keys_of(kind: Any) -> tuple[_Key, ...]:
    """The key of each field of a dataclass."""
    is_camel = issubclass(kind, CamelCase)
    found = []
    for each in fields(kind):
        key = each.metadata.get(KEY, _camel_case(each.name) if is_camel else each.name)
        found.append(_Key(each.name, key, "absent" in each.metadata))
    return tuple(found)


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


# ---- from a document


def from_document(kind: type[T], document: Any) -> T:
    """The answer that a document describes; keys that it does not know are ignored.

    Raises:
        CorruptError: a key is missing, or a value is of another type.
    """
    try:
        answer: T = _reader_of(cast("Hashable", kind))(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptError(f"not an answer of this version ({error!r})") from error
    return answer


@cache
def _reader_of(kind: Any) -> Callable[[Any], Any]:
    """Reads a value of a type of an answer."""
    if kind in _PLAIN or kind is Any:
        return lambda value: _checked(kind, value)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {types.UnionType, typing.Union}:
        readers = [_reader_of(each) for each in arguments if each is not type(None)]
        reader = readers[0] if len(readers) == 1 else partial(_first, readers)
        return lambda value: None if value is None else reader(value)
    if origin is not None and issubclass(origin, Mapping):
        reader = _reader_of(arguments[1])
        return lambda value: {key: reader(each) for key, each in value.items()}
    if origin is tuple and arguments[-1] is not ...:
        each_reader = [_reader_of(each) for each in arguments]
        return lambda value: tuple(r(each) for r, each in zip(each_reader, value, strict=True))
    if origin is not None and issubclass(origin, Sequence):
        reader = _reader_of(arguments[0])
        return lambda value: tuple(reader(each) for each in _checked(list, value))
    if is_dataclass(kind):
        return _dataclass_reader(kind)
    assert issubclass(kind, StrEnum), f"{kind} is not a type of an answer"
    return cast("Callable[[Any], Any]", kind)


def _first(readers: Sequence[Callable[[Any], Any]], value: Any) -> Any:
    """The value as the first type of a union reads it whose keys it has."""
    for reader in readers:
        with suppress(KeyError):
            return reader(value)
    raise TypeError(f"{value!r} is of no type of the union")


def _checked(kind: Any, value: Any) -> Any:
    if kind is Any or isinstance(value, kind) or (kind is float and isinstance(value, int)):
        return value
    raise TypeError(f"{value!r} is not {kind.__name__}")


def _dataclass_reader(kind: Any) -> Callable[[Any], Any]:
    hints = typing.get_type_hints(kind)
    readers = {each: _reader_of(hints[each.field]) for each in _keys_of(kind)}
    needed = {each.name for each in fields(kind) if not _has_default(each)}

    def read(value: Any) -> Any:
        known = {
            name: reader(value[key])
            for (name, key, _), reader in readers.items()
            if key in value or name in needed
        }
        return kind(**known)

    return read


def _has_default(field_: Any) -> bool:
    return field_.default is not MISSING or field_.default_factory is not MISSING


# ---- the schema of a document


def schema_of(kind: Any, title: str) -> dict[str, Any]:
    """The JSON schema of the documents of a type of answer."""
    named: dict[str, Any] = {}
    found = _schema(kind, named)
    definitions = {name: named[name] for name in sorted(named)}
    return {"$schema": _DIALECT, "title": title, **found, "$defs": definitions}


def _schema(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type; those of dataclasses are added to `named`."""
    if kind is Any:
        return {}
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal or isinstance(kind, EnumType):
        return {"enum": [str(each) for each in arguments or kind]}
    if origin in {types.UnionType, typing.Union}:
        return {"anyOf": [_schema(each, named) for each in arguments]}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1], named)}
    if origin is tuple and arguments[-1] is not ...:
        items = [_schema(each, named) for each in arguments]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if origin is not None and issubclass(origin, Sequence):
        return {"type": "array", "items": _schema(arguments[0], named)}
    name = kind.__name__
    if name not in named:
        named[name] = {}
        named[name] = _object(kind, named)
    return {"$ref": f"#/$defs/{name}"}


def _object(kind: Any, named: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    keys = _keys_of(kind)
    properties: dict[str, Any] = {}
    required, choices = [], []
    for each in keys:
        hint = hints[each.field]
        if bytes in typing.get_args(hint):
            other = each.key + _BASE64
            properties |= {each.key: _schema(str | None, named), other: _schema(str, named)}
            choices.append({"oneOf": [{"required": [each.key]}, {"required": [other]}]})
            continue
        properties[each.key] = _schema(hint, named)
        if not each.is_absent:
            required.append(each.key)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        **({"allOf": choices} if choices else {}),
        "additionalProperties": False,
    }
