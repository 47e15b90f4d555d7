"""Forms of one setting, levels over one another, and the order of Java's hash tables."""

from __future__ import annotations

import pytest

from cordwood.configs.broker_config import (
    parse_counts,
)
from cordwood.configs.levels import lay_over, synonyms_of
from cordwood.configs.table import broker_settings
from cordwood.configs.texts import java_order, key_of, parse_texts
from cordwood.configs.topic_values import topic_defaults
from cordwood.configs.value import ConfigType
from cordwood.model.errors import ConfigError


def test_the_finest_form_of_a_setting_comes_first() -> None:
    forms = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert all(synonyms_of(name) == forms for name in forms)
    assert synonyms_of("log.dirs") == ("log.dirs",)


def test_the_setting_of_a_listener_stands_for_that_of_all() -> None:
    assert synonyms_of("listener.name.a.max.connections")[1] == "max.connections"
    assert synonyms_of("listener.name.a.plain.sasl.jaas.config")[1] == "sasl.jaas.config"
    assert synonyms_of("listener.name.a.max.connections", of_listener=False) == (
        "listener.name.a.max.connections",
    )
    key = key_of("listener.name.a.ssl.key.password")
    assert key is not None
    assert key.rule.kind is ConfigType.PASSWORD
    assert key_of("no.such.key") is None


def test_what_is_above_hides_all_forms_beneath() -> None:
    texts = {"log.retention.hours": "1", "log.roll.hours": "2"}
    lay_over(texts, {"log.retention.ms": "5"})
    assert texts == {"log.retention.ms": "5", "log.roll.hours": "2"}


def test_the_first_wrong_value_in_kafkas_order_is_told() -> None:
    with pytest.raises(ConfigError, match=r"log\.segment\.bytes"):
        parse_texts({"log.retention.ms": "x", "log.segment.bytes": "x"}, broker_settings())


def test_coarser_forms_are_scaled_for_topics() -> None:
    values = parse_texts({"log.retention.minutes": "2", "log.roll.hours": "1"}, broker_settings())
    topics = topic_defaults(values)
    assert topics["retention.ms"] == 120_000
    assert topics["segment.ms"] == 3_600_000
    assert topics["flush.ms"] == 2**63 - 1
    assert "internal.segment.bytes" not in topics


def test_names_come_in_the_order_of_a_hash_table() -> None:
    assert java_order(["match", "metrics", "interval.ms"]) == ["interval.ms", "match", "metrics"]
    assert java_order([]) == []


def test_bounds_by_address() -> None:
    assert parse_counts("") == {}
    assert parse_counts("a:1, ::1:2") == {"a": 1, "::1": 2}
    with pytest.raises(ConfigError, match="For input string"):
        parse_counts("a:b")
    with pytest.raises(ConfigError, match="begin 0, end -1, length 1"):
        parse_counts("x")
