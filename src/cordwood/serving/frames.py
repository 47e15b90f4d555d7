"""Requests out of a stream of bytes: each is its length in four bytes, then that many bytes.

No I/O is done here. A connection that waits for its next request holds no buffer: what has come of
a request that is not whole yet is kept in a buffer of that request's own size. That of a large one
is mapped memory, which takes memory as bytes arrive, not as they are announced.

Source: org.apache.kafka.common.network.NetworkReceive.
"""

from __future__ import annotations

import mmap
import struct

from cordwood.model.errors import CordwoodError

_SIZE = struct.Struct(">i")
_NOTHING = memoryview(b"")
_MAPPED_BYTES_MIN = 1 << 20


class InvalidReceiveError(CordwoodError):
    """A length that no request may have: the connection cannot be understood any further."""


class FrameReader:
    """The requests of one connection, in the order they come.

    Receive into `room(scratch)`, call `received`, take frames from `next` until it gives None, and
    then call `keep`, after which `scratch` may serve another connection.
    """

    __slots__ = ("_filled", "_frame", "_max_bytes", "_pending", "_received_into_frame")

    def __init__(self, max_bytes: int) -> None:
        """Prepares for frames of up to `max_bytes` (socket.request.max.bytes)."""
        self._max_bytes = max_bytes
        self._pending = _NOTHING
        self._frame: bytearray | mmap.mmap | None = None
        self._filled = 0
        self._received_into_frame = False

    def room(self, scratch: memoryview) -> memoryview:
        """The buffer for the next bytes: `scratch`, or the rest of a frame that has begun."""
        self._received_into_frame = self._frame is not None
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        kept = len(self._pending)
        if kept:  # the start of a length
            scratch[:kept] = self._pending
            self._pending = _NOTHING
            self._filled = kept
            return scratch[kept:]
        self._filled = 0
        return scratch

    def received(self, count: int, scratch: memoryview) -> None:
        """Notes that `count` bytes were read into the buffer that `room` returned."""
        if self._received_into_frame:
            self._filled += count
        else:
            self._pending = scratch[: self._filled + count]
            self._filled = 0

    def next(self) -> memoryview | None:
        """The next whole frame, its length aside; valid until `keep` or `received`.

        Raises:
            InvalidReceiveError: a length is negative, or above the maximum.
        """
        frame = self._frame
        if frame is not None:
            if self._filled < len(frame):
                return None
            self._frame = None
            return memoryview(frame).toreadonly()
        pending = self._pending
        if len(pending) < 4:
            return None
        size = _SIZE.unpack_from(pending)[0]
        if size < 0:
            raise InvalidReceiveError(f"Invalid receive (size = {size})")
        if size > self._max_bytes:
            raise InvalidReceiveError(
                f"Invalid receive (size = {size} larger than {self._max_bytes})"
            )
        if len(pending) < 4 + size:
            return None
        self._pending = pending[4 + size :]
        return pending[4 : 4 + size].toreadonly()

    def keep(self) -> None:
        """Copies what has not been taken yet out of the scratch buffer.

        Raises:
            InvalidReceiveError: as `next`.
        """
        pending = self._pending
        if self._frame is not None or not pending:
            return
        if len(pending) >= 4:
            size = _SIZE.unpack_from(pending)[0]
            if 0 <= size <= self._max_bytes and len(pending) < 4 + size:
                self._frame = _buffer(size)
                self._filled = len(pending) - 4
                self._frame[: self._filled] = pending[4:]
                self._pending = _NOTHING
                return
        self._pending = memoryview(bytes(pending))

    @property
    def holds_request(self) -> bool:
        """Whether a frame is there to be taken, or a length that must be refused."""
        if self._frame is not None:
            return self._filled == len(self._frame)
        if len(self._pending) < 4:
            return False
        size: int = _SIZE.unpack_from(self._pending)[0]
        return size < 0 or size > self._max_bytes or len(self._pending) >= 4 + size


def _buffer(size: int) -> bytearray | mmap.mmap:
    return bytearray(size) if size < _MAPPED_BYTES_MIN else mmap.mmap(-1, size)
