"""A cursor over bytes; every read is checked against the end."""

from __future__ import annotations

import struct

from cordwood.format.varint import (
    Buffer,
    CutOffError,
    decode_unsigned_varint,
    decode_varint,
    decode_varlong,
)
from cordwood.model.errors import CorruptError
from cordwood.model.utf8 import decode_utf8

_INT16 = struct.Struct(">h")
_UINT16 = struct.Struct(">H")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_FLOAT64 = struct.Struct(">d")


class ByteReader:
    """Reads big-endian values one after another; `CorruptError` where the bytes run out."""

    __slots__ = ("buffer", "position")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        self.buffer = memoryview(buffer)
        # Invariant: 0 <= position; the next read starts here.
        self.position = position

    @property
    def remaining(self) -> int:
        """Bytes not read yet."""
        return max(0, len(self.buffer) - self.position)

    def take(self, size_bytes: int) -> bytes:
        """The next `size_bytes` bytes, copied.

        Raises:
            CorruptError: `size_bytes` is negative, or fewer remain.
        """
        start = self.position
        if not 0 <= size_bytes <= self.remaining:
            # The text is that of Kafka's ByteBufferAccessor; Kafka's tools show it.
            raise CorruptError(
                f"Error reading byte array of {size_bytes} byte(s): "
                f"only {self.remaining} byte(s) available",
                position=start,
            )
        self.position = start + size_bytes
        return bytes(self.buffer[start : self.position])

    def fixed(self, size_bytes: int) -> bytes:
        """The `size_bytes` bytes of a value that always takes as many.

        Raises:
            CutOffError: fewer remain.
        """
        start = self._advance(size_bytes)
        return bytes(self.buffer[start : self.position])

    def int8(self) -> int:
        """A signed byte."""
        value = self.buffer[self._advance(1)]
        return value - 256 if value > 127 else value

    def uint8(self) -> int:
        """An unsigned byte."""
        return self.buffer[self._advance(1)]

    def int16(self) -> int:
        """Two bytes, signed."""
        return self._unpack(_INT16)

    def uint16(self) -> int:
        """Two bytes, unsigned."""
        return self._unpack(_UINT16)

    def int32(self) -> int:
        """Four bytes, signed."""
        return self._unpack(_INT32)

    def uint32(self) -> int:
        """Four bytes, unsigned."""
        return self._unpack(_UINT32)

    def int64(self) -> int:
        """Eight bytes, signed."""
        return self._unpack(_INT64)

    def float64(self) -> float:
        """Eight bytes, IEEE 754."""
        start = self._advance(_FLOAT64.size)
        value: float = _FLOAT64.unpack_from(self.buffer, start)[0]
        return value

    def varint(self) -> int:
        """A zigzag-coded int32."""
        value, self.position = decode_varint(self.buffer, self.position)
        return value

    def varlong(self) -> int:
        """A zigzag-coded int64."""
        value, self.position = decode_varlong(self.buffer, self.position)
        return value

    def unsigned_varint(self) -> int:
        """An unsigned varint, 0 .. 2^32-1."""
        value, self.position = decode_unsigned_varint(self.buffer, self.position)
        return value

    def text(self, size_bytes: int) -> str:
        """`size_bytes` bytes of UTF-8, malformed ones replaced as Java replaces them."""
        return decode_utf8(self.take(size_bytes))

    def require_end(self, what: str) -> None:
        """Refuses bytes that are left over.

        Raises:
            CorruptError: some remain.
        """
        if self.remaining:
            raise CorruptError(
                f"{self.remaining} bytes are left over after {what}", position=self.position
            )

    def _unpack(self, layout: struct.Struct) -> int:
        start = self._advance(layout.size)
        value: int = layout.unpack_from(self.buffer, start)[0]
        return value

    def _advance(self, size_bytes: int) -> int:
        start = self.position
        if start < 0 or size_bytes > len(self.buffer) - start:
            raise CutOffError(
                f"{size_bytes} bytes are needed, {self.remaining} remain", position=start
            )
        self.position = start + size_bytes
        return start
