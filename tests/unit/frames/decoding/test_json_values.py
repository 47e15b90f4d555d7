"""JSON as Arrow columns: what Arrow's parser takes, and how malformed values are found."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.json as pj
import pytest

from cordwood.frames.decoding.json_values import json_decoder
from cordwood.model.errors import ConfigError

ALL = (
    "b boolean, t tinyint, i int, l bigint, d double, s string, m decimal(10, 2), day date, "
    "at timestamp, local timestamp_ntz, a array<int>, r struct<x int, y array<struct<z string>>>"
)


def decoded(schema: str, *values: bytes) -> tuple[list[Any], dict[int, str]]:
    bad: dict[int, str] = {}
    found = json_decoder(schema).decode(
        pa.array(values, pa.binary()), (), lambda row, reason: bad.update({row: reason})
    )
    assert found.type == json_decoder(schema).type
    return found.to_pylist(), bad


def test_every_type_is_decoded() -> None:
    value = (
        b'{"b":true,"t":-5,"i":7,"l":9007199254740993,"d":1e3,"s":"\\u00e9\xc3\xa9","m":1.25,'
        b'"day":"2026-01-31","at":"2026-01-31T12:00:00+02:00","local":"2026-01-31 12:00:00.5",'
        b'"a":[1,null],"r":{"x":1,"y":[{"z":"q"},{}]},"unknown":{"more":[1]}}'
    )
    assert decoded(ALL, value) == (
        [
            {
                "b": True,
                "t": -5,
                "i": 7,
                "l": 9007199254740993,
                "d": 1000.0,
                "s": "\u00e9\u00e9",
                "m": Decimal("1.25"),
                "day": date(2026, 1, 31),
                "at": datetime(2026, 1, 31, 10, tzinfo=UTC),
                "local": datetime(2026, 1, 31, 12, 0, 0, 500000, UTC).replace(tzinfo=None),
                "a": [1, None],
                "r": {"x": 1, "y": [{"z": "q"}, {"z": None}]},
            }
        ],
        {},
    )


def test_what_is_missing_or_null_is_null() -> None:
    assert decoded("i int, s string", b"{}", b'{"i":null}', b"null") == (
        [{"i": None, "s": None}, {"i": None, "s": None}, None],
        {},
    )


def test_a_value_may_have_several_lines() -> None:
    rows = [{"i": 1}, {"i": 2}, {"i": 3}]
    assert decoded("i int", b'{\r\n "i": 1\r\n}\n', b'{"i":2}', b'\n{"i":\n3}') == (rows, {})


def test_a_value_need_not_be_an_object() -> None:
    assert decoded("bigint", b"1", b"null", b" 2 ") == ([1, None, 2], {})
    assert decoded("array<string>", b'["a"]', b"[]") == ([["a"], []], {})


MALFORMED = (
    b"",
    b" ",
    b"\n",
    b"{",
    b'{"i":1}{"i":2}',
    b'{"i":1},{"i":2}',
    b'{"i":1}}\n{"v":{"i":2}',
    b"}",
    b"[1]",
    b"7",
    b"\x00\xff",
    b'{"i":1.5}',
    b'{"i":"1"}',
    b'{"i":4294967296}',
    b'{"i":1,"i":2}',
    b'{"s":"\xff"}',
    b'{"s":"a\nb"}',
    b'{"day":"2026-02-30"}',
    b'{"day":20260131}',
    b'{"at":"soon"}',
    b'{"m":"1.234"}',
    b'{"a":[{}]}',
)


@pytest.mark.parametrize("value", MALFORMED)
def test_a_malformed_value_is_null_and_those_beside_it_are_not(value: bytes) -> None:
    schema = "i int, s string, day date, at timestamp, m decimal(5, 2), a array<int>"
    good = [b'{"i":%d}' % number for number in range(9)]
    for place in (0, 4, 9):
        values = [*good[:place], value, *good[place:]]
        rows, bad = decoded(schema, *values)
        assert list(bad) == [place]
        assert bad[place]
        assert rows[place] is None
        assert [row["i"] for row in rows if row is not None] == list(range(9))


def test_all_values_may_be_malformed() -> None:
    rows, bad = decoded("i int", *MALFORMED[:13])
    assert rows == [None] * 13
    assert list(bad) == list(range(13))


def test_one_malformed_value_costs_few_calls_of_the_parser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []
    parse = pj.read_json

    def counted(*args: Any, **more: Any) -> Any:
        calls.append(1)
        return parse(*args, **more)

    monkeypatch.setattr(pj, "read_json", counted)
    values = [b'{"i":1}'] * 1000 + [b"{"] + [b'{"i":1}'] * 23
    rows, bad = decoded("i int", *values)
    assert list(bad) == [1000]
    assert rows.count({"i": 1}) == 1023
    assert len(calls) == 21


def test_maps_are_decoded_as_other_types_are() -> None:
    schema = f"names map<string, int>, numbers map<bigint, array<string>>, {ALL}"
    value = (
        b'{"names":{"a":1,"b":null},"numbers":{"7":["x"]},"b":true,"t":-5,"i":7,'
        b'"l":9007199254740993,"d":1e3,"s":"x","m":1.25,"day":"2026-01-31",'
        b'"at":"2026-01-31T12:00:00+02:00","local":"2026-01-31 12:00:00.5","a":[1,null],'
        b'"r":{"x":1,"y":[{"z":"q"},{}]}}'
    )
    ((row,), bad) = decoded(schema, value)
    ((expected,), _) = decoded(ALL, value)
    assert not bad
    assert row.pop("names") == [("a", 1), ("b", None)]
    assert row.pop("numbers") == [(7, ["x"])]
    assert row == expected


@pytest.mark.parametrize(
    "value",
    [
        *MALFORMED[:5],
        *(b"[1]", b'{"m":[]}', b'{"m":{"a":"1"}}', b'{"m":{"a":1.0}}', b'{"m":{"a":true}}'),
        *(b'{"m":{"a":4294967296}}', b'{"day":7}', b'{"day":"x"}', b'{"d":"1"}'),
        b"[" * 100_000,
    ],
)
def test_a_malformed_value_with_a_map_is_null(value: bytes) -> None:
    schema = "m map<string, int>, day date, d double"
    rows, bad = decoded(schema, b'{"m":{"a":1}}', value, b"null")
    assert rows == [{"m": [("a", 1)], "day": None, "d": None}, None, None]
    assert list(bad) == [1]


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("i int, k binary", "JSON has no binary values"),
        ("m map<double, int>", "keys of type double"),
        ("{", "no JSON"),
        ("x y z", "no type"),
    ],
)
def test_a_schema_that_json_has_no_values_for_is_refused(schema: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        json_decoder(schema)


def test_a_json_schema_is_known_by_its_brace() -> None:
    schema = ' {"type": "object", "properties": {"i": {"type": "integer"}}}'
    assert decoded(schema, b'{"i":1}') == ([{"i": 1}], {})
