"""Requests in which one number, of any field, has another value: most are of no enum or range.

Role: whatever a controller answers to them, it and a Kafka must start again on what it wrote.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cordwood.protocol.messages import MalformedMessageError, encode, request_codec
from support.length_fuzz import usual_fields
from support.wire import API_KEYS, request_body, request_frame

_VALUES: Final = (
    *(-(2**63), -(2**31), -(2**15), -128, -2, -1),
    *(0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 32, 64, 77, 127),
    *(2**15 - 1, 2**16 - 1, 2**31 - 1, 2**63 - 1),
)
#: A wait in the request is none of what is recorded.
_WAITS: Final = frozenset({"timeout"})

Path = tuple[str | int, ...]


def number_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The ways to all numbers in the fields of a request."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            if name not in _WAITS:
                yield from number_paths(each, (*path, name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from number_paths(each, (*path, index))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


def with_value(fields: Any, path: Path, value: float) -> Any:
    """A copy of the fields with another number at the end of a path."""
    if not path:
        return value
    if isinstance(fields, Mapping):
        return {
            name: with_value(each, path[1:], value) if name == path[0] else each
            for name, each in fields.items()
        }
    return [
        with_value(each, path[1:], value) if index == path[0] else each
        for index, each in enumerate(fields)
    ]


def changed_frames(
    api_key: int, version: int, rng: random.Random, *, count: int
) -> Iterator[tuple[str, bytes]]:
    """The name of each field that is a number, and the request with `count` other values in it."""
    message, fields = request_codec(api_key, version), usual_fields(api_key, version)
    for path in number_paths(fields):
        for value in rng.sample(_VALUES, count):
            try:
                body = encode(message, with_value(fields, path, value))
            except (MalformedMessageError, ValueError, OverflowError, TypeError, struct.error):
                continue  # the field is too small for it
            names = ".".join(str(each) for each in path if isinstance(each, str))
            frame = request_frame(api_key, version, 1, "values", body)
            yield f"{message.schema.name} {names}={value}", frame


def changed(
    api: str, version: int, fields: Mapping[str, Any], rng: random.Random
) -> tuple[str, bytes] | None:
    """The name of the field and the body of a request with one number changed; None without one."""
    paths = list(number_paths(fields))
    values = [*_VALUES]
    rng.shuffle(paths)
    rng.shuffle(values)
    for path in paths:
        for value in values:
            try:
                body = request_body(API_KEYS[api], version, with_value(fields, path, value))
            except (ValueError, OverflowError, TypeError, ArithmeticError, struct.error):
                continue  # the field is too small for it
            names = ".".join(str(each) for each in path if isinstance(each, str))
            return f"{api} {names}={value}", body
    return None
