"""Positions of a stream as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cordwood.frames.streaming.positions import TopicPosition, build_positions, parse_positions
from cordwood.model.errors import CorruptError


def test_positions_are_those_of_sparks_kafka_source_with_topic_ids() -> None:
    positions = {
        "b": TopicPosition(offsets={10: 3, 9: 4}),
        "a": TopicPosition(offsets={0: 1}, topic_id="b3JkZXJzAAAAAAAAAAAAAQ"),
    }
    text = json.dumps(build_positions(positions))
    assert text == '{"a": {"0": 1, "topicId": "b3JkZXJzAAAAAAAAAAAAAQ"}, "b": {"9": 4, "10": 3}}'
    assert parse_positions(json.loads(text)) == positions
    assert json.dumps(build_positions(parse_positions(json.loads(text)))) == text


@pytest.mark.parametrize("document", [{"a": 5}, {"a": {"x": 1}}, {"a": {"0": "x"}}, [1]])
def test_what_is_no_position_is_refused(document: Any) -> None:
    with pytest.raises(CorruptError, match="a checkpoint of another source"):
        parse_positions(document)


def test_a_topic_with_another_id_is_another_one() -> None:
    known = TopicPosition(offsets={}, topic_id="A")
    assert known.is_of("A")
    assert known.is_of(None)
    assert not known.is_of("B")
    assert TopicPosition(offsets={}).is_of("B")
