"""The codecs of record batches, in the framing that Kafka's clients and brokers write and read.

gzip: a gzip stream; snappy: snappy-java's ("xerial") framing of 32 KiB blocks, raw snappy being
read too; lz4: an LZ4 frame of independent 64 KiB blocks without checksums of content; zstd: a zstd
frame.

Source: org.apache.kafka.common.compress.{Gzip,Snappy,Lz4,Zstd}Compression, Lz4BlockOutputStream,
Lz4BlockInputStream; org.xerial.snappy.SnappyOutputStream, SnappyInputStream.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

import cramjam
import lz4.block  # type: ignore[import-untyped]

from cordwood.format.varint import Buffer
from cordwood.model.errors import BatchTooLargeError, CorruptError

# A batch that claims a larger size is refused: no valid batch has a larger payload.
DECOMPRESSED_BYTES_MAX = (1 << 31) - 1

_SNAPPY_HEADER = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
_SNAPPY_MAGIC = _SNAPPY_HEADER[:8]
_SNAPPY_BLOCK_BYTES = 32 * 1024

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
# Magic, version 1 with independent blocks (0x60), blocks of up to 64 KiB (0x40), header checksum.
_LZ4_HEADER = _LZ4_MAGIC + b"\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_BLOCK_SIZE = struct.Struct("<I")
_LZ4_INCOMPRESSIBLE = 1 << 31

_GZIP_LEVEL_DEFAULT = 6
_LZ4_LEVEL_DEFAULT = 9
_LZ4_LEVEL_DENSEST = 12  # Kafka allows 17; the compressor treats it as 12
_ZSTD_LEVEL_DEFAULT = 3

# A buffer of more is only doubled where it is too small.
_LARGE_BYTES = 16 << 20

_MASK_32 = (1 << 32) - 1


class Codec(enum.IntEnum):
    """A batch's codec: the value of attribute bits 0 to 2."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def config_name(self) -> str:
        """The name Kafka's settings and tools use: none, gzip, snappy, lz4, zstd."""
        return self.name.lower()


# Snappy's densest element copies 64 bytes and takes 2: a larger claimed expansion is corrupt.
_SNAPPY_EXPANSION_MAX = 64

EXPANSION_MAX: Final[Mapping[int, int]] = {
    Codec.GZIP: 1032,
    Codec.SNAPPY: _SNAPPY_EXPANSION_MAX,
    Codec.LZ4: 255,
    Codec.ZSTD: 32_768,
}
"""Bytes that one compressed byte expands to at most, by codec.

DEFLATE's, snappy's and LZ4's longest matches, and a zstd block of 128 KiB that takes four bytes.
"""


def codec_of(attributes: int, *, position: int | None = None) -> Codec:
    """The codec in the low three bits of `attributes`.

    Raises:
        CorruptError: the codec is unknown.
    """
    try:
        return Codec(attributes & 0x07)
    except ValueError:
        reason = f"unknown compression codec {attributes & 0x07}"
        raise CorruptError(reason, position=position) from None


def compress(codec: Codec, data: Buffer, *, level: int | None = None, magic: int = 2) -> bytes:
    """`data` compressed; `level` None is Kafka's default for that codec.

    For magic 0 the LZ4 header checksum is computed as old Kafka clients did, which is wrong.
    """
    if codec is Codec.GZIP:
        gzip_level = _GZIP_LEVEL_DEFAULT if level is None or level < 0 else level
        return bytes(cramjam.gzip.compress(data, gzip_level))
    if codec is Codec.SNAPPY:
        return _compress_snappy(data)
    if codec is Codec.LZ4:
        return _compress_lz4(data, _LZ4_LEVEL_DEFAULT if level is None else level, magic)
    if codec is Codec.ZSTD:
        return bytes(cramjam.zstd.compress(data, _ZSTD_LEVEL_DEFAULT if level is None else level))
    return bytes(data)


