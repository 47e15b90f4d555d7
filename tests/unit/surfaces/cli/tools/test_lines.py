from __future__ import annotations

import io

import pytest

from cordwood.format.record_batch import Header
from cordwood.surfaces.cli.tools.lines import LineError, LineReader, LineSource
from cordwood.surfaces.cli.tools.tool import Terminal


def lines_of(data: bytes) -> list[str]:
    source = LineSource(Terminal(io.BytesIO(data), io.BytesIO(), io.BytesIO()))
    found: list[str] = []
    while (line := source.next_line(None)) is not None:
        found += line
    return found


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a", ["a"]),
        (b"a\n", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\rc\r", ["a", "b", "c"]),
        (b"\r\n\r\n", ["", ""]),
        (b"\xff\n", ["\ufffd"]),
    ],
)
def test_lines_end_as_in_java(data: bytes, lines: list[str]) -> None:
    assert lines_of(data) == lines


KEYS = {"parse.key": "true"}
HEADERS = {"parse.headers": " TRUE "}


def test_without_properties_a_line_is_a_value() -> None:
    assert LineReader({}).read("a\tb") == (None, b"a\tb", ())


def test_keys_come_before_the_first_separator() -> None:
    assert LineReader(KEYS).read("k\tv\tw") == (b"k", b"v\tw", ())
    assert LineReader(KEYS | {"key.separator": "::"}).read("k::v") == (b"k", b"v", ())


def test_headers_come_before_keys() -> None:
    reader = LineReader(HEADERS | KEYS)
    assert reader.read("a:1,b:2:3\tk\tv") == (b"k", b"v", (Header("a", b"1"), Header("b", b"2:3")))


def test_the_marker_of_null_stands_for_keys_values_headers_and_all_of_them() -> None:
    reader = LineReader(HEADERS | KEYS | {"null.marker": "N"})
    assert reader.read("N\tN\tN") == (None, None, ())
    assert reader.read("a:N\tk\tv")[2] == (Header("a", None),)
    with pytest.raises(LineError, match="Header keys should not be equal to the null marker 'N'"):
        reader.read("N:1\tk\tv")


@pytest.mark.parametrize(
    ("properties", "line", "text"),
    [
        (KEYS, "v", "No key separator found on line number 2: 'v'"),
        (HEADERS, "v", "No headers delimiter found on line number 2: 'v'"),
        (HEADERS, "h\tv", "No header key separator found in pair 'h' on line number 2"),
    ],
)
def test_a_missing_separator_is_told_with_the_lines_number(
    properties: dict[str, str], line: str, text: str
) -> None:
    reader = LineReader(properties)
    reader.read("h:1\tv")
    with pytest.raises(LineError) as caught:
        reader.read(line)
    assert str(caught.value) == text


def test_a_missing_separator_may_be_passed_over() -> None:
    ignore = {"ignore.error": "true"}
    assert LineReader(KEYS | ignore).read("v") == (None, b"v", ())
    assert LineReader(HEADERS | ignore).read("h\tv") == (None, b"v", (Header("h", None),))


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"headers.delimiter": ","}, "headers.delimiter and headers.separator may not be equal"),
        ({"headers.separator": ":"}, "headers.separator and headers.key.separator may not be"),
        ({"null.marker": "\t"}, "null.marker and key.separator may not be equal"),
        ({"null.marker": ":"}, "null.marker and headers.key.separator may not be equal"),
    ],
)
def test_separators_must_differ(properties: dict[str, str], text: str) -> None:
    with pytest.raises(LineError, match=text):
        LineReader(properties)
