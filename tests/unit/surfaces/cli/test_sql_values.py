"""Values of Arrow as those of JSON."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from cordwood.surfaces.cli.sql_values import flat, plain_values

UTC = pa.timestamp("us", tz="UTC")
PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None], pa.int32(), [1, None]),
        ([True, None], pa.bool_(), [True, None]),
        ([b"text", b"\0\xff", None], pa.binary(), ["text", "X'00FF'", None]),
        (["grün"], pa.string(), ["grün"]),
        ([1.5, float("nan"), float("-inf"), None], pa.float64(), [1.5, "nan", "-inf", None]),
        ([1_234], pa.timestamp("us"), ["1970-01-01T00:00:00.001234"]),
        ([1_700_000_000_123_000, None], UTC, ["2023-11-14T22:13:20.123Z", None]),
        ([253_402_300_800_000_000], UTC, ["10000-01-01T00:00:00.000Z"]),
        ([19_675], pa.date32(), ["2023-11-14"]),
        ([None], pa.null(), [None]),
        ([[b"a", None], None, []], pa.list_(pa.binary()), [["a", None], None, []]),
        ([[("a", 1)], None], pa.map_(pa.string(), pa.int8()), [{"a": 1}, None]),
        ([[(7, 1)]], pa.map_(pa.int8(), pa.int8()), [{"7": 1}]),
        (
            [[{"key": "k", "value": b"\xff"}], None],
            pa.list_(PAIR),
            [[{"key": "k", "value": "X'FF'"}], None],
        ),
        ([{"at": 253_402_300_800_000_000}, None], pa.struct([("at", UTC)]),
         [{"at": "10000-01-01T00:00:00.000Z"}, None]),
    ],
)  # fmt: skip
def test_values_are_those_of_json(values: list[Any], kind: pa.DataType, expected: Any) -> None:
    column = pa.array(values, kind)
    assert plain_values(column) == expected
    assert json.loads(json.dumps(plain_values(column))) == expected
    assert plain_values(column[1:]) == expected[1:]


def test_decimals_keep_their_digits() -> None:
    column = pa.array(["12345678901234567890.10"]).cast(pa.decimal128(38, 2))
    assert plain_values(column) == ["12345678901234567890.10"]
    assert flat(column).type == pa.string()
