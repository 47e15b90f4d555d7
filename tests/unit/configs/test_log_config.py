"""Settings of topics as Kafka takes and refuses them: the scenarios of LogConfigTest."""

from __future__ import annotations

import pytest

from cordwood.configs.log_config import LogConfig
from cordwood.configs.sources import Sources, resolve_topic
from cordwood.configs.table import BROKER_NAME_OF_TOPIC_SETTING, LOG_BROKER_SETTINGS, TOPIC_SETTINGS
from cordwood.model.errors import ConfigError

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NO_BROKER_DEFAULT = {
    "internal.segment.bytes",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "remote.storage.enable",
    "errors.deadletterqueue.group.enable",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
}


def config_of(**given: str) -> LogConfig:
    """The effective settings with these of the broker; names with underscores for dots."""
    properties = {name.replace("_", "."): value for name, value in given.items()}
    resolved = resolve_topic(
        Sources(server_properties=properties, defaults=True), "topic", node_id=0
    )
    assert resolved is not None
    return resolved.config


def test_every_topic_setting_has_its_broker_setting() -> None:
    without = set(TOPIC_SETTINGS) - set(BROKER_NAME_OF_TOPIC_SETTING)
    assert without == NO_BROKER_DEFAULT, "NO_BROKER_DEFAULT lists what brokers give no default"
    assert set(BROKER_NAME_OF_TOPIC_SETTING.values()) <= set(LOG_BROKER_SETTINGS)


def test_hours_and_bytes_of_the_broker_are_those_of_topics() -> None:
    config = config_of(
        log_roll_hours="2",
        log_roll_jitter_hours="2",
        log_retention_hours="960",
        log_local_retention_ms="2592000000",
        log_local_retention_bytes="4294967296",
    )
    assert config.segment_ms == 2 * HOUR_MS == 7_200_000
    assert config.segment_jitter_ms == 2 * HOUR_MS
    assert config.retention_ms == 40 * DAY_MS == 3_456_000_000
    assert config.local_retention_ms == 30 * DAY_MS
    assert config.local_retention_bytes == 4 << 30


INVALID: dict[str, list[str]] = {
    "unclean.leader.election.enable": ["not a boolean"],
    "retention.bytes": ["not_a_number"],
    "retention.ms": ["not_a_number"],
    "cleanup.policy": ["true", "foobar"],
    "min.cleanable.dirty.ratio": ["not_a_number", "-0.1", "1.2"],
    "min.insync.replicas": ["not_a_number", "0", "-1"],
    "remote.storage.enable": ["not_a_boolean"],
    "local.retention.ms": ["not_a_number", "-3"],
    "local.retention.bytes": ["not_a_number", "-3"],
    "remote.copy.lag.ms": ["not_a_number", "-2"],
    "remote.copy.lag.bytes": ["not_a_number", "-2"],
    "compression.gzip.level": ["not_a_number", "-2"],
    "compression.lz4.level": ["not_a_number", "-1"],
    "compression.zstd.level": ["not_a_number", "-0.1"],
    "remote.log.copy.disable": ["not_a_number", "remove", "0"],
    "remote.log.delete.on.disable": ["not_a_number", "remove", "0"],
    "internal.segment.bytes": ["not_a_number"],
    "cordwood.retention.topic.bytes": ["not_a_number", "-2"],
    "cordwood.retention.groups": [],
    "cordwood.retention.groups.max.ms": ["not_a_number", "-2"],
    "cordwood.retention.groups.max.bytes": ["not_a_number", "-2"],
    "cordwood.compaction.strategy.header": [],  # any text
    "cordwood.record.ttl.header": [],  # any text
}


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name in TOPIC_SETTINGS for text in INVALID.get(name, ["not_a_number", "-1"])],
)
def test_what_kafka_refuses_of_each_setting(name: str, text: str) -> None:
    with pytest.raises(ConfigError):
        TOPIC_SETTINGS[name].parse(text)


def test_a_shortest_compaction_lag_of_200_with_a_longest_of_100_is_refused() -> None:
    lags = {"min.compaction.lag.ms": "200", "max.compaction.lag.ms": "100"}
    sources = Sources(topic_set={"topic": lags})
    with pytest.raises(
        ConfigError,
        match=r"min\.compaction\.lag\.ms \(200\) > max\.compaction\.lag\.ms \(100\)",
    ):
        resolve_topic(sources, "topic", node_id=0)


throttled = pytest.mark.parametrize(
    "name", ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"]
)


@throttled
@pytest.mark.parametrize(
    "text",
    [
        "*",
        "* ",
        "",
        " ",
        "100:10",
        "100:10,12:10",
        "100:10,12:10,15:1",
        "100:10,12:10,15:1  ",
        "100:0,",
    ],
)
def test_replicas_that_may_be_throttled(name: str, text: str) -> None:
    replicas = TOPIC_SETTINGS[name].parse(text)
    assert isinstance(replicas, tuple)
    assert ",".join(replicas) == text.strip()


@throttled
@pytest.mark.parametrize(
    "text",
    [
        "100",
        "100:",
        "100:0,10",
        "100:0,10:",
        "100:0,10:   ",
        "100 :0,10:   ",
        "100: 0,10:   ",
        "100:0,10 :   ",
        "*,100:10",
        "* ,100:10",
    ],
)
def test_replicas_that_are_malformed(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match="must be the literal"):
        TOPIC_SETTINGS[name].parse(text)


@pytest.mark.parametrize("name", ["remote.log.copy.disable", "remote.log.delete.on.disable"])
@pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False)])
def test_switches_of_remote_storage(name: str, text: str, value: object) -> None:
    assert TOPIC_SETTINGS[name].parse(text) is value
