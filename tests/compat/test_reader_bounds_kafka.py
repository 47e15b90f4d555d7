"""Requests at the bounds of generated readers, which Kafka 4.4 and Cordwood read alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.testing.broker import RunningBroker
from support.bounded_frames import bounded_frames
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_4
from support.length_fuzz import send


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_4_4_jars")
def test_the_same_requests_are_answered_and_the_same_end_the_connection(tmp_path: Path) -> None:
    frames = bounded_frames()
    with RealKafka(tmp_path / "kafka", version=KAFKA_4_4) as kafka:
        kafka.start_without_cleaning()
        theirs = {name: send(kafka.port, frame) for name, frame, _ in frames}
    with RunningBroker(log_dir=tmp_path / "cordwood") as running:
        ours = {name: send(running.port, frame) for name, frame, _ in frames}
    assert ours == theirs
    assert theirs == {name: "answered" if within else "closed" for name, _, within in frames}
