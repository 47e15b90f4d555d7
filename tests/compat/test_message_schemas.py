"""The schemas of `cordwood.protocol` are those that Kafka's own definitions give."""

from __future__ import annotations

import runpy
from pathlib import Path

from support.kafka_programs import kafka_jars

ROOT = Path(__file__).resolve().parents[2]


def test_the_schemas_are_as_the_definitions_in_kafkas_jar_say() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "message_schemas.py"))
    wanted = tool["text_of"](kafka_jars() / "kafka-clients-4.3.0.jar")
    assert tool["SCHEMAS"].read_text() == wanted, "run python tools/message_schemas.py"
