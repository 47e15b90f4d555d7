"""Every expected text was printed by Kafka 4.3's own ConfigDef for the same name and value."""

from __future__ import annotations

import math

import pytest

from cordwood.configs.table import LOG_BROKER_SETTINGS, TOPIC_SETTINGS
from cordwood.configs.value import ConfigType, Value, ValueRule, format_value, parse_value
from cordwood.model.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "+5", 5),
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "٣", 3),
        ("retention.ms", "-1", -1),
        ("retention.bytes", "-9223372036854775808", -(2**63)),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", "compact,delete", ("compact", "delete")),
        ("cleanup.policy", "delete , compact", ("delete", "compact")),
        ("min.cleanable.dirty.ratio", "0.5d", 0.5),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("min.cleanable.dirty.ratio", ".5", 0.5),
        ("min.cleanable.dirty.ratio", "1.f", 1.0),
        ("min.cleanable.dirty.ratio", "0x1p-1", 0.5),
        ("preallocate", "TRUE", True),
        ("internal.segment.bytes", "10", 10),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
    ],
)
def test_values_that_kafka_takes(name: str, text: str, value: Value) -> None:
    assert TOPIC_SETTINGS[name].parse(text) == value


def test_not_a_number_is_a_ratio_to_kafka() -> None:
    ratio = TOPIC_SETTINGS["min.cleanable.dirty.ratio"].parse("NaN")
    assert isinstance(ratio, float)
    assert math.isnan(ratio)


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        ("retention.ms", "abc", "Not a number of type LONG"),
        ("retention.ms", "-2", "Value must be at least -1"),
        ("retention.ms", "", "Not a number of type LONG"),
        ("retention.ms", "1.0", "Not a number of type LONG"),
        ("retention.ms", "9223372036854775808", "Not a number of type LONG"),
        ("retention.ms", "5L", "Not a number of type LONG"),
        ("retention.ms", "1_000", "Not a number of type LONG"),
        ("retention.ms", "9" * 10_000, "Not a number of type LONG"),
        ("segment.bytes", "2147483648", "Not a number of type INT"),
        ("segment.bytes", "1048575", "Value must be at least 1048576"),
        ("segment.ms", "0", "Value must be at least 1"),
        ("cleanup.policy", "x", "String must be one of: compact, delete"),
        ("cleanup.policy", "Compact", "String must be one of: compact, delete"),
        ("min.cleanable.dirty.ratio", "1.1", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "-0.1", "Value must be at least 0"),
        ("min.cleanable.dirty.ratio", "Infinity", "Value must be no more than 1"),
        ("min.cleanable.dirty.ratio", "half", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "nan", "Not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", ".", "Not a number of type DOUBLE"),
        ("preallocate", "yes", "Expected value to be either true or false"),
        (
            "compression.type",
            "GZIP",
            "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
        ),
        ("compression.gzip.level", "0", "Value must be between 1 and 9 or equal to -1"),
        ("compression.zstd.level", "23", "Value must be no more than 22"),
    ],
)
def test_refusals_are_in_kafkas_words(name: str, text: str, refusal: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TOPIC_SETTINGS[name].parse(text)
    assert str(caught.value) == f"Invalid value {text} for configuration {name}: {refusal}"


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        ("cleanup.policy", "compact,", "Configuration 'cleanup.policy' values must not be empty."),
        (
            "cleanup.policy",
            "delete,x",
            (
                "Invalid value x for configuration cleanup.policy: "
                "String must be one of: compact, delete"
            ),
        ),
        (
            "min.cleanable.dirty.ratio",
            "123456789.125",
            (
                "Invalid value 1.23456789125E8 for configuration min.cleanable.dirty.ratio: "
                "Value must be no more than 1"
            ),
        ),
        (
            "min.cleanable.dirty.ratio",
            "0x1p99999",
            (
                "Invalid value Infinity for configuration min.cleanable.dirty.ratio: "
                "Value must be no more than 1"
            ),
        ),
        (
            "leader.replication.throttled.replicas",
            "0:1,x",
            (
                "Invalid value [0:1, x] for configuration leader.replication.throttled.replicas: "
                "leader.replication.throttled.replicas must be the literal '*' "
                "or a list of replicas "
                "in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."
            ),
        ),
    ],
)
def test_refusals_that_show_another_value(name: str, text: str, refusal: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TOPIC_SETTINGS[name].parse(text)
    assert str(caught.value) == refusal


@pytest.mark.parametrize(
    ("name", "text", "refusal"),
    [
        (
            "log.dirs",
            "",
            "Configuration 'log.dirs' must not be empty. Valid values include: any non-empty value",
        ),
        (
            "process.roles",
            "",
            (
                "Configuration 'process.roles' must not be empty. "
                "Valid values include: [broker, controller]"
            ),
        ),
        (
            "offsets.topic.replication.factor",
            "40000",
            (
                "Invalid value 40000 for configuration offsets.topic.replication.factor: "
                "Not a number of type SHORT"
            ),
        ),
        (
            "log.roll.hours",
            "0",
            "Invalid value 0 for configuration log.roll.hours: Value must be at least 1",
        ),
    ],
)
def test_refusals_of_broker_settings(name: str, text: str, refusal: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LOG_BROKER_SETTINGS[name].parse(text)
    assert str(caught.value) == refusal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (7, "7"),
        (("compact", "delete"), "compact,delete"),
        ((), ""),
        (0.5, "0.5"),
        (1.0, "1.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (1e7, "1.0E7"),
        (-1e-7, "-1.0E-7"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_values_are_printed_as_java_prints_them(value: Value, text: str) -> None:
    assert format_value(value) == text


def test_an_element_said_twice_counts_once() -> None:
    assert TOPIC_SETTINGS["cleanup.policy"].parse("compact,delete,compact") == ("compact", "delete")
    assert LOG_BROKER_SETTINGS["log.dirs"].parse("/a,/a") == ("/a",)


_RESET = ValueRule(kind=ConfigType.STRING, offset_reset=True)


@pytest.mark.parametrize(
    "text",
    ["latest", "earliest", "by_duration:PT1H", "by_duration:pt1h", "by_duration:P1DT1.5S",
     "by_duration:PT1H-5M", "by_duration:PT0S"],
)  # fmt: skip
def test_a_share_group_begins_at_an_end_or_some_time_ago(text: str) -> None:
    assert parse_value("share.auto.offset.reset", text, _RESET) == text


@pytest.mark.parametrize(
    "text",
    ["", "none", "LATEST", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT",
     "by_duration:P1DT", "by_duration:PT-1S", "BY_DURATION:PT1H"],
)  # fmt: skip
def test_a_share_group_begins_nowhere_else(text: str) -> None:
    with pytest.raises(ConfigError, match="must be either 'earliest', 'latest' or of the format"):
        parse_value("share.auto.offset.reset", text, _RESET)


def test_capitals_do_not_matter_where_kafka_says_so() -> None:
    rule = ValueRule(kind=ConfigType.STRING, choices=("DISABLED", "UPGRADE"), any_case=True)
    assert parse_value("group.consumer.migration.policy", "Upgrade", rule) == "Upgrade"
    with pytest.raises(ConfigError, match="case insensitive"):
        parse_value("group.consumer.migration.policy", "x", rule)
