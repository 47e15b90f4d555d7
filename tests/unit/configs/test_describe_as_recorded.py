"""Answers to config requests against those that a real Kafka 4.4 gave to the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.config_broker import ConfigBroker
from support.config_recording import Recording, differences
from support.config_scenario import TOPICS

GOLDEN = Path(__file__).parents[2] / "golden" / "configs.json.xz"


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording.read(GOLDEN)


def test_every_answer_is_kafkas(recording: Recording) -> None:
    assert len(recording.answers) > 600
    broker = ConfigBroker(recording.properties, TOPICS)
    assert differences(recording.answers, broker) == []


def test_a_difference_would_be_seen(recording: Recording) -> None:
    other = ConfigBroker({**recording.properties, "log.retention.hours": "49"}, TOPICS)
    found = differences(recording.answers, other)
    assert any("retention.ms" in line and "176400000" in line for line in found)
    assert any("log.retention.hours" in line for line in found)
