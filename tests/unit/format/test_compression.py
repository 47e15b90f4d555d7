from __future__ import annotations

import contextlib
import gzip
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.compression import Codec, codec_of, compress, decompress
from cordwood.model.errors import CorruptError

CODECS = st.sampled_from(list(Codec))


@given(CODECS, st.binary(max_size=300), st.integers(0, 600), st.sampled_from([0, 1, 2]))
def test_round_trip(codec: Codec, unit: bytes, times: int, magic: int) -> None:
    data = unit * times
    assert decompress(codec, compress(codec, data, magic=magic), magic=magic) == data


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("level", [1, 9])
def test_levels_are_taken(codec: Codec, level: int) -> None:
    data = bytes(range(256)) * 999
    assert decompress(codec, compress(codec, data, level=level)) == data


@pytest.mark.parametrize(
    ("codec", "fastest", "densest"),
    [(Codec.GZIP, 1, 9), (Codec.LZ4, 9, 17), (Codec.ZSTD, -100, 22)],
)
def test_levels_differ_in_how_densely_they_pack(codec: Codec, fastest: int, densest: int) -> None:
    data = b" ".join(b"%d" % (i * i * 7 % 997) for i in range(9_000))
    assert len(compress(codec, data, level=densest)) < len(compress(codec, data, level=fastest))
    assert decompress(codec, compress(codec, data, level=densest)) == data


def test_snappy_has_the_framing_of_snappy_java() -> None:
    framed = compress(Codec.SNAPPY, b"a" * 40_000)
    assert framed[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    (size,) = struct.unpack_from(">i", framed, 16)
    assert cramjam.snappy.decompress_raw_len(framed[20 : 20 + size]) == 32 * 1024


def test_raw_snappy_and_joined_streams_are_read() -> None:
    raw = bytes(cramjam.snappy.compress_raw(b"plain"))
    assert decompress(Codec.SNAPPY, raw) == b"plain"
    joined = compress(Codec.SNAPPY, b"one") + compress(Codec.SNAPPY, b"two")
    assert decompress(Codec.SNAPPY, joined) == b"onetwo"


def test_lz4_has_independent_blocks_of_64_kib_without_checksums() -> None:
    frame = compress(Codec.LZ4, bytes(200_000))
    assert frame[:7].hex() == "04224d18604082"
    assert frame[-4:] == bytes(4)


def test_lz4_of_magic_0_has_the_wrong_header_checksum_of_old() -> None:
    frame = compress(Codec.LZ4, b"old", magic=0)
    assert frame[6] != 0x82
    assert decompress(Codec.LZ4, frame, magic=0) == b"old"
    with pytest.raises(CorruptError):
        decompress(Codec.LZ4, frame)


def test_incompressible_lz4_blocks_are_stored() -> None:
    data = bytes((index * 7919 + index // 251) % 256 for index in range(300))
    assert decompress(Codec.LZ4, compress(Codec.LZ4, data)) == data


def test_what_expands_too_far_is_refused() -> None:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        stream = compress(codec, bytes(1_000_000))
        assert len(decompress(codec, stream, size_max=1_000_000)) == 1_000_000
        with pytest.raises(CorruptError):
            decompress(codec, stream, size_max=999_999)


def test_a_false_claim_of_size_allocates_nothing() -> None:
    with pytest.raises(CorruptError, match="claims to hold"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(20))


def test_all_members_of_a_gzip_stream_are_read() -> None:
    assert decompress(Codec.GZIP, gzip.compress(b"a") + gzip.compress(b"b")) == b"ab"


def test_codec_bits() -> None:
    assert [codec_of(bits).config_name for bits in range(5)] == [
        "none",
        "gzip",
        "snappy",
        "lz4",
        "zstd",
    ]
    assert codec_of(0x78 | 4) is Codec.ZSTD
    for bits in (5, 6, 7):
        with pytest.raises(CorruptError):
            codec_of(bits)


@given(CODECS, st.binary(max_size=200), st.sampled_from([0, 2]))
def test_hostile_bytes_are_corrupt(codec: Codec, data: bytes, magic: int) -> None:
    with contextlib.suppress(CorruptError):
        decompress(codec, data, magic=magic)


@given(CODECS, st.data())
def test_damaged_streams_are_corrupt_or_other_bytes(codec: Codec, draw: st.DataObject) -> None:
    stream = bytearray(compress(codec, b"some text, some text, some more text" * 5))
    position = draw.draw(st.integers(0, len(stream) - 1))
    stream[position] = draw.draw(st.integers(0, 255))
    size = draw.draw(st.integers(0, len(stream)))
    with contextlib.suppress(CorruptError):
        decompress(codec, bytes(stream[:size]))
