"""Options of a stream."""

from __future__ import annotations

import pytest

from cordwood.frames.streaming.stream_options import (
    EARLIEST,
    LATEST,
    StreamOptions,
    parse_stream_options,
    refuse_stream_options,
)
from cordwood.model.errors import ConfigError
from cordwood.model.topic_partition import TopicPartition


def test_the_defaults_are_those_of_sparks_kafka_source() -> None:
    assert parse_stream_options({"path": "/x"}) == StreamOptions()
    assert StreamOptions().start == LATEST
    assert StreamOptions().delay_ms == 900_000
    assert StreamOptions().fails_on_data_loss


def test_names_are_taken_in_whatever_case() -> None:
    found = parse_stream_options(
        {
            "STARTINGOFFSETS": "Earliest",
            "maxOffsetsPerTrigger": "100",
            "minoffsetspertrigger": "10",
            "maxBytesPerTrigger": "4096",
            "maxTriggerDelay": "30s",
            "failOnDataLoss": "FALSE",
            "startingTimestamp": "5",
        }
    )
    assert found == StreamOptions(
        start=EARLIEST,
        offsets_max=100,
        offsets_min=10,
        bytes_max=4096,
        delay_ms=30_000,
        fails_on_data_loss=False,
        first_ms=5,
    )


def test_a_stream_begins_at_an_offset_of_each_partition() -> None:
    found = parse_stream_options({"startingOffsets": '{"a": {"0": 7, "1": -2}, "b": {"0": -1}}'})
    assert found.starts == {
        TopicPartition("a", 0): 7,
        TopicPartition("a", 1): EARLIEST,
        TopicPartition("b", 0): LATEST,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "newest"),
        ("startingOffsets", "[1]"),
        ("startingOffsets", '{"a": 1}'),
        ("startingOffsets", '{"a": {"0": -3}}'),
        ("maxOffsetsPerTrigger", "0"),
        ("maxBytesPerTrigger", "1k"),
        ("minOffsetsPerTrigger", "-1"),
        ("maxTriggerDelay", "soon"),
        ("failOnDataLoss", "perhaps"),
        ("startingTimestamp", "-1"),
        ("startingOffset", "5"),
        ("endingOffset", "5"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_its_option(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"^option {name}: "):
        parse_stream_options({name: value})


def test_a_lower_limit_above_the_upper_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="option minOffsetsPerTrigger: 2 is more than"):
        parse_stream_options({"minOffsetsPerTrigger": "2", "maxOffsetsPerTrigger": "1"})


def test_what_is_read_once_has_no_option_of_a_stream() -> None:
    refuse_stream_options(["path", "startingTimestamp"])
    with pytest.raises(ConfigError, match=r"option failOnDataLoss: it is of spark.readStream"):
        refuse_stream_options(["FAILONDATALOSS"])
