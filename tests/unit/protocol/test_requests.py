"""The header and the body of a request's frame."""

from __future__ import annotations

import pytest

from cordwood.protocol.messages import MalformedMessageError
from cordwood.protocol.requests import Readable, read_body, read_frame
from support.wire import request_body, request_frame

METADATA = 3


def frame_of(version: int) -> memoryview:
    """A request for the metadata of topic `t`, without the frame's length."""
    body = request_body(METADATA, version, {"topics": [{"name": "t"}]})
    return memoryview(request_frame(METADATA, version, 7, "client", body))[4:]


@pytest.mark.parametrize("version", [8, 9], ids=["header 1", "header 2"])
def test_header_and_body_are_read(version: int) -> None:
    frame = frame_of(version)
    header, request = read_frame(frame, {METADATA: Readable(8, 9, len(frame))})
    assert header[:4] == (METADATA, version, 7, "client")
    assert request is not None
    assert [topic.name for topic in request.topics] == ["t"]
    assert read_body(header, frame) == request


def test_the_body_of_an_api_a_version_or_a_size_that_is_not_given_is_not_read() -> None:
    frame = frame_of(9)
    cut = frame[:-1]  # would be refused
    size = len(cut)
    for apis in ({}, {METADATA: Readable(0, 8, size)}, {METADATA: Readable(10, 12, size)}):
        assert read_frame(cut, apis)[1] is None
    header, request = read_frame(cut, {METADATA: Readable(9, 9, size - 1)})
    assert (header.api_version, request) == (9, None)
    with pytest.raises(MalformedMessageError):
        read_frame(cut, {METADATA: Readable(9, 9, size)})
    with pytest.raises(MalformedMessageError):
        read_body(header, cut)
