"""Headers of requests and responses.

Source: RequestHeader.json, ResponseHeader.json; KIP-482. A client id is written in the old way in
every version; the response of ApiVersions has a header of version 0 in every version, so that a
client whose version is not known can read it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cordwood.protocol.messages import MalformedMessageError

API_VERSIONS = 18

_START = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """What comes before a request's body; `body_at` is where in the frame that begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def parse_start(frame: memoryview) -> RequestHeader:
    """The fields that all versions have; `body_at` is behind them, tags not yet skipped.

    Raises:
        MalformedMessageError: the frame is too short, or its client id is no text.
    """
    try:
        api_key, version, correlation_id, length = _START.unpack_from(frame)
        end = _START.size + max(length, 0)
        if end > len(frame):
            raise MalformedMessageError(f"a client id of {length} bytes does not fit the request")
        client_id = None if length < 0 else str(frame[_START.size : end], "utf-8")
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"a request's header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, end)


def skip_tags(frame: memoryview, at: int) -> int:
    """Where the tagged fields that begin at `at` end.

    Raises:
        MalformedMessageError: they do not end within the frame.
    """
    count, at = _uvarint(frame, at)
    for _ in range(count):
        _, at = _uvarint(frame, at)
        size, at = _uvarint(frame, at)
        at += size
    if at > len(frame):
        raise MalformedMessageError("a request's header: tagged fields go on beyond its end")
    return at


def _uvarint(frame: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(frame) or shift > 28:
            raise MalformedMessageError("a request's header: a varint goes on beyond its end")
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def response_header(correlation_id: int, *, flexible: bool) -> bytes:
    """A response's header: version 1 if `flexible`."""
    return _CORRELATION.pack(correlation_id) + (b"\0" if flexible else b"")
