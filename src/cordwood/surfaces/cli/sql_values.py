"""Values of Arrow as those of JSON.

Bytes are text where they are UTF-8, else a literal of SQL such as X'00FF'; moments are ISO 8601, in
UTC; decimals and what no number of JSON is, such as NaN, are texts; a map is an object.
"""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def plain_values(column: pa.Array) -> list[Any]:
    """The values of a column, each as `json.dumps` takes it."""
    kind = column.type
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        parts = [plain_values(part) for part in column.flatten()]
        rows = zip(*parts, strict=True) if parts else [()] * len(column)
        return [
            dict(zip(names, row, strict=True)) if is_valid else None
            for is_valid, row in zip(column.is_valid().to_pylist(), rows, strict=True)
        ]
    if pa.types.is_map(kind):
        return [_object(each.values) if each.is_valid else None for each in column]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [plain_values(each.values) if each.is_valid else None for each in column]
    values: list[Any] = flat(column).to_pylist()
    if pa.types.is_floating(kind):
        return [each if each is None or math.isfinite(each) else str(each) for each in values]
    return values


def is_nested(kind: pa.DataType) -> bool:
    """Whether values of a type have parts."""
    return bool(pa.types.is_nested(kind))


def flat(column: pa.Array) -> pa.Array:
    """A column without parts as one of numbers, flags or texts."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        return column
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _text_of_bytes(column)
    if pa.types.is_timestamp(kind):
        return _text_of_moments(column)
    try:
        return column.cast(pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # an interval
        return pa.array([None if each is None else str(each) for each in column.to_pylist()])


def text_of(value: Any) -> str:
    """A plain value that is not None as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _object(entries: pa.StructArray) -> dict[str, Any]:
    keys, values = (plain_values(entries.field(number)) for number in range(2))
    return dict(zip(map(text_of, keys), values, strict=True))


def _text_of_bytes(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_literal(each) for each in column.to_pylist()], pa.string())


def _literal(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"X'{value.hex().upper()}'"


def _text_of_moments(column: pa.Array) -> pa.Array:
    """Moments as text, whatever their year is; without a time zone if their type has none."""
    zone = "" if column.type.tz is None else "Z"
    # Arrow asks the system for its time zones, which a container may lack.
    moments = column.cast(pa.timestamp(column.type.unit))
    with suppress(pa.ArrowInvalid):  # there are microseconds
        moments = moments.cast(pa.timestamp("ms"))
    return pc.strftime(moments, format=f"%Y-%m-%dT%H:%M:%S{zone}")
