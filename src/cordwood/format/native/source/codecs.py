"""LZ4 and zstd called directly from compiled code, by the addresses of `native.codecs`.

Source: lz4.h (LZ4_decompress_safe, LZ4_compress_default), zstd.h (ZSTD_decompressDCtx,
ZSTD_compressCCtx); the LZ4 frame format.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from cordwood.format.native.batches import ATTRIBUTES, HEADER_SIZE, POSITION, SIZE
from cordwood.format.native.codecs import BAD, LZ4, NO_ROOM, NOT_HERE, ZSTD
from cordwood.format.native.source.kernel import Bytes, Flags, Ints, Rows, inlined, kernel

_ZSTD_NO_ROOM = -70
_ZSTD_LEVEL = 3
_LZ4_MAGIC = np.uint32(0x184D2204)
_LZ4_BLOCK = 1 << 16
_LZ4_SLACK = 64
_I32, _I64 = ir.IntType(32), ir.IntType(64)


@intrinsic
def _call_lz4(typing_context, address, source, target, size, room):
    """`int f(const char *source, char *target, int size, int capacity)` at `address`."""

    def build(context, builder, signature, args):
        function = ir.FunctionType(_I32, [_I64, _I64, _I32, _I32]).as_pointer()
        sizes = [builder.trunc(args[3], _I32), builder.trunc(args[4], _I32)]
        called = builder.inttoptr(args[0], function)
        return builder.sext(builder.call(called, [args[1], args[2], *sizes]), _I64)

    i64 = types.int64
    return i64(i64, i64, i64, i64, i64), build


@intrinsic
def _call_zstd(typing_context, address, state, target, room, source, size, level):
    """`size_t f(state, target, capacity, source, size, level)`; decompression ignores `level`."""

    def build(context, builder, signature, args):
        function = ir.FunctionType(_I64, [_I64, _I64, _I64, _I64, _I64, _I32]).as_pointer()
        called = builder.inttoptr(args[0], function)
        return builder.call(called, [*args[1:6], builder.trunc(args[6], _I32)])

    i64 = types.int64
    return i64(i64, i64, i64, i64, i64, i64, i64), build


@inlined
def _le32(buffer, position):
    return (
        np.int64(buffer[position])
        | (np.int64(buffer[position + 1]) << 8)
        | (np.int64(buffer[position + 2]) << 16)
        | (np.int64(buffer[position + 3]) << 24)
    )


@kernel
def _decompress_lz4(
    buffer: Bytes, start: int, end: int, out: Bytes, used: int, address: int
) -> int:
    """The end position in `out` of the decompressed LZ4 frame, or a negative status."""
    if end - start < 11 or np.uint32(_le32(buffer, start)) != _LZ4_MAGIC:
        return BAD
    flags = np.int64(buffer[start + 4])
    size_code = (np.int64(buffer[start + 5]) >> 4) & 7
    if flags >> 6 != 1 or size_code < 4:
        return BAD
    block_bytes = np.int64(1) << (8 + 2 * size_code)
    position = start + 7 + (8 if flags & 0x08 else 0)
    checksum = 4 if flags & 0x10 else 0
    if flags & 0x01:
        return NOT_HERE
    blocks = 0
    while True:
        if end - position < 4:
            return BAD
        word = _le32(buffer, position)
        position += 4
        size = word & 0x7FFFFFFF
        if size == 0:
            return used
        if size > block_bytes or size > end - position:
            return BAD
        blocks += 1
        if blocks > 1 and not flags & 0x20:
            return NOT_HERE  # linked blocks: a decoder must remember the one before
        if word >> 31:
            if used + size + _LZ4_SLACK > out.shape[0]:
                return NO_ROOM
            out[used : used + size] = buffer[position : position + size]
            used += size
        else:
            if used + block_bytes + _LZ4_SLACK > out.shape[0]:
                return NO_ROOM
            written = _call_lz4(
                address,
                buffer.ctypes.data + position,
                out.ctypes.data + used,
                size,
                block_bytes,
            )
            if written < 0:
                return BAD
            used += written
        position += size + checksum


@kernel
def decompress_records(
    buffer: Bytes, start: int, end: int, codec: int, out: Bytes, used: int, codecs: Ints
) -> int:
    """Decompresses `buffer[start:end]` to `out[used:]`.

    Returns:
        The end position in `out`, after which 64 bytes are free; or BAD, NO_ROOM, NOT_HERE.
    """
    if codec == 0:
        size = end - start
        if used + size + _LZ4_SLACK > out.shape[0]:
            return np.int64(NO_ROOM)
        out[used : used + size] = buffer[start:end]
        return used + size
    if codec == LZ4 and codecs[0] != 0:
        return _decompress_lz4(buffer, start, end, out, used, codecs[0])
    if codec == ZSTD and codecs[2] != 0:
        room = out.shape[0] - used - _LZ4_SLACK
        if room < 1:
            return np.int64(NO_ROOM)
        written = _call_zstd(
            codecs[2],
            codecs[4],
            out.ctypes.data + used,
            room,
            buffer.ctypes.data + start,
            end - start,
            np.int64(0),
        )
        if written == _ZSTD_NO_ROOM:
            return np.int64(NO_ROOM)
        if written < 0:
            return np.int64(BAD)
        return used + written
    return np.int64(NOT_HERE)


@kernel
def decompress_rows(
    buffer: Bytes,
    table: Rows,
    wanted: Flags,
    first: int,
    last: int,
    out: Bytes,
    used: int,
    spans: Rows,
    codecs: Ints,
) -> tuple[int, int, int]:
    """Decompresses the wanted batches from row `first` on, one after another.

    Args:
        spans: int64 of shape (rows, 2), receives where each batch's records are in `out`.

    Returns:
        (rows done, bytes of `out` used, 0 or the status of the row that could not be done).
    """
    for row in range(first, last):
        if not wanted[row]:
            spans[row, 0] = -1
            continue
        start = table[row, POSITION] + HEADER_SIZE
        end = table[row, POSITION] + table[row, SIZE]
        after = decompress_records(
            buffer, start, end, table[row, ATTRIBUTES] & 7, out, used, codecs
        )
        if after < 0:
            return row, used, after
        spans[row, 0] = used
        spans[row, 1] = after
        used = after
    return last, used, np.int64(0)


@kernel
def compress_records(
    buffer: Bytes, start: int, end: int, codec: int, out: Bytes, target: int, codecs: Ints
) -> int:
    """Compresses `buffer[start:end]` to `out[target:]`, with Kafka's default level and framing.

    `out` has space for the data, plus 1/128 of its size, plus 128 bytes.

    Returns:
        The end position of the compressed data in `out`, or BAD.
    """
    if codec == ZSTD:
        written = _call_zstd(
            codecs[3],
            codecs[5],
            out.ctypes.data + target,
            out.shape[0] - target,
            buffer.ctypes.data + start,
            end - start,
            np.int64(_ZSTD_LEVEL),
        )
        return target + written if written >= 0 else np.int64(BAD)
    header = (0x04, 0x22, 0x4D, 0x18, 0x60, 0x40, 0x82)
    for i in range(7):
        out[target + i] = np.uint8(header[i])
    target += 7
    while start < end:
        size = min(end - start, _LZ4_BLOCK)
        written = _call_lz4(
            codecs[1],
            buffer.ctypes.data + start,
            out.ctypes.data + target + 4,
            size,
            out.shape[0] - target - 4,
        )
        word = written
        if written <= 0 or written >= size:
            out[target + 4 : target + 4 + size] = buffer[start : start + size]
            written = size
            word = size | (1 << 31)
        for i in range(4):
            out[target + i] = np.uint8((word >> (8 * i)) & 0xFF)
        target += 4 + written
        start += size
    out[target : target + 4] = 0
    return target + 4
