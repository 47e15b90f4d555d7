from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.byte_reader import ByteReader
from cordwood.format.varint import CutOffError
from cordwood.model.errors import CorruptError


def test_values_are_big_endian_and_follow_one_another() -> None:
    reader = ByteReader(
        struct.pack(">bBhHiIqd", -1, 255, -2, 65534, -3, 7, -4, 1.5) + b"\x01ab\xff"
    )
    assert [reader.int8(), reader.uint8(), reader.int16(), reader.uint16()] == [-1, 255, -2, 65534]
    assert [reader.int32(), reader.uint32(), reader.int64()] == [-3, 7, -4]
    assert reader.float64() == 1.5
    assert reader.varint() == -1
    assert reader.text(2) == "ab"
    assert reader.remaining == 1
    with pytest.raises(CorruptError, match="1 bytes are left over after the test"):
        reader.require_end("the test")
    assert reader.take(1) == b"\xff"
    reader.require_end("the test")


@given(st.binary(max_size=7), st.integers(-10, 20))
def test_nothing_is_read_beyond_the_end(data: bytes, position: int) -> None:
    for read in (ByteReader.int64, ByteReader.float64, lambda reader: reader.fixed(8)):
        with pytest.raises(CutOffError):
            read(ByteReader(data, position))
    with pytest.raises(CorruptError):
        ByteReader(data).take(len(data) + 1)
    with pytest.raises(CorruptError):
        ByteReader(data).take(-1)
