from __future__ import annotations

import pytest

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.configs.table import (
    BROKER_NAME_OF_TOPIC_SETTING,
    LOG_BROKER_SETTINGS,
    TOPIC_SETTINGS,
    broker_settings,
    client_metrics_settings,
    dynamic_settings,
    group_settings,
    is_own,
)
from cordwood.configs.value import ConfigType, format_value
from cordwood.model.errors import ConfigError


def test_defaults_of_a_log_are_those_of_the_table() -> None:
    defaults = {
        name: setting.default
        for name, setting in TOPIC_SETTINGS.items()
        if setting.default is not None
    }
    assert LogConfig.from_values(defaults) == LogConfig()


def test_only_the_finest_form_of_a_setting_is_dynamic() -> None:
    assert set(BROKER_NAME_OF_TOPIC_SETTING.values()) <= {
        name for name, setting in LOG_BROKER_SETTINGS.items() if setting.is_dynamic
    }
    for coarse in (
        "log.retention.minutes",
        "log.retention.hours",
        "log.roll.hours",
        "log.roll.jitter.hours",
        "log.flush.scheduler.interval.ms",
    ):
        assert not LOG_BROKER_SETTINGS[coarse].is_dynamic


def test_internal_segment_bytes_comes_before_segment_bytes() -> None:
    values = {"segment.bytes": 1 << 20, "internal.segment.bytes": 100}
    assert LogConfig.from_values(values).segment_bytes == 100


def test_no_limit_is_minus_one_however_it_is_written() -> None:
    config = LogConfig.from_values({"retention.ms": -5, "retention.bytes": -7})
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)


def test_policies() -> None:
    both = LogConfig.from_values({"cleanup.policy": ("delete", "compact")})
    assert (both.compact, both.delete) == (True, True)
    neither = LogConfig.from_values({"cleanup.policy": ()})
    assert (neither.compact, neither.delete) == (False, False)


def test_a_compacted_log_rolls_in_time_for_its_longest_lag() -> None:
    compacted = LogConfig(
        cleanup_policy=frozenset({"compact"}), segment_ms=100, max_compaction_lag_ms=60
    )
    assert compacted.segment_ms_max == 60
    assert LogConfig(segment_ms=100, max_compaction_lag_ms=60).segment_ms_max == 100


def test_older_names_of_directories_and_node() -> None:
    config = BrokerConfig({"log.dir": ("/old",), "broker.id": 3})
    assert (config.log_dirs, config.node_id) == (("/old",), 3)
    config = BrokerConfig(
        {"log.dir": ("/old",), "log.dirs": ("/a", "/b"), "broker.id": 3, "node.id": 4}
    )
    assert (config.log_dirs, config.node_id) == (("/a", "/b"), 4)
    assert config.metadata_log_dir == "/a"
    assert BrokerConfig({"metadata.log.dir": "/m"}).metadata_log_dir == "/m"


def test_there_are_as_many_settings_as_in_kafka() -> None:
    tables = (broker_settings(), TOPIC_SETTINGS, group_settings(), client_metrics_settings())
    kafkas = [[name for name in keys if not is_own(name)] for keys in tables]
    counts = "brokers, topics, groups, client metrics of Kafka 4.4"
    assert [len(names) for names in kafkas] == [379, 38, 27, 3], counts
    assert len([name for name in dynamic_settings() if not is_own(name)]) == 382


def test_every_setting_is_explained() -> None:
    for keys in (dynamic_settings(), TOPIC_SETTINGS, group_settings(), client_metrics_settings()):
        for key in keys.values():
            assert key.doc.endswith("."), key.name


def test_defaults_are_valid() -> None:
    for keys in (dynamic_settings(), TOPIC_SETTINGS, group_settings(), client_metrics_settings()):
        for key in keys.values():
            if key.default is not None:
                assert key.parse(format_value(key.default)) == key.default, key.name


def test_only_passwords_are_kept_secret() -> None:
    secret = {name for name, key in broker_settings().items() if key.is_sensitive}
    assert "ssl.keystore.password" in secret
    assert all(broker_settings()[name].rule.kind is ConfigType.PASSWORD for name in secret)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("remote.log.manager.task.retry.jitter", "0.6", "Value must be no more than 0.5"),
        ("group.share.max.size", "1001", "Value must be no more than 1000"),
        ("ssl.client.auth", "x", "String must be one of: required, requested, none"),
        ("remote.log.storage.manager.class.name", "", "String must be non-empty"),
        ("group.coordinator.rebalance.protocols", "x", "String must be one of: consumer, classic"),
    ],
)
def test_a_value_is_refused_in_kafkas_words(name: str, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        broker_settings()[name].parse(text)
