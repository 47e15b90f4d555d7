"""Decompresses the records of many batches into one reusable arena.

Twin: `cordwood.format.compression.decompress`. LZ4 frames are taken apart here, because a block is
decompressed into place several times faster than a frame through a new decoder.
"""

from __future__ import annotations

import cramjam
import numpy as np

from cordwood.format.compression import Codec, decompress
from cordwood.model.errors import CordwoodError, CorruptError

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BLOCK_BYTES = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_INDEPENDENT = 0x20
_LZ4_BLOCK_CHECKSUM = 0x10
_LZ4_CONTENT_SIZE = 0x08
_LZ4_CONTENT_CHECKSUM = 0x04
_LZ4_DICTIONARY = 0x01
_SLACK = 64


class PayloadArena:
    """A growing buffer that holds the decompressed records of some batches, one after the other.

    `buffer` (uint8) has at least 64 readable bytes beyond `used`. Positions given out stay valid
    until `reset`, also when the buffer grows.
    """

    def __init__(self, size_bytes: int = 1 << 20) -> None:
        self.buffer = np.zeros(size_bytes + _SLACK, dtype=np.uint8)
        self.used = 0

    def reset(self) -> None:
        """Forgets what it holds."""
        self.used = 0

    def _require_room(self, more_bytes: int) -> None:
        wanted = self.used + more_bytes + _SLACK
        if wanted > self.buffer.shape[0]:
            bigger = np.zeros(max(wanted, 2 * self.buffer.shape[0]), dtype=np.uint8)
            bigger[: self.used] = self.buffer[: self.used]
            self.buffer = bigger

    def add(self, codec: int, data: memoryview) -> tuple[int, int]:
        """Decompresses `data`; returns where it starts and ends in `buffer`.

        Raises:
            CorruptError: the data is not what the codec makes.
        """
        start = self.used
        if codec == Codec.LZ4:
            self._add_lz4(data)
            return start, self.used
        try:
            plain = decompress(Codec(codec), data)
        except CordwoodError:
            raise
        except ValueError as error:
            raise CorruptError(f"unknown codec {codec}") from error
        self._require_room(len(plain))
        self.used = start + len(plain)
        self.buffer[start : self.used] = np.frombuffer(plain, dtype=np.uint8)
        return start, self.used

    def _add_lz4(self, data: memoryview) -> None:
        """Appends the content of one LZ4 frame.

        Source: the LZ4 frame format; org.apache.kafka.common.compress.Lz4BlockInputStream.
        """
        if len(data) < 7 or data[:4] != _LZ4_MAGIC:
            raise CorruptError("not an LZ4 frame")
        flags, descriptor = data[4], data[5]
        block_bytes = _LZ4_BLOCK_BYTES.get((descriptor >> 4) & 7)
        if block_bytes is None or flags >> 6 != 1:
            raise CorruptError("an LZ4 frame with an unknown descriptor")
        if flags & _LZ4_DICTIONARY or not flags & _LZ4_INDEPENDENT:
            # Rare: let the library's own frame decoder judge these.
            plain = decompress(Codec.LZ4, data)
            self._require_room(len(plain))
            self.buffer[self.used : self.used + len(plain)] = np.frombuffer(plain, dtype=np.uint8)
            self.used += len(plain)
            return
        position = 7 + (8 if flags & _LZ4_CONTENT_SIZE else 0)
        checksum = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
        while True:
            if len(data) - position < 4:
                raise CorruptError("an LZ4 frame without its end mark")
            word = int.from_bytes(data[position : position + 4], "little")
            position += 4
            size = word & 0x7FFFFFFF
            if size == 0:
                return
            if size > block_bytes or size > len(data) - position:
                raise CorruptError("an LZ4 block that is larger than its frame allows")
            block = data[position : position + size]
            position += size + checksum
            if word >> 31:
                self._require_room(size)
                self.buffer[self.used : self.used + size] = np.frombuffer(block, dtype=np.uint8)
                self.used += size
                continue
            self._require_room(block_bytes)
            target = self.buffer[self.used : self.used + block_bytes]
            try:
                self.used += cramjam.lz4.decompress_block_into(block, target, block_bytes)
            except cramjam.DecompressionError as error:
                raise CorruptError(f"a bad LZ4 block: {error}") from error
