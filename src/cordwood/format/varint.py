"""Variable-length integers: 7 bits per byte, least significant group first, high bit = more follow.

Signed values are zigzag-coded first. A varint is 32 bits wide (at most 5 bytes), a varlong 64 bits
(at most 10); bits beyond the width are dropped, as Java's shifts drop them.

Source: org.apache.kafka.common.utils.ByteUtils.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from cordwood.model.errors import CorruptError

Buffer: TypeAlias = bytes | bytearray | memoryview

VARINT_BYTES_MAX = 5
VARLONG_BYTES_MAX = 10

_MASK_32 = (1 << 32) - 1
_MASK_64 = (1 << 64) - 1


class CutOffError(CorruptError):
    """The bytes end within a number (java.nio.BufferUnderflowException in Kafka)."""


def encode_unsigned_varint(value: int) -> bytes:
    """`value` (0 .. 2^32-1) in 1 to 5 bytes."""
    return _encode_groups(value & _MASK_32)


def encode_varint(value: int) -> bytes:
    """`value` (int32) zigzag-coded in 1 to 5 bytes."""
    return _encode_groups(((value << 1) ^ (value >> 31)) & _MASK_32)


def encode_varlong(value: int) -> bytes:
    """`value` (int64) zigzag-coded in 1 to 10 bytes."""
    return _encode_groups(((value << 1) ^ (value >> 63)) & _MASK_64)


def decode_unsigned_varint(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """The value (0 .. 2^32-1) at `position`, and the position after it.

    Raises:
        CorruptError: it runs past the end of `buffer`, or is longer than 5 bytes.
    """
    if 0 <= position < len(buffer) and (value := buffer[position]) < 0x80:
        return value, position + 1
    return _decode_groups(buffer, position, VARINT_BYTES_MAX, _MASK_32)


def decode_varint(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """The zigzag-coded int32 at `position`, and the position after it.

    Raises:
        CorruptError: it runs past the end of `buffer`, or is longer than 5 bytes.
    """
    if 0 <= position < len(buffer) - 1:  # most numbers take a byte or two
        value = buffer[position]
        if value < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        high = buffer[position + 1]
        if high < 0x80:
            value = (value & 0x7F) | (high << 7)
            return (value >> 1) ^ -(value & 1), position + 2
    value, position = _decode_groups(buffer, position, VARINT_BYTES_MAX, _MASK_32)
    return (value >> 1) ^ -(value & 1), position


def decode_varlong(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """The zigzag-coded int64 at `position`, and the position after it.

    Raises:
        CorruptError: it runs past the end of `buffer`, or is longer than 10 bytes.
    """
    if 0 <= position < len(buffer) - 1:  # most numbers take a byte or two
        value = buffer[position]
        if value < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        high = buffer[position + 1]
        if high < 0x80:
            value = (value & 0x7F) | (high << 7)
            return (value >> 1) ^ -(value & 1), position + 2
    value, position = _decode_groups(buffer, position, VARLONG_BYTES_MAX, _MASK_64)
    return (value >> 1) ^ -(value & 1), position


def size_of_varint(value: int) -> int:
    """Bytes that `encode_varint(value)` takes."""
    return _size_of_groups(((value << 1) ^ (value >> 31)) & _MASK_32)


def _size_of_groups(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)


def _encode_groups(value: int) -> bytes:
    return _SMALL[value] if value < _SMALL_MAX else _groups_of(value)


def _groups_of(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _decode_groups(buffer: Buffer, position: int, bytes_max: int, mask: int) -> tuple[int, int]:
    start = position
    size = len(buffer)
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        if not 0 <= position < size:
            raise CutOffError("variable-length integer is cut off", position=start)
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & mask, position
    # The text is that of Kafka's ByteUtils; Kafka's tools show it.
    name = "Varint" if bytes_max == VARINT_BYTES_MAX else "Varlong"
    raise CorruptError(
        f"{name} is too long, the most significant bit in the {bytes_max}th byte is set, "
        f"converted value: {value & mask:x}",
        position=start,
    )


#: Lengths, deltas and counts are mostly small.
_SMALL_MAX: Final = 1 << 10
_SMALL: Final = [_groups_of(value) for value in range(_SMALL_MAX)]
