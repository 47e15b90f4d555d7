"""Typed messages: made by keyword, written in every version, declared to type checkers."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import NamedTuple

import pytest

from cordwood.model.uuids import ZERO_UUID
from cordwood.protocol import data
from cordwood.protocol.data import FetchResponse, MetadataResponse
from cordwood.protocol.messages import MalformedMessageError, encode, parts_of, read, response_codec

ROOT = Path(__file__).resolve().parents[3]


class Range(NamedTuple):
    """Records that are not in memory."""

    size_bytes: int


def test_a_field_that_is_left_out_has_its_default() -> None:
    topic = MetadataResponse.MetadataResponseTopic(name="t")
    assert topic.name == "t"
    assert topic.error_code == 0
    assert topic.topic_id == ZERO_UUID
    assert topic.partitions == ()
    assert FetchResponse.PartitionData().diverging_epoch.epoch == -1
    assert FetchResponse.PartitionData().aborted_transactions is None


def test_a_field_that_no_version_has_is_refused() -> None:
    with pytest.raises(TypeError, match="no_field"):
        MetadataResponse(no_field=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        MetadataResponse().no_field = 1  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        data.NoMessage  # type: ignore[attr-defined]  # noqa: B018


def test_a_message_is_written_in_every_version_from_one_object() -> None:
    topic = MetadataResponse.MetadataResponseTopic(name="t", error_code=3, is_internal=True)
    response = MetadataResponse(topics=(topic,), cluster_id="c")
    for version in range(14):
        codec = response_codec(3, version)
        found = read(codec, encode(codec, response))
        assert [(each.name, each.error_code) for each in found.topics] == [("t", 3)]
        assert found.topics[0].is_internal is (version >= 1)
        assert found.cluster_id == ("c" if version >= 2 else None)


def test_null_is_empty_in_the_versions_that_cannot_say_it() -> None:
    topic = MetadataResponse.MetadataResponseTopic(name=None)
    for version, name in ((11, ""), (12, None)):
        codec = response_codec(3, version)
        assert read(codec, encode(codec, MetadataResponse(topics=[topic]))).topics[0].name == name
    broker = MetadataResponse.MetadataResponseBroker(host=None)  # type: ignore[arg-type]
    with pytest.raises(MalformedMessageError, match="non-nullable field host"):
        encode(response_codec(3, 12), MetadataResponse(brokers=[broker]))


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_records_that_are_not_in_memory_stand_between_the_bytes(version: int) -> None:
    def response(records: bytes | Range) -> FetchResponse:
        partition = FetchResponse.PartitionData(partition_index=1, records=records)
        other = FetchResponse.PartitionData(partition_index=2, records=b"xyz")
        topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition, other])
        return FetchResponse(responses=[topic])

    codec = response_codec(1, version)
    before, records, after = parts_of(codec, response(Range(5)))
    assert records == Range(5)
    assert before + b"abcde" + after == encode(codec, response(b"abcde"))


def test_the_stub_declares_the_messages_that_the_code_imports() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "message_schemas.py"))
    wanted = tool["declarations"](tool["SCHEMAS"].read_text(), tool["used_messages"]())
    assert tool["STUB"].read_text() == wanted, "run python tools/message_schemas.py"
