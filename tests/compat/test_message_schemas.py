"""The modules of `cordwood.protocol.apis` are those that Kafka's own definitions give."""

from __future__ import annotations

import runpy
from pathlib import Path

from support.kafka import kafka_jars

ROOT = Path(__file__).resolve().parents[2]
APIS = ROOT / "src/cordwood/protocol/apis"


def test_every_module_is_as_the_definitions_in_kafkas_jar_say() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "message_schemas.py"))
    wanted = tool["files"](kafka_jars() / "kafka-clients-4.3.0.jar")
    assert len(wanted) > 80
    assert sorted(wanted) == sorted(path.name for path in APIS.glob("*.py"))
    for name, text in wanted.items():
        assert (APIS / name).read_text() == text, f"run python tools/message_schemas.py: {name}"
