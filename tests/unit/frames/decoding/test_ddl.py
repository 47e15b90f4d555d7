"""Spark's DDL as Arrow types."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cordwood.frames.decoding.ddl import parse_ddl
from cordwood.model.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("id bigint", pa.struct({"id": pa.int64()})),
        (
            "a: INT NOT NULL COMMENT 'the ''a''', b string",
            pa.struct({"a": pa.int32(), "b": pa.string()}),
        ),
        (
            "`odd ``name` double, date date",
            pa.struct({"odd `name": pa.float64(), "date": pa.date32()}),
        ),
        ("array<int>", pa.list_(pa.int32())),
        ("bigint", pa.int64()),
        ("decimal(20, 3)", pa.decimal128(20, 3)),
        (
            "d decimal, e decimal(5)",
            pa.struct({"d": pa.decimal128(10, 0), "e": pa.decimal128(5, 0)}),
        ),
        (
            "m map<string, array<struct<x: float, y tinyint>>>",
            pa.struct(
                {
                    "m": pa.map_(
                        pa.string(), pa.list_(pa.struct({"x": pa.float32(), "y": pa.int8()}))
                    )
                }
            ),
        ),
        (
            "t timestamp, n timestamp_ntz, v varchar(10), k binary",
            pa.struct(
                {
                    "t": pa.timestamp("us", tz="UTC"),
                    "n": pa.timestamp("us"),
                    "v": pa.string(),
                    "k": pa.binary(),
                }
            ),
        ),
    ],
)
def test_a_schema_is_the_type_that_spark_makes_of_it(text: str, kind: pa.DataType) -> None:
    assert parse_ddl(text) == kind


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "there is no column"),
        ("id", "it ends too early"),
        ("id number", "'number' is no type"),
        ("id int, id string", "a column is named twice"),
        ("id int extra", "',' is expected, not 'extra'"),
        ("a array<int", "it ends too early"),
        ("a array<int>>", "',' is expected, not '>'"),
        ("int)", "there is no column|'\\)' is not expected|no type"),
        ("d decimal(39, 2)", "at most 38 digits"),
        ("d decimal(2, 3)", "at most 38 digits"),
        ("d decimal(x)", "'x' is no number"),
        ("a int not", "it ends too early"),
        ("a int not zero", "NOT without NULL"),
        ("'a' int", "is no name"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_ddl(text)
