"""Recorded answers of the group APIs, compared with those of a real Kafka 4.4."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.group_transcript import PROPERTIES, read_transcript, transcribe
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_4

GOLDEN = Path(__file__).parents[1] / "golden" / "groups.json.xz"
_STEPS_MIN = 600


@pytest.mark.kafka
def test_kafka_still_answers_as_was_recorded(kafka_4_4_jars: Path, tmp_path: Path) -> None:
    assert kafka_4_4_jars.is_dir()
    expected = read_transcript(GOLDEN)
    assert len(expected) >= _STEPS_MIN
    with RealKafka(tmp_path, properties=PROPERTIES, version=KAFKA_4_4) as kafka:
        kafka.start_without_cleaning()
        answered = transcribe(kafka.port)
        kafka.stop()
    assert [label for label, _ in answered] == [label for label, _ in expected]
    for (label, answer), (_, before) in zip(answered, expected, strict=True):
        assert answer == before, label
