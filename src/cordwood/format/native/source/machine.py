"""LLVM operations that Python lacks: CRC-32C, unaligned loads, wide products.

Each intrinsic is one or two machine instructions. CRC-32C uses the processor's own instruction on
x86-64 with SSE 4.2 and on 64-bit ARM, else a table of 2 KiB.
"""

from __future__ import annotations

import platform

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from cordwood.format.native.source.kernel import Bytes, inlined, kernel

_I8, _I32, _I64, _I128 = (ir.IntType(bits) for bits in (8, 32, 64, 128))


def _crc_instructions() -> tuple[str, str] | None:
    """LLVM's names of the 64-bit and 8-bit CRC-32C instructions of this processor."""
    features = llvm.get_host_cpu_features()
    if platform.machine() in {"x86_64", "AMD64"} and features.get("sse4.2"):
        return "llvm.x86.sse42.crc32.64.64", "llvm.x86.sse42.crc32.32.8"
    if platform.machine() in {"aarch64", "arm64"} and features.get("crc"):
        return "llvm.aarch64.crc32cx", "llvm.aarch64.crc32cb"
    return None


_CRC = _crc_instructions()


@intrinsic
def _crc_step_64(typing_context, crc, data):
    """The CRC of eight more bytes; `crc` and the result are 64-bit with a clear upper half."""

    def build(context, builder, signature, args):
        name = _CRC[0]
        crc_type = _I64 if "x86" in name else _I32
        step = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(crc_type, [crc_type, _I64]), name
        )
        start = args[0] if crc_type is _I64 else builder.trunc(args[0], _I32)
        result = builder.call(step, [start, args[1]])
        return result if crc_type is _I64 else builder.zext(result, _I64)

    return types.uint64(types.uint64, types.uint64), build


@intrinsic
def _crc_step_8(typing_context, crc, data):
    """The CRC of one more byte."""

    def build(context, builder, signature, args):
        name = _CRC[1]
        data_type = _I8 if "x86" in name else _I32
        step = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_I32, [_I32, data_type]), name
        )
        data = args[1] if data_type is _I8 else builder.zext(args[1], _I32)
        result = builder.call(step, [builder.trunc(args[0], _I32), data])
        return builder.zext(result, _I64)

    return types.uint64(types.uint64, types.uint8), build


@intrinsic
def load_u64(typing_context, array, position):
    """Eight bytes of a uint8 array at any position, little-endian, unchecked."""

    def build(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        pointer = builder.bitcast(builder.gep(view.data, [args[1]]), _I64.as_pointer())
        value = builder.load(pointer)
        value.align = 1
        return value

    return types.uint64(array, types.int64), build


@intrinsic
def copy_bytes(typing_context, target, target_position, source, source_position, count):
    """Copies bytes from one uint8 array to another one, unchecked; the ranges do not overlap."""

    def build(context, builder, signature, args):
        into, into_position, from_, from_position, size = args
        into = context.make_array(signature.args[0])(context, builder, into)
        from_ = context.make_array(signature.args[2])(context, builder, from_)
        cgutils.raw_memcpy(
            builder,
            builder.gep(into.data, [into_position]),
            builder.gep(from_.data, [from_position]),
            size,
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), build


@intrinsic
def multiply_fold(typing_context, left, right):
    """The upper and lower halves of the 128-bit product, combined by exclusive or."""

    def build(context, builder, signature, args):
        product = builder.mul(builder.zext(args[0], _I128), builder.zext(args[1], _I128))
        upper = builder.trunc(builder.lshr(product, ir.Constant(_I128, 64)), _I64)
        return builder.xor(upper, builder.trunc(product, _I64))

    return types.uint64(types.uint64, types.uint64), build


@intrinsic
def prefetch(typing_context, array, index):
    """Asks the processor to bring the row `array[index]` of a 2-D array near."""

    def build(context, builder, signature, args):
        view = context.make_array(signature.args[0])(context, builder, args[0])
        row_bytes = cgutils.unpack_tuple(builder, view.strides)[0]
        address = builder.add(builder.ptrtoint(view.data, _I64), builder.mul(args[1], row_bytes))
        hint = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32]),
            "llvm.prefetch.p0i8" if llvm.llvm_version_info[0] < 17 else "llvm.prefetch.p0",
        )
        pointer = builder.inttoptr(address, _I8.as_pointer())
        builder.call(hint, [pointer, _I32(0), _I32(3), _I32(1)])
        return context.get_dummy_value()

    return types.void(array, types.int64), build


