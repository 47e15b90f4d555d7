"""Every message of every version, written from fields and read back."""

from __future__ import annotations

import importlib
import io
import pkgutil
import sys
from typing import Any
from uuid import UUID

import pytest
from kio.schema.index import api_key_map
from kio.serial import entity_writer

from cordwood.protocol.lengths import walk_of
from cordwood.protocol.messages import (
    MalformedMessageError,
    UnknownMessageError,
    build,
    encode,
    field,
    read,
    read_request,
    request_class,
    response_class,
)

# Their times cannot be 0 in kio.
_WITH_DATES = {38, 39, 40}


def _messages() -> list[tuple[Any, int]]:
    found: list[tuple[Any, int]] = []
    for key, name in sorted(api_key_map.items()):
        package = importlib.import_module(f"kio.schema.{name}")
        versions = sorted(int(module.name[1:]) for module in pkgutil.iter_modules(package.__path__))
        found += [(get(key, v), key) for v in versions for get in (request_class, response_class)]
    return found


def test_every_message_at_its_defaults_has_the_bytes_that_kio_writes() -> None:
    count = 0
    for message, key in _messages():
        if key in _WITH_DATES:
            continue
        ours = encode(message, {})
        theirs = io.BytesIO()
        entity_writer(message)(theirs, read(message, ours))
        assert ours == theirs.getvalue(), f"{message} version {message.__version__}"
        count += 1
    assert count > 550


def test_a_field_that_a_version_lacks_is_left_out_of_it() -> None:
    fields = {
        "brokers": [{"node_id": 1, "host": "h", "port": 9092, "rack": "r"}],
        "cluster_id": "c",
    }
    old = build(response_class(3, 0), fields)
    new = build(response_class(3, 12), fields)
    assert not hasattr(old, "cluster_id")
    assert new.cluster_id == "c"
    assert old.brokers[0].port == new.brokers[0].port == 9092


def test_tagged_fields_are_written_only_where_they_say_something() -> None:
    message = response_class(18, 3)
    silent = encode(message, {"finalized_features_epoch": -1, "supported_features": []})
    assert silent == encode(message, {})
    loud = build(message, {"finalized_features_epoch": 7})
    assert loud.finalized_features_epoch == 7


def test_the_zero_uuid_is_none() -> None:
    message = response_class(3, 12)
    for topic_id in (None, UUID(int=0)):
        topic = build(message, {"topics": [{"name": "t", "topic_id": topic_id}]}).topics[0]
        assert topic.topic_id is None


def test_spans_of_time_are_milliseconds() -> None:
    request = build(request_class(1, 12), {"max_wait": 500})
    assert field(request, "max_wait") == 500
    assert field(request, "no_such_field", 3) == 3


def test_bytes_behind_a_request_are_passed_over_but_not_behind_other_messages() -> None:
    body = encode(request_class(3, 12), {"topics": None})
    assert read_request(3, 12, body + b"\0\0").topics is None
    with pytest.raises(MalformedMessageError, match="ends at byte"):
        read(request_class(3, 12), body + b"\0\0")


@pytest.mark.parametrize("size", range(3))
def test_a_request_that_is_cut_off_is_malformed(size: int) -> None:
    body = encode(request_class(3, 12), {"topics": [{"name": "topic"}]})
    with pytest.raises(MalformedMessageError, match="MetadataRequest version 12"):
        read_request(3, 12, body[:size])


def test_an_array_that_claims_to_be_huge_costs_nothing() -> None:
    before = sys.getallocatedblocks()
    with pytest.raises(MalformedMessageError):
        read_request(3, 1, b"\x7f\xff\xff\xff\0\x01a")
    assert sys.getallocatedblocks() - before < 10_000


def test_a_value_that_does_not_fit_its_field_is_named() -> None:
    with pytest.raises(MalformedMessageError, match="MetadataResponse version 12"):
        encode(response_class(3, 12), {"controller_id": "x"})


@pytest.mark.parametrize(("key", "version"), [(999, 0), (3, 99)])
def test_what_kio_has_no_schema_of_is_unknown(key: int, version: int) -> None:
    with pytest.raises(UnknownMessageError):
        request_class(key, version)


def test_null_for_an_array_that_must_not_be_null_is_malformed() -> None:
    with pytest.raises(MalformedMessageError, match="non-nullable field state_filters"):
        read_request(66, 0, b"\0\x01\0")
    assert read_request(3, 9, b"\0\0\0\0\0").topics is None


def test_every_message_is_walked_to_its_end() -> None:
    for message, key in _messages():
        if key not in _WITH_DATES:
            data = encode(message, {})
            assert walk_of(message)(data, 0) == len(data), f"{message} {message.__version__}"


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
