from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.varint import (
    CutOffError,
    decode_unsigned_varint,
    decode_varint,
    decode_varlong,
    encode_unsigned_varint,
    encode_varint,
    encode_varlong,
    size_of_varint,
)
from cordwood.model.errors import CorruptError

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        ((1 << 31) - 1, "feffffff0f"),
        (-(1 << 31), "ffffffff0f"),
    ],
)
def test_varints_are_those_of_kafka(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    assert decode_varint(bytes.fromhex(encoded)) == (value, len(encoded) // 2)


def test_extreme_varlongs_take_ten_bytes() -> None:
    assert encode_varlong((1 << 63) - 1).hex() == "feffffffffffffffff01"
    assert encode_varlong(-(1 << 63)).hex() == "ffffffffffffffffff01"


@given(INT32)
def test_varint_round_trip(value: int) -> None:
    encoded = encode_varint(value)
    assert decode_varint(b"x" + encoded, 1) == (value, 1 + len(encoded))
    assert size_of_varint(value) == len(encoded)


@given(INT64)
def test_varlong_round_trip(value: int) -> None:
    encoded = encode_varlong(value)
    assert decode_varlong(encoded) == (value, len(encoded))


@given(st.integers(0, (1 << 32) - 1))
def test_unsigned_varint_round_trip(value: int) -> None:
    encoded = encode_unsigned_varint(value)
    assert decode_unsigned_varint(encoded) == (value, len(encoded))


def test_bits_beyond_32_are_dropped() -> None:
    assert decode_unsigned_varint(b"\xff\xff\xff\xff\x7f") == ((1 << 32) - 1, 5)


def test_too_long_and_cut_off_are_told_apart() -> None:
    with pytest.raises(CorruptError, match=r"Varint is too long.*converted value: ffffffff"):
        decode_varint(b"\xff" * 6)
    with pytest.raises(CorruptError, match="Varlong is too long"):
        decode_varlong(b"\xff" * 11)
    for position in (0, 1, 5, -1):
        with pytest.raises(CutOffError):
            decode_varlong(b"\x80", position)
