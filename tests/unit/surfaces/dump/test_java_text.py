from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.surfaces.dump.java_text import (
    java_boolean,
    java_double,
    java_optional,
    json_text,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (100.0, "100.0"),
        (1234567.5, "1234567.5"),
        (1e7, "1.0E7"),
        (1.25e10, "1.25E10"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (-0.05, "-0.05"),
        (1e300, "1.0E300"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
    ],
)
def test_doubles_are_printed_as_java_does(value: float, text: str) -> None:
    assert java_double(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_no_double_loses_a_digit(value: float) -> None:
    assert float(java_double(value)) == value


def test_json_escapes_what_jackson_escapes() -> None:
    assert json_text('a"\\\b\t\n\f\r\x01\x1f\x7f</ü😀') == (
        '"a\\"\\\\\\b\\t\\n\\f\\r\\u0001\\u001F\x7f</ü😀"'
    )


def test_json_has_no_spaces_and_keeps_order() -> None:
    assert json_text({"b": [1, True, None, 1.5, math.nan], "a": {}}) == (
        '{"b":[1,true,null,1.5,"NaN"],"a":{}}'
    )


@given(JSON)
def test_json_says_what_it_was_given(value: object) -> None:
    assert json.loads(json_text(value)) == value


def test_small_words() -> None:
    assert (java_boolean(True), java_boolean(False)) == ("true", "false")
    assert java_optional(5) == "OptionalLong[5]"
    assert java_optional(None) == "OptionalLong.empty"
