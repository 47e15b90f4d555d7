"""Requests and responses of Kafka's protocol, any API and version, over kio's schema.

Requests are read by kio into its frozen classes. What is sent is given as plain fields, one mapping
for all versions: those that a version lacks are left out, those left out take the schema's default.
Handlers so never speak of versions unless behaviour differs. Milliseconds, error codes and the like
are plain ints; a UUID may be None for Kafka's zero UUID.

Source: Kafka's clients/src/main/resources/common/message; KIP-482 (tagged fields).
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from datetime import timedelta
from functools import cache, partial
from typing import Any
from uuid import UUID

from kio.schema.index import api_key_map
from kio.serial import entity_reader
from kio.serial.errors import InvalidUnicode
from kio.static.constants import EntityType

from cordwood.model.errors import CordwoodError
from cordwood.model.pauses import in_steps, is_pausing
from cordwood.protocol.fields import (
    LAYOUTS,
    STRING_BYTES_MAX,
    Buffer,
    LengthError,
    MessageClass,
    MessageField,
    fields_of,
    string_error,
)
from cordwood.protocol.lengths import UnusualEncodingError, walk_of
from cordwood.protocol.pausing_reader import pausing_reader
from cordwood.protocol.tolerant import values_reader

Write = Callable[[bytearray, Any], None]
ZERO_UUID = UUID(int=0)
_READ_AT_ONCE_BYTES_MAX = 16 * 1024
_STEPS_MIN = 16


class MalformedMessageError(CordwoodError):
    """Bytes that are no message of the API and version they are said to be of."""


class UnknownMessageError(CordwoodError):
    """An API, or a version of one, that kio has no schema of."""


@cache
def _message_class(api_key: int, version: int, kind: str) -> MessageClass:
    name = api_key_map.get(api_key)
    if name is None:
        raise UnknownMessageError(f"no API has the key {api_key}")
    try:
        module = importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")
    except ModuleNotFoundError:
        raise UnknownMessageError(f"{name} has no version {version}") from None
    wanted = EntityType.request if kind == "request" else EntityType.response
    for value in vars(module).values():
        if isinstance(value, type) and getattr(value, "__type__", None) is wanted:
            return value
    raise UnknownMessageError(f"{name} version {version} has no {kind}")


def request_class(api_key: int, version: int) -> MessageClass:
    """kio's class of an API's request.

    Raises:
        UnknownMessageError: there is no such API or version.
    """
    return _message_class(api_key, version, "request")


def response_class(api_key: int, version: int) -> MessageClass:
    """kio's class of an API's response.

    Raises:
        UnknownMessageError: there is no such API or version.
    """
    return _message_class(api_key, version, "response")


def read(message: MessageClass, data: Buffer, offset: int = 0) -> Any:
    """Reads one message that must fill `data` from `offset` to its end.

    Raises:
        MalformedMessageError: it does not.
    """
    value, end = _read(message, data, offset)
    if end != len(data):
        raise MalformedMessageError(
            f"{message.__name__} version {message.__version__} ends at byte {end} of {len(data)}"
        )
    return value


def read_request(
    api_key: int,
    version: int,
    body: Buffer,
    offset: int = 0,
    *,
    distinct: str = "",
) -> Any:
    """Reads the body of a request, from `offset` on.

    Bytes after it are ignored, as by Kafka: librdkafka sends a field of Metadata that its
    version no longer has. Where work is done in slices (`model.pauses`) a large request is read
    with pauses, and equal elements of its array `distinct` once.

    Raises:
        MalformedMessageError: the bytes are not such a request.
        UnknownMessageError: there is no such API or version.
    """
    return _read(request_class(api_key, version), body, offset, distinct)[0]


def _read(message: MessageClass, data: Buffer, offset: int, distinct: str = "") -> tuple[Any, int]:
    try:
        try:
            walk_of(message)(data, offset)
            return _read_usual(message, data, offset, distinct)
        except (UnusualEncodingError, InvalidUnicode):
            return _read_unusual(message, data, offset, distinct)
    except MalformedMessageError:
        raise
    except Exception as error:
        raise MalformedMessageError(
            f"{message.__name__} version {message.__version__}: {error or type(error).__name__}"
        ) from error


def _read_usual(message: MessageClass, data: Buffer, offset: int, distinct: str) -> tuple[Any, int]:
    if is_pausing() and len(data) - offset > _READ_AT_ONCE_BYTES_MAX:
        return pausing_reader(message, distinct)(data, offset)
    value, size = entity_reader(message)(data, offset)
    return value, offset + size


def _read_unusual(
    message: MessageClass, data: Buffer, offset: int, distinct: str
) -> tuple[Any, int]:
    """Reads what Kafka accepts and kio does not, by way of bytes that kio does accept."""
    values, end = values_reader(message)(data, offset)
    return _read_usual(message, encode(message, values), 0, distinct)[0], end


def field(entity: Any, name: str, default: Any = None) -> Any:
    """An attribute that older versions lack; spans of time in ms."""
    value = getattr(entity, name, default)
    return milliseconds(value) if isinstance(value, timedelta) else value


def milliseconds(span: timedelta) -> int:
    """A span of time as kio reads it, in ms."""
    return span // timedelta(milliseconds=1)


# ---- writing


def encode(message: MessageClass, values: Mapping[str, Any]) -> bytes:
    """A message's bytes; arguments and errors are those of `encoded`."""
    return bytes(encoded(message, values))


