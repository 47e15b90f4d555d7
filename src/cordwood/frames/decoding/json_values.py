"""JSON as Arrow columns, parsed by Arrow many values at once.

Fields that the schema lacks are ignored, and those that a value lacks are null. Numbers are not
rounded: 1.5 is no bigint. Dates and timestamps are texts in ISO 8601, in UTC unless they have a
zone; a decimal is a number or a text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from cordwood.frames.decoding.ddl import parse_ddl
from cordwood.frames.decoding.json_schema import parse_json_schema
from cordwood.frames.decoding.rows import Decoder, Note, converted, decoded_rows, leaves, retyped
from cordwood.model.errors import ConfigError

# Each value is the only field of an object on a line of its own, so that what is no single value
# is an error of this line, whatever stands beside it.
_BEFORE: Final = b'{"v":'
_BETWEEN: Final = b'}\n{"v":'
_BEHIND: Final = b"}\n"
_TAB: Final = 9


def json_decoder(schema: str) -> Decoder:
    """The decoder of a schema: JSON Schema, if it begins with `{`, else DDL of Spark.

    Raises:
        ConfigError: the schema cannot be used.
    """
    is_object = schema.lstrip().startswith("{")
    kind = parse_json_schema(schema) if is_object else parse_ddl(schema)
    if any(pa.types.is_binary(each) for each in leaves(kind)):
        raise ConfigError(f"schema {schema!r}: JSON has no binary values: take string")
    return _MapDecoder(kind) if _has_map(kind) else _ArrowDecoder(kind)


class _ArrowDecoder:
    """A `Decoder` by Arrow's parser."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        # Arrow parses no dates.
        self._parsed = retyped(kind, lambda leaf: pa.string() if pa.types.is_date(leaf) else leaf)

    def decode(self, values: pa.Array, ids: Sequence[int], note: Note, /) -> pa.Array:
        """Implements `Decoder.decode`."""
        del ids
        whole = _on_one_line(values)
        return converted(
            len(whole),
            lambda first, end: self._decoded(whole[first:end]),
            self.type,
            note,
            _reason,
        )

    def _decoded(self, values: pa.Array) -> pa.Array:
        lists = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
        text = _BEFORE + pc.binary_join(lists, _BETWEEN)[0].as_py() + _BEHIND
        table = pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema({"v": self._parsed}), unexpected_field_behavior="ignore"
            ),
        )
        found = table.column(0).combine_chunks()
        if len(found) != len(values):
            raise ValueError("it is not one JSON value")
        found.validate(full=True)  # the parser takes texts that are not UTF-8
        return found if self._parsed == self.type else found.cast(self.type)


def _on_one_line(values: pa.Array) -> pa.Array:
    """Values with a tab for each end of a line: outside of texts space, inside as wrong as that."""
    data = pa.concat_arrays([values, values[:0]]) if values.offset else values
    _, offsets, content = data.buffers()
    if content is None:
        return data
    found = np.frombuffer(content, dtype=np.uint8)
    ends = (found == ord("\n")) | (found == ord("\r"))
    if not ends.any():
        return data
    changed = np.where(ends, np.uint8(_TAB), found)
    return pa.Array.from_buffers(data.type, len(data), [None, offsets, pa.py_buffer(changed)])


def _reason(error: Exception) -> str:
    text = re.sub(r" in row \d+$", "", str(error)).removeprefix("JSON parse error: ")
    return text.replace("Column(/v/", "Column(/").replace("Column(/v)", "Column(/)")


class _MapDecoder:
    """A `Decoder` of types with maps, for which Arrow has no parser: value by value."""

    def __init__(self, kind: pa.DataType) -> None:
        self.type = kind
        self._shaped = _shape(kind)

    def decode(self, values: pa.Array, ids: Sequence[int], note: Note, /) -> pa.Array:
        """Implements `Decoder.decode`."""
        del ids
        return decoded_rows(
            values,
            lambda _, value: self._shaped(json.loads(value, parse_float=Decimal)),
            self.type,
            note,
            (ValueError, TypeError, ArithmeticError, RecursionError),
        )


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_map(each.type) for each in kind)
    if pa.types.is_list(kind):
        return _has_map(kind.value_type)
    return bool(pa.types.is_map(kind))


def _shape(kind: pa.DataType) -> Callable[[Any], Any]:
    """A function that makes of a parsed value what an Arrow array of a type takes."""
    if pa.types.is_struct(kind):
        fields = {each.name: _shape(each.type) for each in kind}
        return _of(
            dict, lambda value: {name: shape(value.get(name)) for name, shape in fields.items()}
        )
    if pa.types.is_list(kind):
        item = _shape(kind.value_type)
        return _of(list, lambda value: [item(each) for each in value])
    if pa.types.is_map(kind):
        key, item = _from_key(kind.key_type), _shape(kind.item_type)
        return _of(dict, lambda value: [(key(name), item(each)) for name, each in value.items()])
    if pa.types.is_floating(kind):
        return _of((int, Decimal), float)
    if pa.types.is_decimal(kind):
        return _of((int, Decimal, str), Decimal)
    if pa.types.is_date(kind):
        return _of(str, date.fromisoformat)
    if pa.types.is_timestamp(kind):
        return _of(str, lambda text: _moment(text, has_zone=kind.tz is not None))
    plain = bool if pa.types.is_boolean(kind) else int if pa.types.is_integer(kind) else str
    return _of(plain, lambda value: value)


def _from_key(kind: pa.DataType) -> Callable[[str], Any]:
    """A function that makes a key of a map of its name, which is a text in JSON."""
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_string(kind):
        return str
    raise ConfigError(f"JSON has no map with keys of type {kind}: take string, or an integer")


def _of(kind: type | tuple[type, ...], shape: Callable[[Any], Any]) -> Callable[[Any], Any]:
    kinds = kind if isinstance(kind, tuple) else (kind,)
    expected = {dict: "an object", list: "an array", str: "a text", bool: "true or false"}

    def shaped(value: Any) -> Any:
        if value is None:
            return None
        if type(value) not in kinds:  # True is an int for Python
            raise ValueError(f"{str(value)[:50]!r} is not {expected.get(kinds[0], 'a number')}")
        return shape(value)

    return shaped


def _moment(text: str, *, has_zone: bool) -> datetime:
    """The moment of a text, which is in UTC if it has no zone, as for the other decoder."""
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return moment if has_zone else moment.replace(tzinfo=None)
