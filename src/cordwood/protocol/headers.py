"""Headers of requests and responses.

Source: RequestHeader.json, ResponseHeader.json; KIP-482. A client id is written in the old way in
every version; the response of ApiVersions has a header of version 0 in every version, so that a
client whose version is not known can read it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cordwood.format.messages import primitives
from cordwood.format.messages.primitives import bytes_error
from cordwood.model.errors import CorruptError
from cordwood.model.utf8 import decode_utf8
from cordwood.protocol.messages import MalformedMessageError

API_VERSIONS = 18

_START = struct.Struct(">hhih")
_CORRELATION = struct.Struct(">i")


class RequestHeader(NamedTuple):
    """The header of a request; `body_at` is where in the frame that begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int


def parse_start(frame: memoryview) -> RequestHeader:
    """The fields that all versions have; `body_at` is behind them, tags not yet skipped.

    Raises:
        MalformedMessageError: the frame is too short.
    """
    try:
        api_key, version, correlation_id, length = _START.unpack_from(frame)
        end = _START.size + max(length, 0)
        if end > len(frame):
            raise bytes_error(length, _START.size, len(frame))
        client_id = None if length < 0 else decode_utf8(frame[_START.size : end])
    except (struct.error, CorruptError) as error:
        raise MalformedMessageError(f"a request's header: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, end)


def skip_tags(frame: memoryview, at: int) -> int:
    """The end of the tagged fields that begin at `at`; none of a request's header is known.

    Raises:
        MalformedMessageError: they do not end within the frame.
    """
    try:
        return at + 1 if not frame[at] else primitives.skip_tags(frame, at)
    except (CorruptError, IndexError) as error:
        raise MalformedMessageError(f"a request's header: {error}") from error


def request_header(
    api_key: int, version: int, correlation_id: int, client_id: str | None, *, flexible: bool
) -> bytes:
    """A request's header: version 2 if `flexible`, else 1."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    tags = b"\0" if flexible else b""
    return _START.pack(api_key, version, correlation_id, length) + name + tags


def response_header(correlation_id: int, *, flexible: bool) -> bytes:
    """A response's header: version 1 if `flexible`."""
    return _CORRELATION.pack(correlation_id) + (b"\0" if flexible else b"")
