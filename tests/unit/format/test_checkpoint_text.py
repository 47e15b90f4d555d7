from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.checkpoint_text import (
    build_checkpoint_text,
    parse_checkpoint_text,
    parse_number,
)
from cordwood.model.errors import CorruptError, UnsupportedVersionError


def test_an_empty_file_has_no_entries() -> None:
    for text in (b"", b"0\n", b"0\n0\n"):
        assert parse_checkpoint_text(text, fields_per_entry=2) == []


def test_fields_are_divided_by_white_space() -> None:
    assert parse_checkpoint_text("0\n1\na  b\tc\n", fields_per_entry=3) == [["a", "b", "c"]]
    assert build_checkpoint_text(["a b"]) == b"0\n1\na b\n"


@pytest.mark.parametrize(
    "text", [b"0\n1\n", b"0\n1\na\n", b"0\n0\na b\n", b"x\n", b"0\nx\n", b"\xff"]
)
def test_malformed_text_is_corrupt(text: bytes) -> None:
    with pytest.raises(CorruptError):
        parse_checkpoint_text(text, fields_per_entry=2)


def test_other_versions_are_unsupported() -> None:
    with pytest.raises(UnsupportedVersionError):
        parse_checkpoint_text("1\n0\n", fields_per_entry=2)


def test_numbers_are_int64() -> None:
    assert parse_number("-9223372036854775808") == -(1 << 63)
    for text in ("9223372036854775808", "", "-", "1.0", "\u0663", "0x1", "--1", "1" * 5000):
        with pytest.raises(CorruptError):
            parse_number(text)


@given(st.binary(max_size=60))
def test_hostile_bytes_are_corrupt(data: bytes) -> None:
    with contextlib.suppress(CorruptError):
        parse_checkpoint_text(b"0\n" + data, fields_per_entry=2)
