from __future__ import annotations

import struct

import pytest

from cordwood.client.errors import DisconnectedError
from cordwood.client.wire import RequestFrame, Wire
from cordwood.protocol.data import ApiVersionsRequest, MetadataRequest
from cordwood.protocol.headers import API_VERSIONS
from cordwood.protocol.messages import encode, response_codec

METADATA = 3
VERSIONS = RequestFrame(API_VERSIONS, 3, ApiVersionsRequest())
# Version 9 is the first with tagged fields in the response's header.
BROKERS = RequestFrame(METADATA, 9, MetadataRequest(topics=None))


def frame(correlation_id: int, request: RequestFrame, **fields: object) -> bytes:
    body = encode(response_codec(request.api_key, request.version), fields)
    tags = b"" if request.api_key == API_VERSIONS else b"\0"
    data = struct.pack(">i", correlation_id) + tags + body
    return struct.pack(">i", len(data)) + data


def test_a_request_has_its_size_key_version_correlation_id_and_client() -> None:
    wire = Wire("me")
    for number in (1, 2):
        correlation_id, data = wire.send(VERSIONS)
        assert correlation_id == number
        size, key, version, sent, length = struct.unpack_from(">ihhih", data)
        assert (size, key, version, sent) == (len(data) - 4, API_VERSIONS, 3, number)
        assert data[14 : 14 + length + 1] == b"me\0"


def test_answers_are_read_however_their_bytes_arrive() -> None:
    data = frame(1, VERSIONS, error_code=42) + frame(2, BROKERS, cluster_id="c")
    for step in (1, 3, len(data)):
        wire = Wire("me")
        wire.send(VERSIONS)
        wire.send(BROKERS)
        answers = [
            answer
            for start in range(0, len(data), step)
            for answer in wire.receive(data[start : start + step])
        ]
        assert [answer.correlation_id for answer in answers] == [1, 2]
        assert answers[0].read().error_code == 42
        assert answers[1].read().cluster_id == "c"


def test_a_version_that_is_not_known_is_answered_in_version_0() -> None:
    wire = Wire("me")
    wire.send(RequestFrame(API_VERSIONS, 5, ApiVersionsRequest()))
    keys = [{"api_key": API_VERSIONS, "min_version": 0, "max_version": 4}]
    oldest = RequestFrame(API_VERSIONS, 0, ApiVersionsRequest())
    (answer,) = wire.receive(frame(1, oldest, error_code=35, api_keys=keys))
    (known,) = answer.read().api_keys
    assert (answer.read().error_code, known.max_version) == (35, 4)


def test_a_request_without_an_answer_is_not_waited_for() -> None:
    wire = Wire("me")
    wire.send(RequestFrame(METADATA, 9, MetadataRequest(topics=None), is_answered=False))
    wire.send(BROKERS)
    (answer,) = wire.receive(frame(2, BROKERS))
    assert answer.correlation_id == 2


def test_an_answer_to_another_request_is_a_broken_connection() -> None:
    wire = Wire("me")
    wire.send(BROKERS)
    with pytest.raises(DisconnectedError, match="the broker answered request 7, not 1"):
        wire.receive(frame(7, BROKERS))
    with pytest.raises(DisconnectedError, match="the broker answered request 1, not sent"):
        Wire("me").receive(frame(1, BROKERS))


@pytest.mark.parametrize("size", [-1, 0, 3, (1 << 30) + 1])
def test_a_size_that_no_answer_has_is_a_broken_connection(size: int) -> None:
    wire = Wire("me")
    wire.send(BROKERS)
    with pytest.raises(DisconnectedError, match=f"the broker announced an answer of {size} bytes"):
        wire.receive(struct.pack(">i", size))
