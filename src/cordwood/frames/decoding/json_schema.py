"""A JSON Schema as an Arrow type: objects, arrays, maps and plain types, each perhaps null.

References, and alternatives other than null, are not taken.

Source: JSON Schema, draft 2020-12.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from cordwood.model.errors import ConfigError

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
}
_FORMATS: Final[Mapping[str, pa.DataType]] = {
    "date": pa.date32(),
    "date-time": pa.timestamp("us", tz="UTC"),
}


def parse_json_schema(text: str) -> pa.DataType:
    """The type of the values that a JSON Schema describes.

    Raises:
        ConfigError: it is none, or has what no type can be made of; says where.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the JSON Schema is no JSON: {error}") from None
    return _type(schema, "the JSON Schema")


def _type(schema: Any, where: str) -> pa.DataType:
    if not isinstance(schema, dict):
        raise ConfigError(f"{where}: expected an object")
    for alternatives in ("oneOf", "anyOf"):
        if alternatives in schema:
            return _type(_single(schema[alternatives], f"{where}: {alternatives}"), where)
    names = schema.get("type", "string" if "enum" in schema else "")
    named = [each for each in (names if isinstance(names, list) else [names]) if each != "null"]
    name = named[0] if len(named) == 1 else ""
    if name == "string":
        return _FORMATS.get(schema.get("format", ""), pa.string())
    if name in _TYPES:
        return _TYPES[name]
    if name == "array":
        return pa.list_(_type(schema.get("items"), f"{where}: items"))
    if name == "object":
        return _object(schema, where)
    raise ConfigError(
        f"{where}: expected one type beside null, and no reference: {json.dumps(schema)[:200]}"
    )


def _object(schema: Mapping[str, Any], where: str) -> pa.DataType:
    properties = schema.get("properties")
    if isinstance(properties, dict) and properties:
        return pa.struct(
            [pa.field(name, _type(each, f"{where}: {name}")) for name, each in properties.items()]
        )
    others = schema.get("additionalProperties")
    if not isinstance(others, dict):
        raise ConfigError(f"{where}: an object needs properties, or a type of other properties")
    return pa.map_(pa.string(), _type(others, f"{where}: additionalProperties"))


def _single(alternatives: Any, where: str) -> Any:
    given = alternatives if isinstance(alternatives, list) else []
    found = [each for each in given if each != {"type": "null"}]
    if len(found) != 1:
        raise ConfigError(f"{where}: expected one alternative beside null")
    return found[0]