def decompress(
    codec: Codec, data: Buffer, *, magic: int = 2, size_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The decompressed data.

    Memory grows with the actual size of the output, not with the size that the stream claims.

    Raises:
        BatchTooLargeError: the output exceeds `size_max` bytes.
        CorruptError: it is malformed or cut off.
    """
    payload = data if isinstance(data, bytes) else bytes(data)
    if codec is Codec.GZIP:
        return _decompress_stream("gzip", cramjam.gzip, payload, size_max)
    if codec is Codec.SNAPPY:
        return _decompress_snappy(payload, size_max)
    if codec is Codec.LZ4:
        frame = _with_right_lz4_checksum(payload) if magic == 0 else payload
        return _decompress_stream("lz4", cramjam.lz4, frame, size_max, guess=_lz4_size_max(frame))
    if codec is Codec.ZSTD:
        return _decompress_stream("zstd", cramjam.zstd, payload, size_max)
    return payload


def decompress_into(codec: Codec, data: Buffer, target: memoryview) -> int | None:
    """Decompresses to the start of `target`, without further memory.

    Returns the number of bytes written, or None if `target` is too small.

    Raises:
        CorruptError: the stream is malformed or cut off.
    """
    if codec is Codec.NONE:
        if len(data) > len(target):
            return None
        target[: len(data)] = data
        return len(data)
    if codec is Codec.SNAPPY:
        size = 0
        for block, size_bytes in _snappy_blocks(bytes(data)):
            if size_bytes > len(target) - size:
                return None
            _snappy_block_into(block, target[size : size + size_bytes])
            size += size_bytes
        return size
    library = {Codec.GZIP: cramjam.gzip, Codec.LZ4: cramjam.lz4, Codec.ZSTD: cramjam.zstd}[codec]
    if not data:
        raise CorruptError(f"empty {codec.config_name} stream")
    try:
        return int(library.decompress_into(data, target))
    except cramjam.DecompressionError as error:
        if _is_too_small(error):
            return None
        raise CorruptError(f"bad {codec.config_name} stream: {error}") from error


def decompress_start(codec: Codec, data: Buffer, size_bytes: int, *, magic: int = 2) -> bytearray:
    """The first bytes of a stream, `size_bytes` of them.

    Zeros may be at their end: a codec of blocks writes whole ones.

    Raises:
        CorruptError: the stream is malformed or cut off before them.
    """
    start = bytearray(size_bytes)
    if codec is Codec.LZ4 and magic == 0:
        data = _with_right_lz4_checksum(bytes(data))
    decompress_into(codec, data, memoryview(start))
    return start


def _is_too_small(error: Exception) -> bool:
    """Whether the error is the library's error for an output buffer that is too small."""
    return "whole buffer" in str(error)


def _decompress_stream(
    name: str, library: Any, data: bytes, size_max: int, *, guess: int | None = None
) -> bytes:
    if not data:
        raise CorruptError(f"empty {name} stream")
    # The library zeroes the whole output buffer first, so a smaller buffer is faster.
    size = min(size_max, 65_536 + 8 * len(data))
    if guess is not None:
        size = min(size, guess)
    while True:
        output = bytearray(size)
        try:
            written = library.decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if not _is_too_small(error):
                raise CorruptError(f"bad {name} stream: {error}") from error
            if size >= size_max:
                reason = f"{name} stream expands to more than {size_max} bytes"
                raise BatchTooLargeError(reason) from error
            del output  # before the next one is there
            size = min(size_max, size * (8 if size < _LARGE_BYTES else 2))
            continue
        return bytes(memoryview(output)[:written])


def _compress_snappy(data: Buffer) -> bytes:
    out = bytearray(_SNAPPY_HEADER)
    for start in range(0, len(data), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _SNAPPY_BLOCK_BYTES]))
        out += struct.pack(">i", len(block))
        out += block
    return bytes(out)


def _decompress_snappy(data: bytes, size_max: int) -> bytes:
    blocks = list(_snappy_blocks(data))
    size = sum(size_bytes for _, size_bytes in blocks)
    if size > size_max:
        raise BatchTooLargeError(f"snappy stream expands to more than {size_max} bytes")
    out = bytearray(size)
    position = 0
    for block, size_bytes in blocks:
        _snappy_block_into(block, memoryview(out)[position : position + size_bytes])
        position += size_bytes
    return bytes(out)


