"""Records a real Kafka 4.4's answers to config requests, for tests/golden."""

from __future__ import annotations

import tempfile
from pathlib import Path

from support.config_recording import Recording
from support.kafka import RealKafka
from support.kafka_programs import KAFKA_4_4

TARGET = Path(__file__).resolve().parent.parent / "tests" / "golden" / "configs.json.xz"

if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as root,
        RealKafka(Path(root), version=KAFKA_4_4) as kafka,
    ):
        Recording.of(kafka).write(TARGET)
