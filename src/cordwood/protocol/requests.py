"""Requests as a broker reads them: the header and the body of a frame.

Source: org.apache.kafka.common.requests.RequestContext.parseRequest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cordwood.protocol.headers import RequestHeader, parse_start, skip_tags
from cordwood.protocol.messages import read_request, request_codec


class Readable(NamedTuple):
    """The versions of an API that `read_frame` reads, both inclusive.

    The body of a frame of more than `frame_bytes_max` bytes is left to `read_body`. Equal elements
    of the request's array `distinct` are read once.
    """

    min_version: int
    max_version: int
    frame_bytes_max: int
    distinct: str = ""


def read_frame(frame: memoryview, apis: Mapping[int, Readable]) -> tuple[RequestHeader, Any | None]:
    """The header of a request, and its body if it is one that `apis` has, by key, else None.

    Raises:
        MalformedMessageError: the frame is not such a request.
    """
    header = parse_start(frame)
    api = apis.get(header.api_key)
    if (
        api is None
        or not api.min_version <= header.api_version <= api.max_version
        or len(frame) > api.frame_bytes_max
    ):
        return header, None
    return header, read_body(header, frame, distinct=api.distinct)


def read_body(header: RequestHeader, frame: memoryview, *, distinct: str = "") -> Any:
    """The body of a request whose header has been read; arguments are those of `read_request`.

    Raises:
        MalformedMessageError: the bytes are not such a request.
        UnknownMessageError: there is no such API or version.
    """
    key, version, at = header.api_key, header.api_version, header.body_at
    if request_codec(key, version).is_flexible:
        at = skip_tags(frame, at)
    return read_request(key, version, frame, at, distinct=distinct)
