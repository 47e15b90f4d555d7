"""JSON Schemas as Arrow types."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from cordwood.frames.decoding.json_schema import parse_json_schema
from cordwood.model.errors import ConfigError


def test_objects_arrays_maps_and_plain_types_are_taken() -> None:
    schema = {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": ["string", "null"]},
            "ratio": {"oneOf": [{"type": "null"}, {"type": "number"}]},
            "on": {"type": "string", "format": "date"},
            "at": {"type": "string", "format": "date-time"},
            "email": {"type": "string", "format": "email"},
            "kind": {"enum": ["a", "b"]},
            "tags": {"type": "array", "items": {"type": "boolean"}},
            "extra": {"type": "object", "additionalProperties": {"type": "integer"}},
        },
        "required": ["id"],
    }
    assert parse_json_schema(json.dumps(schema)) == pa.struct(
        {
            "id": pa.int64(),
            "name": pa.string(),
            "ratio": pa.float64(),
            "on": pa.date32(),
            "at": pa.timestamp("us", tz="UTC"),
            "email": pa.string(),
            "kind": pa.string(),
            "tags": pa.list_(pa.bool_()),
            "extra": pa.map_(pa.string(), pa.int64()),
        }
    )


def of(field: Any) -> str:
    return json.dumps({"type": "object", "properties": {"a": field}})


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("{", "no JSON"),
        ("{}", "the JSON Schema: expected one type"),
        (of({"$ref": "#/$defs/a"}), "the JSON Schema: a: expected one type"),
        (of({"type": ["string", "integer"]}), "a: expected one type"),
        (of({"oneOf": [{"type": "string"}, {"type": "integer"}]}), "a: oneOf: expected one"),
        (of({"type": "object"}), "a: an object needs properties"),
        (of({"type": "array"}), "a: items: expected an object"),
        (of({"type": "array", "items": {"type": "what"}}), "a: items: expected one type"),
    ],
)
def test_what_no_type_can_be_made_of_is_refused_with_the_place(text: str, where: str) -> None:
    with pytest.raises(ConfigError, match=where.replace("$", r"\$")):
        parse_json_schema(text)
