"""The one table of settings: two places, and no fact in both."""

from __future__ import annotations

from importlib import resources

import pytest

from cordwood.configs.keys import (
    Dynamic,
    broker_keys,
    client_metrics_keys,
    dynamic_keys,
    group_keys,
    topic_keys,
)
from cordwood.configs.table import BROKER_SETTINGS, TOPIC_SETTINGS, is_own
from cordwood.configs.value import Kind, format_value
from cordwood.model.errors import ConfigError

ROWS = [
    line.split("\t")
    for line in resources.files("cordwood.configs")
    .joinpath("kafka_4_3.tsv")
    .read_text(encoding="utf-8")
    .splitlines()
    if not line.startswith("#")
]


def test_a_row_repeats_nothing_that_the_model_says() -> None:
    for table, name, kind, default, valid, *_, doc in ROWS:
        model = {"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS}.get(table, {})
        assert (kind == "=") == (name in model), name
        assert (kind == "=") == ((default, valid, doc) == ("", "", "")), name


def test_every_setting_of_the_model_has_its_place() -> None:
    missing = 'add a row with the type "=" to kafka_4_3.tsv'
    assert not BROKER_SETTINGS.keys() - broker_keys().keys(), missing
    assert not TOPIC_SETTINGS.keys() - topic_keys().keys(), missing
    assert TOPIC_SETTINGS.keys() == topic_keys().keys(), "a topic setting is not in the table"


def test_both_places_agree_on_what_can_change_while_a_broker_runs() -> None:
    for name, setting in BROKER_SETTINGS.items():
        assert setting.dynamic == (broker_keys()[name].dynamic is not Dynamic.NO), name


def test_there_are_as_many_settings_as_in_kafka() -> None:
    tables = (broker_keys(), topic_keys(), group_keys(), client_metrics_keys())
    kafkas = [[name for name in keys if not is_own(name)] for keys in tables]
    counts = "brokers, topics, groups, client metrics of Kafka 4.3"
    assert [len(names) for names in kafkas] == [360, 34, 17, 3], counts
    assert len([name for name in dynamic_keys() if not is_own(name)]) == 363


def test_every_setting_is_explained() -> None:
    for keys in (dynamic_keys(), topic_keys(), group_keys(), client_metrics_keys()):
        for key in keys.values():
            assert key.doc.endswith("."), key.name


def test_defaults_are_valid() -> None:
    for keys in (dynamic_keys(), topic_keys(), group_keys(), client_metrics_keys()):
        for key in keys.values():
            if key.default is not None:
                assert key.parse(format_value(key.default)) == key.default, key.name


def test_only_passwords_are_kept_secret() -> None:
    secret = {name for name, key in broker_keys().items() if key.is_sensitive}
    assert "ssl.keystore.password" in secret
    assert all(broker_keys()[name].rule.kind is Kind.PASSWORD for name in secret)


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
        broker_keys()[name].parse(text)
