"""The header and the body of a request's frame."""

from __future__ import annotations

import pytest

from cordwood.protocol.headers import parse_start
from cordwood.protocol.messages import MalformedMessageError, UnknownMessageError
from cordwood.protocol.requests import RequestReader
from support.wire import request_body, request_frame

METADATA = 3


def frame_of(version: int) -> memoryview:
    """A request for the metadata of topic `t`, without the frame's length."""
    body = request_body(METADATA, version, {"topics": [{"name": "t"}]})
    return memoryview(request_frame(METADATA, version, 7, "client", body))[4:]


@pytest.mark.parametrize("version", [8, 9], ids=["header 1", "header 2"])
def test_header_and_body_are_read(version: int) -> None:
    frame = frame_of(version)
    header = parse_start(frame)
    assert header[:4] == (METADATA, version, 7, "client")
    reader = RequestReader(METADATA, version)
    assert reader.is_flexible == (version == 9)
    request = reader.read(frame, header.body_at)
    assert [topic.name for topic in request.topics] == ["t"]


def test_a_body_that_is_cut_off_is_refused() -> None:
    frame = frame_of(9)[:-1]
    with pytest.raises(MalformedMessageError):
        RequestReader(METADATA, 9).read(frame, parse_start(frame).body_at)


def test_a_version_that_there_is_not_has_no_reader() -> None:
    with pytest.raises(UnknownMessageError):
        RequestReader(METADATA, 99)