def encoded(message: MessageClass, values: Mapping[str, Any]) -> bytearray:
    """A message's bytes in a buffer that is the caller's.

    Args:
        message: kio's class, which says the version.
        values: fields by name; nested messages are mappings or have the fields as attributes.

    Raises:
        MalformedMessageError: a value does not fit its field.
    """
    out = bytearray()
    try:
        _writer(message)(out, values)
    except (LengthError, struct.error, TypeError, AttributeError, UnicodeError) as error:
        raise MalformedMessageError(
            f"{message.__name__} version {message.__version__}: {error}"
        ) from error
    return out


def build(message: MessageClass, values: Mapping[str, Any]) -> Any:
    """An object of kio's class with those fields, the others at their defaults."""
    return read(message, encode(message, values))


def write_uvarint(out: bytearray, value: int) -> None:
    """Appends an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _number(layout: str) -> Write:
    pack = struct.Struct(layout).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return write


def _span(layout: str) -> Write:
    pack = struct.Struct(layout).pack

    def write(out: bytearray, value: Any) -> None:
        out += pack(milliseconds(value) if isinstance(value, timedelta) else value)

    return write


def _date(layout: str) -> Write:
    pack = struct.Struct(layout).pack

    def write(out: bytearray, value: int | None) -> None:
        out += pack(-1 if value is None else value)

    return write


def _write_uuid(out: bytearray, value: UUID | None) -> None:
    out += (value or ZERO_UUID).bytes


def _write_bool(out: bytearray, value: Any) -> None:
    out.append(1 if value else 0)


_SIMPLE: Mapping[str, Write] = {
    **{kind: _number(layout) for kind, layout in LAYOUTS.items()},
    "bool": _write_bool,
    "uuid": _write_uuid,
    "timedelta_i32": _span(LAYOUTS["timedelta_i32"]),
    "timedelta_i64": _span(LAYOUTS["timedelta_i64"]),
    "datetime_i64": _date(LAYOUTS["datetime_i64"]),
}


def _text(name: str, kind: str, *, flexible: bool) -> Write:
    is_string = kind == "string"
    length = struct.Struct(">h" if is_string else ">i").pack

    def write(out: bytearray, value: str | bytes | None) -> None:
        if value is None:
            out += b"\0" if flexible else length(-1)
            return
        data = value.encode() if isinstance(value, str) else value
        if is_string and len(data) > STRING_BYTES_MAX:
            raise string_error(name, len(data))
        if flexible:
            write_uvarint(out, len(data) + 1)
        else:
            out += length(len(data))
        out += data

    return write


def _array(element: Write, *, flexible: bool) -> Write:
    length = struct.Struct(">i").pack

    def write(out: bytearray, values: Iterable[Any] | None) -> None:
        if values is None:
            out += b"\0" if flexible else length(-1)
            return
        items = values if isinstance(values, list | tuple) else list(values)
        if flexible:
            write_uvarint(out, len(items) + 1)
        else:
            out += length(len(items))
        for item in items if len(items) < _STEPS_MIN else in_steps(items, every=_STEPS_MIN):
            element(out, item)

    return write


def _nullable(inner: Write) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out += b"\xff"
        else:
            out += b"\x01"
            inner(out, value)

    return write


_DEFAULTS: Mapping[str, Any] = {"string": "", "bytes": b"", "bool": False, "float64": 0.0}


class _Plan:
    """How a field is written, and what stands in for it when it is not given."""

    __slots__ = ("default", "name", "tag", "write")

    def __init__(self, field: MessageField, *, flexible: bool) -> None:
        self.name = field.name
        self.tag = field.tag
        kind = field.kind
        if kind is None:
            write = _writer(field.message)
            if field.is_nullable and not field.is_array:
                write = _nullable(write)
        elif kind in _SIMPLE:
            write = _SIMPLE[kind]
        else:
            write = _text(field.name, kind, flexible=flexible)
        self.write = _array(write, flexible=flexible) if field.is_array else write
        self.default = _default(field)


def _default(field: MessageField) -> Any:
    spec, kind = field.spec, field.kind
    if spec.default is not MISSING:
        return spec.default
    if spec.default_factory is not MISSING:
        return spec.default_factory()
    if field.is_array:
        return ()
    if kind is None:
        return None if field.is_nullable else {}
    if field.is_nullable and kind not in {"uuid"}:
        return None
    return ZERO_UUID if kind == "uuid" else _DEFAULTS.get(kind, 0)


@cache
def _writer(message: MessageClass) -> Write:
    flexible = bool(message.__flexible__)
    plans = [_Plan(each, flexible=flexible) for each in fields_of(message)]
    positional = [(plan.name, plan.write, plan.default) for plan in plans if plan.tag is None]
    tagged = sorted(
        (plan for plan in plans if plan.tag is not None), key=lambda plan: plan.tag or 0
    )

    def write(out: bytearray, values: Any) -> None:
        get: Callable[[str, Any], Any] = (
            values.get if isinstance(values, Mapping) else partial(getattr, values)
        )
        for name, write_field, default in positional:
            write_field(out, get(name, default))
        if not flexible:
            return
        if not tagged:
            out.append(0)
            return
        _write_tags(out, [(plan, get(plan.name, plan.default)) for plan in tagged])

    return write


def _write_tags(out: bytearray, given: list[tuple[_Plan, Any]]) -> None:
    wanted = [(plan, value) for plan, value in given if not _is_default(value, plan.default)]
    write_uvarint(out, len(wanted))
    for plan, value in wanted:
        payload = bytearray()
        plan.write(payload, value)
        write_uvarint(out, plan.tag or 0)
        write_uvarint(out, len(payload))
        out += payload


def _is_default(value: Any, default: Any) -> bool:
    """Whether a tagged field holds what its absence says: a nested message field by field."""
    if isinstance(value, list):
        value = tuple(value)
    if isinstance(default, timedelta):
        default = milliseconds(default)
    if isinstance(value, Mapping) and not isinstance(default, Mapping) and default is not None:
        return all(
            _is_default(inner, getattr(default, name, inner)) for name, inner in value.items()
        )
    if isinstance(default, UUID) and value is None:
        return default == ZERO_UUID
    return bool(value == default)
