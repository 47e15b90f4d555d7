"""Every message of every version, written from fields and read back."""

from __future__ import annotations

import sys

import pytest

from cordwood.format.messages.codec import MessageCodec
from cordwood.model.pauses import running
from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol.apis import APIS
from cordwood.protocol.messages import (
    MalformedMessageError,
    UnknownMessageError,
    build,
    encode,
    read,
    read_request,
    request_codec,
    response_codec,
)


def _codecs() -> list[MessageCodec]:
    return [
        get(key, version)
        for key, api in APIS.items()
        for version in range(api.min_version, api.max_version + 1)
        for get in (request_codec, response_codec)
    ]


def test_every_message_at_its_defaults_is_read_as_it_was_written() -> None:
    codecs = _codecs()
    for codec in codecs:
        data = encode(codec, {})
        value = read(codec, data)
        assert encode(codec, value) == data, codec
        assert type(value).__name__ == codec.schema.name
    assert len(codecs) > 550


def test_a_field_that_a_version_lacks_is_left_out_of_it() -> None:
    fields = {
        "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": "r"}],
        "cluster_id": "c",
    }
    old = build(response_codec(3, 0), fields)
    new = build(response_codec(3, 12), fields)
    assert old.cluster_id is None
    assert new.cluster_id == "c"
    assert old.brokers[0].port == new.brokers[0].port == 9092


def test_tagged_fields_are_written_only_where_they_say_something() -> None:
    message = response_codec(18, 3)
    silent = encode(message, {"finalized_features_epoch": -1, "supported_features": []})
    assert silent == encode(message, {})
    loud = build(message, {"finalized_features_epoch": 7})
    assert loud.finalized_features_epoch == 7


def test_none_is_written_as_the_zero_uuid() -> None:
    codec = response_codec(3, 12)
    for topic_id in (None, ZERO_UUID):
        topic = build(codec, {"topics": [{"name": "t", "topic_id": topic_id}]}).topics[0]
        assert topic.topic_id == ZERO_UUID


def test_malformed_utf8_is_read_as_in_java_from_bytes_and_from_views() -> None:
    body = b"\x02\x03\xff\xfe\0\0\0\0\0"
    for data in (body, memoryview(body), bytearray(body)):
        assert read_request(3, 9, data).topics[0].name == "\ufffd\ufffd"


def test_records_are_views_of_the_request() -> None:
    values = {"topic_data": [{"name": "t", "partition_data": [{"index": 1, "records": b"abc"}]}]}
    body = bytearray(encode(request_codec(0, 9), values))
    records = read_request(0, 9, body).topic_data[0].partition_data[0].records
    assert records == b"abc"
    body[body.index(b"abc")] = ord("x")
    assert records == b"xbc"


def test_messages_are_equal_by_their_fields_and_can_be_written_again() -> None:
    body = encode(request_codec(3, 12), {"topics": [{"name": "a"}, {"name": "a"}, {"name": "b"}]})
    one, other = read_request(3, 12, body), read_request(3, 12, body)
    assert one == other
    assert one != 1
    assert len(set(one.topics)) == 2
    assert encode(request_codec(3, 12), one) == body
    assert "name='a'" in repr(one)


@pytest.mark.parametrize("version", [8, 12])
def test_equal_elements_of_a_large_request_are_read_once_where_work_pauses(version: int) -> None:
    topics = [{"name": f"topic-{number % 5}"} for number in range(4_000)]
    body = encode(request_codec(3, version), {"topics": topics})
    work = CountedPauses()
    with running(work):
        found = read_request(3, version, body, distinct="topics")
    assert [each.name for each in found.topics] == [f"topic-{number}" for number in range(5)]
    assert work.pauses >= 4_000 // 64
    assert len(read_request(3, version, body, distinct="topics").topics) == 4_000


def test_long_arrays_are_read_and_written_with_pauses() -> None:
    partitions = [{"partition_index": number, "committed_offset": 1} for number in range(1_000)]
    codec = request_codec(8, 7)
    work = CountedPauses()
    with running(work):
        body = encode(codec, {"topics": [{"name": "t", "partitions": partitions}]})
        written = work.pauses
        read(codec, body)
    assert written >= 1_000 // 16
    assert work.pauses - written >= 1_000 // 64


class CountedPauses:
    """Work that counts its pauses."""

    def __init__(self) -> None:
        self.pauses = 0

    def pause(self) -> None:
        self.pauses += 1

    def leave(self) -> None: ...

    def come_back(self) -> None: ...


def test_bytes_behind_a_request_are_passed_over_but_not_behind_other_messages() -> None:
    body = encode(request_codec(3, 12), {"topics": None})
    assert read_request(3, 12, body + b"\0\0").topics is None
    with pytest.raises(MalformedMessageError, match="ends at byte"):
        read(request_codec(3, 12), body + b"\0\0")


@pytest.mark.parametrize("size", range(3))
def test_a_request_that_is_cut_off_is_malformed(size: int) -> None:
    body = encode(request_codec(3, 12), {"topics": [{"name": "topic"}]})
    with pytest.raises(MalformedMessageError, match="MetadataRequest of version 12"):
        read_request(3, 12, body[:size])


def test_an_array_that_claims_to_be_huge_costs_nothing() -> None:
    before = sys.getallocatedblocks()
    with pytest.raises(MalformedMessageError):
        read_request(3, 1, b"\x7f\xff\xff\xff\0\x01a")
    assert sys.getallocatedblocks() - before < 10_000


def test_a_value_that_does_not_fit_its_field_is_named() -> None:
    with pytest.raises(MalformedMessageError, match="MetadataResponse of version 12"):
        encode(response_codec(3, 12), {"controller_id": "x"})


@pytest.mark.parametrize(("key", "version"), [(999, 0), (3, 99)])
def test_what_has_no_schema_is_unknown(key: int, version: int) -> None:
    with pytest.raises(UnknownMessageError):
        request_codec(key, version)


def test_null_for_an_array_that_must_not_be_null_is_malformed() -> None:
    with pytest.raises(MalformedMessageError, match="non-nullable field stateFilters"):
        read_request(66, 0, b"\0\x01\0")
    assert read_request(3, 9, b"\0\0\0\0\0").topics is None


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (3, 9, b"\xff\xff\xff\xff\x07\0\0\0\0"),
        (3, 9, b"\x80\x80\x80\x80\x08\0\0\0\0"),
        (3, 1, b"\x7f\xff\xff\xff\0\x01a"),
        (1, 12, b"\0" * 21 + b"\xff\xff\xff\xff\x0f" + b"\0" * 20),
        (0, 9, b"\0\0\1\0\0\0\1\xff\xff\xff\xff\x7f\0\0"),
        (3, 12, b"\0\0\0\xff\xff\xff\xff\x07"),
        (3, 9, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    ],
    ids=["compact", "compact wrapped", "legacy", "fetch", "nested", "tags", "endless length"],
)
def test_a_length_beyond_the_message_is_refused_before_room_is_made(
    key: int, version: int, body: bytes
) -> None:
    with pytest.raises(MalformedMessageError):
        read_request(key, version, body)
