"""Requests at the bounds of Kafka's generated readers, and beyond them.

Role: the bounds of arrays and of tagged fields, asked of a running broker, Cordwood's or Kafka's.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cordwood.format.messages.primitives import (
    ARRAY_ELEMENTS_MAX,
    TAGGED_FIELDS_MAX,
    write_uvarint,
)
from cordwood.protocol.headers import request_header
from support.wire import request_body, request_frame

_FETCH, _METADATA, _LIST_GROUPS = 1, 3, 16
_EMPTY_TAG = b"\x63\0"


class BoundedFrame(NamedTuple):
    """A request with its length before it, and whether it keeps to the bounds."""

    name: str
    frame: bytes
    is_within: bool


def bounded_frames() -> list[BoundedFrame]:
    """Requests that cost little where they are read."""
    frames = []
    for count in (ARRAY_ELEMENTS_MAX, ARRAY_ELEMENTS_MAX + 1):
        is_within = count <= ARRAY_ELEMENTS_MAX
        frames += [
            BoundedFrame(f"an array of {count}", _forgotten(count), is_within),
            BoundedFrame(f"a compact array of {count}", _states(count), is_within),
        ]
    for count in (TAGGED_FIELDS_MAX, TAGGED_FIELDS_MAX + 1):
        tags = _uvarint(count) + _EMPTY_TAG * count
        frames += _with_tags(f"{count} tagged fields", tags, is_within=count <= TAGGED_FIELDS_MAX)
    frames += _with_tags("-1 tagged fields", b"\xff\xff\xff\xff\x0f", is_within=False)
    frames += _with_tags("more tagged fields than bytes", _uvarint(9_000), is_within=False)
    return frames


def _with_tags(name: str, tags: bytes, *, is_within: bool) -> list[BoundedFrame]:
    """A request that ends with those tagged fields, and one that has them in its header."""
    body = request_body(_METADATA, 9, {"topics": []})
    start = request_header(_METADATA, 9, 1, "c", flexible=False)
    return [
        BoundedFrame(name, request_frame(_METADATA, 9, 1, "c", body[:-1] + tags), is_within),
        BoundedFrame(f"{name} in the header", _framed(start + tags + body), is_within),
    ]


def _forgotten(count: int) -> bytes:
    """A Fetch request that names so many partitions to forget."""
    body = request_body(_FETCH, 11, {"forgotten_topics_data": [{"topic": "t"}]})
    at = body.rindex(b"\0\1t\0\0\0\0") + 3
    body = body[:at] + struct.pack(">i", count) + bytes(4 * count) + body[at + 4 :]
    return request_frame(_FETCH, 11, 1, "c", body)


def _states(count: int) -> bytes:
    """A ListGroups request for groups in so many states, none of which has a name."""
    body = _uvarint(count + 1) + b"\1" * count + b"\0"
    return request_frame(_LIST_GROUPS, 4, 1, "c", body)


def _framed(request: bytes) -> bytes:
    return struct.pack(">i", len(request)) + request


def _uvarint(value: int) -> bytes:
    out = bytearray()
    write_uvarint(out, value)
    return bytes(out)
