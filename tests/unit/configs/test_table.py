from __future__ import annotations

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.configs.table import (
    BROKER_NAME_OF_TOPIC_SETTING,
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSetting,
    TopicSetting,
)
from cordwood.configs.value import format_value

ALL_SETTINGS: tuple[TopicSetting | BrokerSetting, ...] = (
    *TOPIC_SETTINGS.values(),
    *BROKER_SETTINGS.values(),
)


def test_defaults_of_a_log_are_those_of_the_table() -> None:
    defaults = {
        name: setting.default
        for name, setting in TOPIC_SETTINGS.items()
        if setting.default is not None
    }
    assert LogConfig.from_values(defaults) == LogConfig()


def test_defaults_of_a_broker_are_those_of_the_table() -> None:
    defaults = {
        name: setting.default
        for name, setting in BROKER_SETTINGS.items()
        if setting.default is not None
    }
    assert BrokerConfig.from_values(defaults) == BrokerConfig()


def test_every_default_is_one_that_its_own_rule_takes() -> None:
    for setting in ALL_SETTINGS:
        if setting.default is not None:
            assert setting.parse(format_value(setting.default)) == setting.default


def test_every_setting_has_a_line_of_text() -> None:
    for setting in ALL_SETTINGS:
        assert setting.doc.endswith("."), setting.name
        assert "\n" not in setting.doc


def test_only_the_finest_form_of_a_setting_is_dynamic() -> None:
    assert set(BROKER_NAME_OF_TOPIC_SETTING.values()) <= {
        name for name, setting in BROKER_SETTINGS.items() if setting.dynamic
    }
    for coarse in (
        "log.retention.minutes",
        "log.retention.hours",
        "log.roll.hours",
        "log.roll.jitter.hours",
        "log.flush.scheduler.interval.ms",
    ):
        assert not BROKER_SETTINGS[coarse].dynamic


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
    config = BrokerConfig.from_values({"log.dir": ("/old",), "broker.id": 3})
    assert (config.log_dirs, config.node_id) == (("/old",), 3)
    config = BrokerConfig.from_values(
        {"log.dir": ("/old",), "log.dirs": ("/a", "/b"), "broker.id": 3, "node.id": 4}
    )
    assert (config.log_dirs, config.node_id) == (("/a", "/b"), 4)
    assert config.metadata_dir == "/a"
    assert BrokerConfig(metadata_log_dir="/m").metadata_dir == "/m"
