"""Avro as Arrow columns: bytes that fastavro writes, and bytes written by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from cordwood.frames.decoding.avro_values import AvroDecoder
from cordwood.model.errors import ConfigError

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "paid", "type": "boolean"},
        {"name": "ratio", "type": "float"},
        {"name": "weight", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10,
                                   "scale": 2}},
        {"name": "tax", "type": {"type": "fixed", "name": "Tax", "size": 4,
                                 "logicalType": "decimal", "precision": 5, "scale": 1}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "at_micros", "type": ["null", {"type": "long",
                                                "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "uuid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "other", "type": "Kind"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [
                {"name": "sku", "type": "string"},
                {"name": "when", "type": {"type": "map", "values": {
                    "type": "long", "logicalType": "timestamp-millis"}}},
            ]}}},
    ],
}  # fmt: skip
VALUE: dict[str, Any] = {
    "id": 1 << 40,
    "note": "é",
    "paid": True,
    "ratio": 0.5,
    "weight": -1e300,
    "raw": b"\0\xff",
    "price": Decimal("-12345678.90"),
    "tax": Decimal("19.5"),
    "day": date(2026, 1, 31),
    "at": datetime(2026, 1, 31, 12, 0, 0, 123000, UTC),
    "at_micros": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    "local": datetime(2026, 1, 31, 12, 0, 0, 0, UTC).replace(tzinfo=None),
    "uuid": UUID(int=7),
    "clock": datetime(2026, 1, 31, 0, 0, 1, 0, UTC).time(),
    "kind": "OLD",
    "other": "NEW",
    "hash": b"ab",
    "lines": [{"sku": "s", "when": {"x": datetime(2026, 1, 31, tzinfo=UTC)}}],
}


def written(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoded(
    schema: Any,
    *values: bytes,
    writers: Mapping[int, Any] | None = None,
    ids: tuple[int, ...] = (),
) -> tuple[list[Any], dict[int, str]]:
    bad: dict[int, str] = {}
    texts = {number: json.dumps(each) for number, each in (writers or {}).items()}
    decoder = AvroDecoder(json.dumps(schema), texts)
    found = decoder.decode(
        pa.array(values, pa.binary()), ids, lambda row, reason: bad.update({row: reason})
    )
    assert found.type == decoder.type
    return found.to_pylist(), bad


def test_all_types_are_those_that_were_written() -> None:
    (row,), bad = decoded(ORDER, written(ORDER, VALUE))
    assert not bad
    assert row == {
        **VALUE,
        "uuid": str(VALUE["uuid"]),
        "clock": 1000,
        "lines": [{"sku": "s", "when": [("x", datetime(2026, 1, 31, tzinfo=UTC))]}],
    }


def test_columns_have_the_types_that_spark_has_for_them() -> None:
    kind = AvroDecoder(json.dumps(ORDER), {}).type
    types = {each.name: each.type for each in kind}
    assert types["price"] == pa.decimal128(10, 2)
    assert types["tax"] == pa.decimal128(5, 1)
    assert types["at"] == types["at_micros"] == pa.timestamp("us", tz="UTC")
    assert types["local"] == pa.timestamp("us")
    assert types["lines"] == pa.list_(
        pa.struct({"sku": pa.string(), "when": pa.map_(pa.string(), pa.timestamp("us", tz="UTC"))})
    )


def test_bytes_that_were_written_by_hand_are_decoded() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "n", "type": "int"},
            {"name": "s", "type": ["null", "string"]},
            {"name": "a", "type": {"type": "array", "items": "long"}},
        ],
    }
    # Zigzag -1; the second of the union, three letters; a block of two with its size, the end.
    value = bytes([1, 2, 6, *b"abc", 3, 4, 2, 4, 0])
    assert decoded(schema, value, bytes([0, 0, 0])) == (
        [{"n": -1, "s": "abc", "a": [1, 2]}, {"n": 0, "s": None, "a": []}],
        {},
    )


def test_a_value_need_not_be_a_record() -> None:
    assert decoded("string", b"\x02a", b"\x00") == (["a", ""], {})
    assert decoded({"type": "long"}, b"\x02") == ([1], {})


LONG = {"type": "record", "name": "L", "fields": [{"name": "at", "type": {
    "type": "long", "logicalType": "timestamp-millis"}}]}  # fmt: skip
SMALL = {
    "type": "record",
    "name": "S",
    "fields": [
        {"name": "s", "type": "string"},
        {"name": "u", "type": ["null", "int"]},
        {"name": "k", "type": {"type": "enum", "name": "K", "symbols": ["A"]}},
        {"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 3}},
    ],
}
GOOD = bytes([2, *b"x", 2, 14, 0, 2, 5])


@pytest.mark.parametrize(
    ("schema", "good", "value"),
    [
        (SMALL, GOOD, b""),
        (SMALL, GOOD, GOOD[:-1]),
        (SMALL, GOOD, GOOD + b"\0"),
        (SMALL, GOOD, bytes([2, 0xFF, 2, 14, 0, 2, 5])),
        (SMALL, GOOD, bytes([1, *b"x", 2, 14, 0, 2, 5])),
        (SMALL, GOOD, bytes([254, 255, 255, 255, 255, 255, 255, 255, 127, *b"x"])),
        (SMALL, GOOD, bytes([2, *b"x", 4, 14, 0, 2, 5])),
        (SMALL, GOOD, bytes([2, *b"x", 2, 14, 2, 2, 5])),
        (SMALL, GOOD, bytes([2, *b"x", 2, 14, 0, 4, 100, 5])),
        (LONG, b"\0", bytes([254, 255, 255, 255, 255, 255, 255, 255, 127])),
    ],
)
def test_a_malformed_value_is_null_and_those_beside_it_are_not(
    schema: Any, good: bytes, value: bytes
) -> None:
    rows, bad = decoded(schema, good, value, good)
    assert rows[0] == rows[2] != rows[1]
    assert rows[1] is None
    assert list(bad) == [1]
    assert bad[1]


def test_values_of_other_schemas_are_resolved_by_their_ids() -> None:
    def record(*fields: Any) -> Any:
        return {"type": "record", "name": "R", "fields": list(fields)}

    old = record({"name": "gone", "type": "string"}, {"name": "n", "type": "int"})
    new = record({"name": "n", "type": "long"}, {"name": "more", "type": "string", "default": "-"})
    values = written(old, {"gone": "x", "n": 5}), written(new, {"n": 6, "more": "m"}), b"\0"
    rows, bad = decoded(new, *values, writers={3: old, 4: new}, ids=(3, 4, 5))
    assert rows == [{"n": 5, "more": "-"}, {"n": 6, "more": "m"}, None]
    assert bad == {2: "there is no schema with id 5"}


RECURSIVE = {"type": "record", "name": "T", "fields": [{"name": "next", "type": ["null", "T"]}]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "cannot be used"),
        ('{"type": "record"}', "cannot be used"),
        ('"Unknown"', "cannot be used"),
        ('["null", "int", "string"]', "its root: a union of 2 types"),
        ('["null"]', "its root: a union of 0 types"),
        (json.dumps(RECURSIVE), "next: T contains itself"),
        ('{"type": "array", "items": "null"}', "items of an array take no bytes"),
        ('{"type": "bytes", "logicalType": "decimal", "precision": 39}', "at most 38 digits"),
    ],
)
def test_a_schema_without_columns_is_refused_with_the_place(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        AvroDecoder(text, {})
