"""Records a real Kafka's answers to config requests, for tests/golden."""

from __future__ import annotations

import tempfile
from pathlib import Path

from support.config_recording import Recording
from support.kafka import RealKafka

TARGET = Path(__file__).resolve().parent.parent / "tests" / "golden" / "configs.json.xz"

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as root, RealKafka(Path(root)) as kafka:
        Recording.of(kafka).write(TARGET)
