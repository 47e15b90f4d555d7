"""Requests out of a stream of bytes, however it is cut."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.serving.frames import FrameReader, InvalidReceiveError


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def receive(
    reader: FrameReader, stream: bytes, cuts: list[int], *, scratch_bytes: int = 64
) -> list[bytes]:
    """Gives `stream` to the reader in pieces, the scratch buffer being overwritten in between."""
    scratch = memoryview(bytearray(scratch_bytes))
    found = []
    at = 0
    turns = iter(cuts)
    while at < len(stream):
        room = reader.room(scratch)
        size = min(len(room), max(1, next(turns, len(stream))), len(stream) - at)
        room[:size] = stream[at : at + size]
        reader.received(size, scratch)
        at += size
        while (frame := reader.next()) is not None:
            found.append(bytes(frame))
        reader.keep()
        scratch[:] = b"\xee" * scratch_bytes
    return found


@given(st.lists(st.binary(max_size=200), max_size=8), st.lists(st.integers(1, 90), max_size=60))
def test_requests_come_whole_and_in_order_however_the_stream_is_cut(
    bodies: list[bytes], cuts: list[int]
) -> None:
    assert receive(FrameReader(1000), framed(*bodies), cuts) == bodies


def test_several_requests_in_one_piece_are_taken_one_by_one() -> None:
    assert receive(FrameReader(10), framed(b"a", b"", b"bcd"), [64]) == [b"a", b"", b"bcd"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(-1, "Invalid receive (size = -1)"), (11, "Invalid receive (size = 11 larger than 10)")],
)
def test_a_length_that_no_request_may_have_is_refused(size: int, text: str) -> None:
    reader = FrameReader(10)
    scratch = memoryview(bytearray(64))
    room = reader.room(scratch)
    room[:4] = struct.pack(">i", size)
    reader.received(4, scratch)
    assert reader.holds_request
    with pytest.raises(InvalidReceiveError, match="Invalid receive") as error:
        reader.next()
    assert str(error.value) == text


def test_a_request_that_is_waited_for_has_a_buffer_of_its_own_size() -> None:
    reader = FrameReader(1 << 30)
    scratch = memoryview(bytearray(64))
    room = reader.room(scratch)
    room[:6] = struct.pack(">i", 100) + b"ab"
    reader.received(6, scratch)
    assert reader.next() is None
    reader.keep()
    assert len(reader.room(scratch)) == 98


def test_requests_not_taken_yet_outlast_the_scratch_buffer() -> None:
    reader = FrameReader(100)
    scratch = memoryview(bytearray(64))
    stream = framed(b"one", b"two")
    reader.room(scratch)[: len(stream)] = stream
    reader.received(len(stream), scratch)
    first = reader.next()
    assert first is not None
    assert bytes(first) == b"one"
    reader.keep()
    scratch[:] = b"\0" * 64
    assert reader.holds_request
    second = reader.next()
    assert second is not None
    assert bytes(second) == b"two"
    assert not reader.holds_request
