"""Compressed records of somebody's making."""

from __future__ import annotations

import struct

import cramjam
import pytest

from cordwood.format.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from cordwood.model.kafka_errors import InvalidRecordError
from cordwood.storage.append.payload import (
    DECOMPRESSED_BYTES_MIN,
    decompressed,
    decompressed_bytes_max,
)

COMPRESSED = [codec for codec in Codec if codec]
TEXT = b"".join(b"%d some text, " % i for i in range(20_000))


def lz4_frame(data: bytes, *, flags: int) -> bytes:
    """A frame of 64 KiB blocks with these flags; checksums are zero."""
    header = bytes([0x40 | flags, 0x40]) + (struct.pack("<Q", len(data)) if flags & 0x08 else b"")
    out = b"\x04\x22\x4d\x18" + header + b"\0"
    for start in range(0, len(data), 1 << 16):
        block = bytes(cramjam.lz4.compress_block(data[start : start + (1 << 16)], store_size=False))
        out += struct.pack("<I", len(block)) + block
    return out + bytes(4)


def test_records_without_a_codec_are_not_copied() -> None:
    view = memoryview(TEXT)
    assert decompressed(Codec.NONE, view) is view


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("data", [b"", b"x", TEXT])
def test_what_was_compressed_comes_back(codec: Codec, data: bytes) -> None:
    assert decompressed(codec, memoryview(compress(codec, data))) == data


@pytest.mark.parametrize("codec", COMPRESSED)
@pytest.mark.parametrize("cut", [1, 4, 100])
def test_stream_that_is_cut_off_is_refused(codec: Codec, cut: int) -> None:
    packed = compress(codec, TEXT)
    with pytest.raises(InvalidRecordError, match="Failed to decompress record stream"):
        decompressed(codec, packed[:-cut])


@pytest.mark.parametrize("codec", COMPRESSED)
def test_empty_stream_is_refused(codec: Codec) -> None:
    with pytest.raises(InvalidRecordError, match="Failed to decompress record stream"):
        decompressed(codec, b"")


@pytest.mark.parametrize("codec", COMPRESSED)
def test_stream_that_expands_beyond_the_bound_is_refused(codec: Codec) -> None:
    zeros = compress(codec, bytes(1 << 20))
    assert len(decompressed(codec, zeros, size_max=1 << 20)) == 1 << 20
    with pytest.raises(InvalidRecordError, match="Failed to decompress record stream"):
        decompressed(codec, zeros, size_max=(1 << 20) - 1)


def test_bomb_of_a_few_kib_is_refused_at_the_bound_of_small_topics() -> None:
    bomb = compress(Codec.ZSTD, bytes(DECOMPRESSED_BYTES_MIN + 1))
    assert len(bomb) < 16_384
    with pytest.raises(InvalidRecordError, match="expands to more than 134217728 bytes"):
        decompressed(Codec.ZSTD, bomb, size_max=decompressed_bytes_max(len(bomb)))


def test_bound_grows_with_max_message_bytes() -> None:
    assert decompressed_bytes_max(0) == 128 << 20
    assert decompressed_bytes_max(1 << 20) == 128 << 20
    assert decompressed_bytes_max(10 << 20) == 1280 << 20
    assert decompressed_bytes_max((1 << 31) - 1) == DECOMPRESSED_BYTES_MAX


# ---- LZ4 as Kafka's clients read it


def test_lz4_blocks_that_refer_to_the_one_before_are_refused() -> None:
    linked = bytes(cramjam.lz4.compress(TEXT))
    assert not linked[4] & 0x20, "the library links blocks"
    with pytest.raises(InvalidRecordError, match="Dependent block stream is unsupported"):
        decompressed(Codec.LZ4, linked)


def test_lz4_frame_behind_another_is_refused() -> None:
    half = len(TEXT) // 2
    two = compress(Codec.LZ4, TEXT[:half]) + compress(Codec.LZ4, TEXT[half:])
    with pytest.raises(InvalidRecordError, match="does not end with its batch"):
        decompressed(Codec.LZ4, two)


@pytest.mark.parametrize("flags", [0x21, 0x22])
def test_lz4_frame_with_reserved_bits_is_refused(flags: int) -> None:
    with pytest.raises(InvalidRecordError, match="Reserved bits must be 0"):
        decompressed(Codec.LZ4, lz4_frame(b"abc", flags=flags))


@pytest.mark.parametrize("content_checksum", [False, True])
@pytest.mark.parametrize("block_checksum", [False, True])
@pytest.mark.parametrize("content_size", [False, True])
def test_lz4_frames_of_other_writers_are_read(
    content_checksum: bool, block_checksum: bool, content_size: bool
) -> None:
    lz4 = pytest.importorskip("lz4.frame")
    packed = lz4.compress(
        TEXT,
        block_linked=False,
        content_checksum=content_checksum,
        block_checksum=block_checksum,
        store_size=content_size,
    )
    assert decompressed(Codec.LZ4, packed) == TEXT
    with pytest.raises(InvalidRecordError):
        decompressed(Codec.LZ4, packed + b"\0")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.ZSTD])
def test_other_streams_may_follow_one_another(codec: Codec) -> None:
    half = len(TEXT) // 2
    two = compress(codec, TEXT[:half]) + compress(codec, TEXT[half:])
    assert decompressed(codec, two) == TEXT


def test_bare_snappy_is_read() -> None:
    assert decompressed(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT
