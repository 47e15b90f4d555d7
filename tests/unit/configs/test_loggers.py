"""Levels of loggers by Kafka's names, and what they set here."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from cordwood.configs.loggers import LoggerLevels
from support.config_broker import ConfigBroker
from support.config_client import Change, entries

LOGGER = 8
KAFKA_NAME, PYTHON_NAME = "kafka.log.LogCleaner", "cordwood.cleanup.schedule.log_cleaner"


@pytest.fixture(autouse=True)
def _levels_as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("cordwood", PYTHON_NAME)]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def test_all_loggers_begin_with_the_level_of_root() -> None:
    assert set(LoggerLevels().all().values()) == {"INFO"}


def test_a_level_is_told_and_set_until_it_is_taken_away() -> None:
    broker = ConfigBroker({})
    (answer,) = broker.alter((LOGGER, "1", [Change(KAFKA_NAME, "DEBUG")]))
    assert answer["error"] == 0
    assert entries(broker.describe((LOGGER, "1"))[0])[KAFKA_NAME]["value"] == "DEBUG"
    assert logging.getLogger(PYTHON_NAME).level == logging.DEBUG
    broker.alter((LOGGER, "1", [Change(KAFKA_NAME, None, 1)]))
    assert entries(broker.describe((LOGGER, "1"))[0])[KAFKA_NAME]["value"] == "INFO"
    assert logging.getLogger(PYTHON_NAME).level == logging.NOTSET


def test_without_a_level_of_its_own_a_logger_has_its_parents() -> None:
    levels = LoggerLevels()
    levels.change("cordwood.broker", "WARN")
    levels.change("root", "ERROR")
    assert levels.all()["kafka.server.KafkaApis"] == "ERROR"
    logging.getLogger("cordwood.broker.some.part")
    assert levels.all()["cordwood.broker.some.part"] == "WARN"
    levels.change("cordwood.broker", None)


def test_nothing_is_set_where_it_is_only_tried() -> None:
    broker = ConfigBroker({})
    broker.alter((LOGGER, "1", [Change("root", "TRACE")]), validate_only=True)
    assert entries(broker.describe((LOGGER, "1"))[0])["root"]["value"] == "INFO"


def test_nothing_is_set_if_one_of_several_is_wrong() -> None:
    broker = ConfigBroker({})
    (answer,) = broker.alter((LOGGER, "1", [Change("root", "WARN"), Change("none", "WARN")]))
    assert answer["message"] == "Logger none does not exist!"
    assert entries(broker.describe((LOGGER, "1"))[0])["root"]["value"] == "INFO"