def _snappy_blocks(data: bytes) -> Iterator[tuple[bytes, int]]:
    """(block, uncompressed size) for each block of a snappy-java stream, or of a raw stream."""
    if not data.startswith(_SNAPPY_MAGIC):
        yield data, _size_of_snappy_block(data)
        return
    position = 0
    while position < len(data):
        if data.startswith(_SNAPPY_MAGIC, position):
            position += len(_SNAPPY_HEADER)
            if position > len(data):
                raise CorruptError("snappy header is cut off")
            continue
        if position + 4 > len(data):
            raise CorruptError("snappy block length is cut off", position=position)
        (size,) = struct.unpack_from(">i", data, position)
        position += 4
        if size < 0 or size > len(data) - position:
            reason = f"snappy block of {size} bytes, {len(data) - position} remain"
            raise CorruptError(reason, position=position)
        block = data[position : position + size]
        yield block, _size_of_snappy_block(block)
        position += size


def _size_of_snappy_block(block: bytes) -> int:
    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise CorruptError(f"bad snappy block: {error}") from error
    if size > _SNAPPY_EXPANSION_MAX * len(block):
        raise CorruptError(f"snappy block of {len(block)} bytes claims to hold {size}")
    return size


def _snappy_block_into(block: bytes, target: memoryview) -> None:
    """Decompresses a block to exactly `target`."""
    try:
        if not target:  # into which the library does not write
            written = len(bytes(cramjam.snappy.decompress_raw(block)))
        else:
            written = int(cramjam.snappy.decompress_raw_into(block, target))
    except cramjam.DecompressionError as error:
        raise CorruptError(f"bad snappy block: {error}") from error
    if written != len(target):
        raise CorruptError(f"snappy block of {written} bytes claims to hold {len(target)}")


def _compress_lz4(data: Buffer, level: int, magic: int) -> bytes:
    out = bytearray(_LZ4_HEADER)
    if magic == 0:
        out[6] = _lz4_header_checksum(bytes(out[:6]))
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        block = data[start : start + _LZ4_BLOCK_BYTES]
        # As in Kafka, the default level means the fast compressor. cramjam has no other.
        packed = bytes(
            cramjam.lz4.compress_block(block, store_size=False)
            if level == _LZ4_LEVEL_DEFAULT
            else lz4.block.compress(
                block,
                mode="high_compression",
                compression=min(level, _LZ4_LEVEL_DENSEST),
                store_size=False,
            )
        )
        if len(packed) >= len(block):
            out += struct.pack("<I", len(block) | _LZ4_INCOMPRESSIBLE)
            out += block
        else:
            out += struct.pack("<I", len(packed))
            out += packed
    out += bytes(4)
    return bytes(out)


def _lz4_size_max(frame: bytes) -> int | None:
    """The maximum decompressed size of a frame of independent 64 KiB blocks; None for others."""
    if len(frame) < len(_LZ4_HEADER) or not frame.startswith(_LZ4_HEADER[:-1]):
        return None
    blocks, position = 0, len(_LZ4_HEADER)
    while position + 4 <= len(frame):
        (size,) = _LZ4_BLOCK_SIZE.unpack_from(frame, position)
        if not size:
            break
        blocks += 1
        position += 4 + (size & ~_LZ4_INCOMPRESSIBLE)
    return blocks * _LZ4_BLOCK_BYTES


def _with_right_lz4_checksum(data: bytes) -> bytes:
    """The frame with the correct header checksum; for magic 0 Kafka ignores it."""
    if len(data) < 7 or not data.startswith(_LZ4_MAGIC):
        return data
    has_content_size = data[4] & 0x08
    end = 14 if has_content_size else 6
    if len(data) <= end:
        return data
    return data[:end] + bytes([_lz4_header_checksum(data[4:end])]) + data[end + 1 :]


def _lz4_header_checksum(descriptor: bytes) -> int:
    return (_xxhash32(descriptor) >> 8) & 0xFF


def _xxhash32(data: bytes) -> int:
    """xxHash32 (seed 0) of fewer than 16 bytes."""
    assert len(data) < 16, len(data)
    value = (374761393 + len(data)) & _MASK_32
    position = 0
    while position + 4 <= len(data):
        (word,) = struct.unpack_from("<I", data, position)
        value = (value + word * 3266489917) & _MASK_32
        value = (_rotate_left(value, 17) * 668265263) & _MASK_32
        position += 4
    for byte in data[position:]:
        value = (value + byte * 374761393) & _MASK_32
        value = (_rotate_left(value, 11) * 2654435761) & _MASK_32
    value ^= value >> 15
    value = (value * 2246822519) & _MASK_32
    value ^= value >> 13
    value = (value * 3266489917) & _MASK_32
    return value ^ (value >> 16)


def _rotate_left(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & _MASK_32
