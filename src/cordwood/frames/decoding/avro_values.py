"""Avro as Arrow columns, decoded by fastavro value by value.

Of logical types decimal, date, timestamps and local timestamps of millis and micros are types of
their own. A uuid is text; what Spark has no type for stays what it is stored as: times of day,
nanoseconds, durations. A union is taken of one type and null.

Source: Apache Avro specification 1.12, binary encoding, logical types, schema resolution.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException

from cordwood.frames.decoding.rows import Note, converted, decoded_rows, leaves, retyped
from cordwood.model.errors import ConfigError

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
}
_PRECISION_MAX: Final = 38
#: Parts of a schema that are no types.
_NO_TYPES: Final = frozenset({"default", "symbols", "aliases", "doc"})
#: What fastavro raises for bytes that are not of a schema.
_ERRORS: Final = (
    *(EOFError, ValueError, TypeError, LookupError, ArithmeticError, struct.error),
    SchemaResolutionError,
)


class AvroDecoder:
    """A `Decoder` of Avro."""

    def __init__(self, schema: str, writer_schemas: Mapping[int, str]) -> None:
        """Takes schemas.

        Args:
            schema: what decoded values have.
            writer_schemas: what values were written with, by id; none if all are of `schema`.

        Raises:
            ConfigError: a schema cannot be used.
        """
        expanded, self._reader = _parsed(schema)
        # With timestamps in their own units: fastavro gives numbers of these.
        self._stored = _type(expanded, ())
        self.type = retyped(self._stored, _in_micros)
        self._writers = {number: _parsed(text)[1] for number, text in writer_schemas.items()}

    def decode(self, values: pa.Array, ids: Sequence[int], note: Note, /) -> pa.Array:
        """Implements `Decoder.decode`; a value is of one of the schemas to its last byte."""

        def read(number: int, value: bytes) -> Any:
            writer, reader = self._reader, None
            if self._writers:
                writer, reader = self._writers.get(ids[number]), self._reader
                if writer is None:
                    raise ValueError(f"there is no schema with id {ids[number]}")
            stream = BytesIO(value)
            found = schemaless_reader(stream, writer, reader)
            if stream.tell() != len(value):
                raise ValueError(f"{len(value) - stream.tell()} bytes are left over")
            return found

        rows = decoded_rows(values, read, self._stored, note, _ERRORS)
        if self._stored == self.type:
            return rows
        return converted(
            len(rows), lambda first, end: rows[first:end].cast(self.type), self.type, note, str
        )


def _in_micros(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", tz=kind.tz) if pa.types.is_timestamp(kind) else kind


def _parsed(text: str) -> tuple[Any, Any]:
    """A schema with its names resolved, and what fastavro reads by: decimals are decoded there."""
    try:
        schema = json.loads(text)
        expanded = parse_schema(schema, expand=True, _write_hint=False)
        return expanded, parse_schema(_as_stored(schema))
    except (SchemaParseException, LookupError, ValueError, TypeError, RecursionError) as error:
        why = str(error) or type(error).__name__
        raise ConfigError(f"the Avro schema cannot be used: {why}: {text[:200]}") from None


def _as_stored(schema: Any) -> Any:
    """A schema without logical types but decimals: Arrow makes values of these of numbers."""
    if isinstance(schema, list):
        return [_as_stored(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    is_kept = schema.get("logicalType") == "decimal"
    return {
        name: value if name in _NO_TYPES else _as_stored(value)
        for name, value in schema.items()
        if is_kept or name != "logicalType"
    }


def _type(schema: Any, path: tuple[str, ...]) -> pa.DataType:
    """The type of a schema whose names are resolved; `path` is where it is."""
    if isinstance(schema, list):
        return _union(schema, path)
    if isinstance(schema, str):
        if schema not in _PLAIN:
            raise _wrong(path, f"{schema} contains itself")
        return _PLAIN[schema]
    name = schema["type"]
    if not isinstance(name, str):
        return _type(name, path)
    if name in {"record", "error"}:
        fields = [
            pa.field(each["name"], _type(each["type"], (*path, each["name"])))
            for each in schema["fields"]
        ]
        return pa.struct(fields)
    if name == "array":
        items = _type(schema["items"], path)
        if all(pa.types.is_null(each) for each in leaves(items)):
            # A few bytes can be any number of these.
            raise _wrong(path, "items of an array take no bytes")
        return pa.list_(items)
    if name == "map":
        return pa.map_(pa.string(), _type(schema["values"], path))
    if schema.get("logicalType") == "decimal":
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        if not 0 < precision <= _PRECISION_MAX:
            raise _wrong(path, f"a decimal has at most {_PRECISION_MAX} digits")
        return pa.decimal128(precision, scale)
    return _LOGICAL.get((name, schema.get("logicalType", ""))) or _type(name, path)


def _union(schema: Sequence[Any], path: tuple[str, ...]) -> pa.DataType:
    kinds = [each for each in schema if each != "null"]
    if len(kinds) != 1:
        raise _wrong(path, f"a union of {len(kinds)} types beside null")
    return _type(kinds[0], path)


def _wrong(path: tuple[str, ...], why: str) -> ConfigError:
    return ConfigError(f"the Avro schema has no columns for {'.'.join(path) or 'its root'}: {why}")
