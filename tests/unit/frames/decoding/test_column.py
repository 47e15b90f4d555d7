"""Columns decoded: nulls, prefixes, and what is malformed."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from cordwood.frames.decoding.column import ColumnDecoder
from cordwood.frames.decoding.encoding import parse_encodings
from cordwood.model.errors import ConfigError, MalformedValueError

JSON = {"valueformat": "json", "valueschema": "a int"}
AVRO = {"valueformat": "avro", "valueschema": '"int"'}
FRAMED = {"valueprefix": "confluent"}
NULL = {"malformed": "null"}


def column(options: dict[str, str], *values: bytes | None) -> list[Any]:
    (encoding,) = parse_encodings(options)
    decoder = ColumnDecoder(encoding)
    found = decoder.decode(pa.array(values, pa.binary()), lambda row: f"t-0 offset {100 + row}")
    assert found.type == decoder.type
    assert len(found) == len(values)
    return list(found.to_pylist())


def test_a_record_without_a_value_has_none() -> None:
    assert column(JSON, None, b'{"a":1}', None, b'{"a":2}') == [None, {"a": 1}, None, {"a": 2}]
    assert column(JSON, None) == [None]
    assert column(JSON) == column({**AVRO, **FRAMED}) == []


def test_a_malformed_value_fails_and_is_named() -> None:
    with pytest.raises(MalformedValueError) as raised:
        column(JSON, b'{"a":1}', None, b'{"a":"x"}', b"{")
    error = raised.value
    assert (error.place, error.column) == ("t-0 offset 102", "value")
    assert str(error) == (
        "t-0 offset 102: the value cannot be decoded: Column(/a) changed from number to string. "
        "Option malformed=null makes it null"
    )
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.place) == (str(error), error.place)


def test_a_malformed_value_is_null_on_request() -> None:
    assert column({**JSON, **NULL}, b"{", None, b'{"a":1}') == [None, None, {"a": 1}]
    assert column({**AVRO, **NULL}, b"", b"\x02", b"\x02\x02") == [None, 1, None]


def test_a_prefix_is_skipped() -> None:
    assert column({**JSON, **FRAMED}, b'\0\0\0\0\x07{"a":1}', None) == [{"a": 1}, None]
    assert column({**AVRO, **FRAMED}, b"\0\xff\xff\xff\xff\x02") == [1]


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\1\0\0\0\7\2", b"\2"])
def test_a_value_without_its_prefix_is_malformed(value: bytes) -> None:
    good = b"\0\0\0\0\7\2"
    assert column({**AVRO, **FRAMED, **NULL}, good, None, value, good) == [1, None, None, 1]
    with pytest.raises(MalformedValueError, match=r"offset 101.*the id of a schema"):
        column({**AVRO, **FRAMED}, good, value)


def test_nothing_but_malformed_values_is_nulls() -> None:
    assert column({**AVRO, **FRAMED, **NULL}, b"", None, b"x") == [None] * 3


def test_the_prefix_names_the_schema_that_a_value_was_written_with() -> None:
    options = {**AVRO, **FRAMED, "valueschema": '"long"', "valueschemas": '{"256": "\\"int\\""}'}
    assert column(options, b"\0\0\0\1\0\2") == [1]
    with pytest.raises(MalformedValueError, match=r"offset 101.*no schema with id 65537"):
        column(options, b"\0\0\0\1\0\2", b"\0\0\1\0\1\2")


def test_a_schema_that_cannot_be_used_is_refused_when_the_decoder_is_made() -> None:
    for options in ({**JSON, "valueschema": "a"}, {**AVRO, "valueschema": '"x"'}):
        (encoding,) = parse_encodings(options)
        with pytest.raises(ConfigError):
            ColumnDecoder(encoding)