def _crc_table() -> np.ndarray:
    table = np.zeros(256, dtype=np.uint64)
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table[byte] = crc
    return table


_TABLE = _crc_table()


def _crc32c_by_table(buffer: Bytes, start: int, end: int) -> np.uint64:
    crc = np.uint64(0xFFFFFFFF)
    for i in range(start, end):
        index = np.int64((crc ^ np.uint64(buffer[i])) & np.uint64(0xFF))
        crc = _TABLE[index] ^ (crc >> np.uint64(8))
    return crc ^ np.uint64(0xFFFFFFFF)


# The instruction takes one cycle, and its result is there after three: three lanes keep it busy.
_LANE_BYTES = 512


def _lane_table() -> np.ndarray:
    """A table that moves a CRC register behind a lane of zeros, by its bytes: uint64 (4, 256).

    A register is the sum of its bits, and moved it is the sum of these moved.
    """
    bits = np.uint64(1) << np.arange(32, dtype=np.uint64)
    for _ in range(_LANE_BYTES):
        bits = _TABLE[bits & np.uint64(0xFF)] ^ (bits >> np.uint64(8))
    table = np.zeros((4, 256), dtype=np.uint64)
    for bit, moved in enumerate(bits):
        has_it = (np.arange(256) >> (bit % 8) & 1).astype(np.bool_)
        table[bit // 8, has_it] ^= moved
    return table


_LANE_TABLE = _lane_table()


@inlined
def _behind_lane(crc):
    """The register of a lane, moved behind the next lane."""
    return (
        _LANE_TABLE[0, np.int64(crc & np.uint64(0xFF))]
        ^ _LANE_TABLE[1, np.int64((crc >> np.uint64(8)) & np.uint64(0xFF))]
        ^ _LANE_TABLE[2, np.int64((crc >> np.uint64(16)) & np.uint64(0xFF))]
        ^ _LANE_TABLE[3, np.int64(crc >> np.uint64(24))]
    )


def _crc32c_by_instruction(buffer: Bytes, start: int, end: int) -> np.uint64:
    crc = np.uint64(0xFFFFFFFF)
    position = start
    while position + 3 * _LANE_BYTES <= end:
        second = third = np.uint64(0)
        for at in range(position, position + _LANE_BYTES, 8):
            crc = _crc_step_64(crc, load_u64(buffer, at))
            second = _crc_step_64(second, load_u64(buffer, at + _LANE_BYTES))
            third = _crc_step_64(third, load_u64(buffer, at + 2 * _LANE_BYTES))
        crc = _behind_lane(_behind_lane(crc) ^ second) ^ third
        position += 3 * _LANE_BYTES
    while position + 8 <= end:
        crc = _crc_step_64(crc, load_u64(buffer, position))
        position += 8
    while position < end:
        crc = _crc_step_8(crc, buffer[position])
        position += 1
    return crc ^ np.uint64(0xFFFFFFFF)


#: CRC-32C of `buffer[start:end]`, a uint8 array, as a uint64. Source: RFC 3720, appendix B.4.
crc32c = kernel(_crc32c_by_instruction if _CRC else _crc32c_by_table)
#: The same by table alone, for processors without the instruction.
crc32c_by_table = kernel(_crc32c_by_table)
