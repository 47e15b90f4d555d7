from __future__ import annotations

from cordwood.configs.levels import (
    Level,
    Synonym,
    broker_name_of,
    given_at,
    merge,
    synonyms_of,
)
from cordwood.configs.table import TOPIC_SETTINGS

LEVELS = (
    (Level.DYNAMIC_BROKER, {"log.retention.ms": "1"}),
    (Level.DYNAMIC_DEFAULT, {"log.retention.ms": "2", "log.roll.ms": "5"}),
    (
        Level.STATIC_BROKER,
        {"log.retention.hours": "3", "log.roll.hours": "4", "num.partitions": "7"},
    ),
)


def test_a_level_hides_synonyms_at_lower_levels() -> None:
    assert merge(LEVELS) == {"log.retention.ms": "1", "log.roll.ms": "5", "num.partitions": "7"}
    assert merge(LEVELS[2:]) == dict(LEVELS[2][1])


def test_all_given_values_are_listed_with_the_strongest_first() -> None:
    assert list(given_at(LEVELS, "log.retention.ms")) == [
        Synonym("log.retention.ms", "1", Level.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "2", Level.DYNAMIC_DEFAULT),
        Synonym("log.retention.hours", "3", Level.STATIC_BROKER),
    ]
    assert not list(given_at(LEVELS, "log.dirs"))


def test_the_finest_unit_gives_the_topic_setting_its_value() -> None:
    setting = TOPIC_SETTINGS["retention.ms"]
    hours = broker_name_of(setting, {"log.retention.hours": 3, "log.retention.minutes": None})
    assert hours is not None
    assert (hours.name, hours.scaled(3)) == ("log.retention.hours", 3 * 3_600_000)
    minutes = broker_name_of(setting, {"log.retention.hours": 3, "log.retention.minutes": 1})
    assert minutes is not None
    assert minutes.scaled(1) == 60_000
    assert broker_name_of(setting, {}) is None


def test_the_interval_of_the_scheduler_has_no_synonym() -> None:
    scheduler = "log.flush.scheduler.interval.ms"
    assert synonyms_of("log.flush.interval.ms") == ("log.flush.interval.ms", scheduler)
    assert synonyms_of(scheduler) == (scheduler,)


def test_levels_have_the_codes_of_describe_configs() -> None:
    assert [(level.code, level.kafka_name) for level in Level] == [
        (1, "DYNAMIC_TOPIC_CONFIG"),
        (2, "DYNAMIC_BROKER_CONFIG"),
        (3, "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        (4, "STATIC_BROKER_CONFIG"),
        (5, "DEFAULT_CONFIG"),
        (6, "DYNAMIC_BROKER_LOGGER_CONFIG"),
        (7, "DYNAMIC_CLIENT_METRICS_CONFIG"),
        (8, "DYNAMIC_GROUP_CONFIG"),
    ]
    assert str(Level.DYNAMIC_BROKER) == "dynamic broker"
