"""Answers that no message can hold, and what a request that fails as a whole is answered.

The expectations were observed on a Kafka 4.3 broker.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from cordwood.broker.handlers import served_apis
from cordwood.format.messages.codec import MessageCodec
from cordwood.format.messages.message import Message
from cordwood.protocol.data import DeleteTopicsResponse
from cordwood.protocol.messages import build, encode, request_codec, response_codec
from cordwood.serving.error_answers import error_answer
from cordwood.testing.broker import RunningBroker
from support.message_fields import nested
from support.wire import Wire

_LONG = "x" * 32_767
_UNEXPECTED = "The server experienced an unexpected error when processing the request."


def one_of_each(message: MessageCodec) -> dict[str, Any]:
    """A message with one element in each array, and no field at its default."""
    values: dict[str, Any] = {}
    for field in message.fields:
        value: Any = 1
        if field.kind == "struct":
            value = one_of_each(nested(message, field))
        elif field.kind == "string":
            value = field.attribute
        elif field.kind in {"bytes", "records"}:
            value = b"b"
        elif field.kind == "uuid":
            value = UUID(int=5)
        values[field.attribute] = [value] if field.is_array else value
    return values


def names_an_error(values: Any) -> bool:
    if isinstance(values, list):
        return any(names_an_error(each) for each in values)
    if not isinstance(values, Message):
        return False
    return any(
        (name in {"error_code", "partition_error_code"} and value == -1) or names_an_error(value)
        for name, value in values.items()
    )


def test_every_api_can_say_that_a_request_failed() -> None:
    for key, api in served_apis().items():
        for version in range(api.min_version, api.max_version + 1):
            request = build(request_codec(key, version), one_of_each(request_codec(key, version)))
            answer = error_answer(key, version, request, -1, "why")
            assert names_an_error(answer), (api.name, version)
            assert answer is not None
            assert "why" not in str(answer)
            encode(response_codec(key, version), answer)


def test_an_error_is_that_of_each_thing_that_was_asked_about() -> None:
    request = build(
        request_codec(20, 6), {"topics": [{"name": "a"}, {"name": None, "topic_id": UUID(int=3)}]}
    )
    result = DeleteTopicsResponse.DeletableTopicResult
    assert error_answer(20, 6, request, 44, "no") == DeleteTopicsResponse(
        responses=[
            result(name="a", topic_id=UUID(int=0), error_code=44, error_message="no"),
            result(name=None, topic_id=UUID(int=3), error_code=44, error_message="no"),
        ]
    )


def test_a_produce_request_that_wants_no_answer_gets_none() -> None:
    for acks, has_answer in ((0, False), (-1, True)):
        request = build(request_codec(0, 9), {"acks": acks, "topic_data": []})
        answer = error_answer(0, 9, request, -1, None)
        assert (answer is not None) is has_answer


@pytest.mark.parametrize("version", [4, 7], ids=["legacy", "compact"])
def test_a_text_that_is_too_long_for_its_field_makes_the_answer_an_unknown_error(
    wire: Wire, version: int
) -> None:
    answer = wire.ask(
        "create_topics",
        version,
        {
            "topics": [{"name": _LONG, "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 9,
        },
    )
    (topic,) = answer["topics"]
    assert (topic["name"], topic["error_code"], topic["error_message"]) == (
        _LONG,
        "unknown_server_error",
        None,
    )


@pytest.mark.parametrize(
    ("api", "values", "where"),
    [
        (
            "incremental_alter_configs",
            {
                "resources": [
                    {
                        "resource_type": 2,
                        "resource_name": _LONG,
                        "configs": [
                            {"name": "cleanup.policy", "config_operation": 0, "value": "delete"}
                        ],
                    }
                ]
            },
            ("responses", None),
        ),
        (
            "alter_client_quotas",
            {
                "entries": [
                    {
                        "entity": [{"entity_type": _LONG, "entity_name": "b"}],
                        "ops": [{"key": "producer_byte_rate", "value": 1.0}],
                    }
                ]
            },
            ("entries", _UNEXPECTED),
        ),
        (
            "describe_configs",
            {"resources": [{"resource_type": 2, "resource_name": _LONG}]},
            ("results", _UNEXPECTED),
        ),
    ],
    ids=["configs", "quotas", "describe configs"],
)
def test_long_names_that_an_error_would_repeat(
    wire: Wire, api: str, values: dict[str, Any], where: tuple[str, str | None]
) -> None:
    field, text = where
    (answer,) = wire.ask(api, 1, values)[field]
    assert (answer["error_code"], answer["error_message"]) == ("unknown_server_error", text)


def test_update_features_says_its_error_at_the_top(wire: Wire) -> None:
    answer = wire.ask(
        "update_features",
        1,
        {"feature_updates": [{"feature": _LONG, "max_version_level": 1, "upgrade_type": 1}]},
    )
    assert (answer["error_code"], answer["error_message"]) == ("unknown_server_error", None)


def test_a_request_that_fails_otherwise_leaves_the_connection_open(
    wire: Wire, running: RunningBroker
) -> None:
    with Wire(running.port) as same:
        for _ in range(2):
            same.ask(
                "describe_configs", 1, {"resources": [{"resource_type": 2, "resource_name": _LONG}]}
            )
        assert same.ask("metadata", 9, {"topics": []})["brokers"]
    assert wire.ask("metadata", 9, {"topics": []})["brokers"]
