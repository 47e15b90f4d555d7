from __future__ import annotations

import contextlib
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.compression import Codec, compress
from cordwood.format.legacy import (
    LegacyBatch,
    build_legacy_message,
    build_legacy_wrapper,
)
from cordwood.format.record import Record
from cordwood.model.errors import CorruptError, UnsupportedVersionError

RECORDS = [Record(20, 1000, b"a", b"x"), Record(22, 1007, b"b", None), Record(23, 1003, None, b"")]
WRAPPING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def test_messages_have_the_layout_of_old() -> None:
    data = build_legacy_message(offset=7, magic=0, key=b"k", value=None)
    crc = zlib.crc32(data[16:]).to_bytes(4, "big").hex()
    assert data.hex() == f"00000000000000070000000f{crc}0000000000016bffffffff"
    batch = LegacyBatch.parse(data)
    assert (batch.offset, batch.key, batch.value) == (7, b"k", None)
    assert (batch.timestamp, batch.timestamp_type) == (-1, "NoTimestampType")
    assert batch.is_valid()
    assert batch.records() == [Record(7, -1, b"k", None)]


def test_magic_1_has_a_timestamp_and_its_type() -> None:
    for attributes, name in ((0, "CreateTime"), (8, "LogAppendTime")):
        data = build_legacy_message(
            offset=1, magic=1, key=None, value=b"v", timestamp=55, attributes=attributes
        )
        batch = LegacyBatch.parse(data)
        assert (batch.timestamp_type, batch.max_timestamp) == (name, 55)
        assert (batch.base_offset, batch.last_offset, batch.next_offset) == (1, 1, 2)


@pytest.mark.parametrize("codec", WRAPPING)
@pytest.mark.parametrize("is_relative", [True, False])
def test_wrappers_of_magic_1_give_absolute_offsets(codec: Codec, is_relative: bool) -> None:
    data = build_legacy_wrapper(RECORDS, magic=1, codec=codec, is_relative=is_relative)
    batch = LegacyBatch.parse(data)
    assert batch.records() == RECORDS
    assert (batch.base_offset, batch.last_offset) == (20, 23)
    assert batch.max_timestamp == 1007
    assert all(message.is_valid() for message in batch.messages())


@pytest.mark.parametrize("codec", WRAPPING)
def test_wrappers_of_magic_0_hold_absolute_offsets(codec: Codec) -> None:
    batch = LegacyBatch.parse(build_legacy_wrapper(RECORDS, magic=0, codec=codec))
    assert [record.offset for record in batch.records()] == [20, 22, 23]
    assert {record.timestamp for record in batch.records()} == {-1}


def test_log_append_time_of_the_wrapper_counts() -> None:
    data = build_legacy_wrapper(RECORDS, magic=1, codec=Codec.GZIP, log_append_time_ms=9)
    assert {record.timestamp for record in LegacyBatch.parse(data).records()} == {9}


def wrap(inner: bytes, *, magic: int = 1) -> LegacyBatch:
    value = compress(Codec.GZIP, inner)
    return LegacyBatch.parse(
        build_legacy_message(offset=9, magic=magic, key=None, value=value, attributes=1)
    )


def test_messages_of_magic_0_may_be_in_a_set_of_magic_1_as_old_cleaners_left_them() -> None:
    inner = b"".join(
        build_legacy_message(offset=offset, magic=0, key=b"k", value=b"%d" % offset)
        for offset in (7, 9)
    )
    expected = [Record(7, -1, b"k", b"7"), Record(9, -1, b"k", b"9")]
    assert wrap(inner).records() == expected
    assert {message.magic for message in wrap(inner).messages()} == {0}


def test_an_outer_offset_of_0_leaves_the_inner_offsets_as_they_are() -> None:
    inner = b"".join(
        build_legacy_message(offset=offset, magic=1, key=b"k", value=b"v") for offset in range(3)
    )
    data = build_legacy_message(
        offset=0, magic=1, key=None, value=compress(Codec.GZIP, inner), attributes=1
    )
    assert [record.offset for record in LegacyBatch.parse(data).records()] == [0, 1, 2]


def test_wrappers_that_cannot_be_are_corrupt() -> None:
    beyond = build_legacy_message(offset=1 << 40, magic=1, key=None, value=None)
    nested = build_legacy_message(offset=0, magic=1, key=None, value=b"", attributes=1)
    for inner in (b"", beyond, nested, nested[:-1], struct.pack(">qi", 0, 5) + bytes(30)):
        with pytest.raises(CorruptError):
            wrap(inner).records()
    null = build_legacy_message(offset=0, magic=1, key=None, value=None, attributes=1)
    with pytest.raises(CorruptError, match="null value"):
        LegacyBatch.parse(null).records()
    with pytest.raises(UnsupportedVersionError):
        LegacyBatch.parse(null[:16] + b"\x02" + null[17:])


def test_a_wrong_crc_is_noticed() -> None:
    data = bytearray(build_legacy_message(offset=0, magic=1, key=b"k", value=b"v"))
    data[-1] ^= 1
    batch = LegacyBatch.parse(bytes(data))
    assert not batch.is_valid()
    with pytest.raises(CorruptError, match="CRC"):
        batch.require_valid()


@given(st.binary(max_size=80), st.sampled_from([0, 1]), st.integers(0, 15))
def test_hostile_bytes_are_corrupt(data: bytes, magic: int, attributes: int) -> None:
    hostile = bytes(16) + bytes([magic, attributes]) + data
    with contextlib.suppress(CorruptError):
        LegacyBatch.parse(hostile).records()


@given(st.binary(max_size=80))
def test_hostile_inner_sets_are_corrupt(inner: bytes) -> None:
    with contextlib.suppress(CorruptError):
        wrap(inner).records()
