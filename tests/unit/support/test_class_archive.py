from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.class_archive import ASKED_BY, quick_start
from support.kafka_programs import kafka_home, kafka_jars, tool_class, tools_resource


def _quick_start() -> list[str]:
    log4j = tools_resource("log4j2-server.xml")
    return quick_start(kafka_jars(), kafka_home(), log4j, tool_class("configs"))


pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]


def run(class_path: str) -> subprocess.CompletedProcess[str]:
    """A tool of Kafka's that ends with an error where the archive cannot be used."""
    flags = _quick_start()
    command = ["java", "-XX:+UseSerialGC", "-Xshare:on", *flags, "-cp", class_path]
    tool = "org.apache.kafka.tools.TopicCommand"
    return subprocess.run(
        [*command, tool, "--version"], capture_output=True, text=True, check=False
    )


def test_kafka_starts_from_the_archive() -> None:
    done = run(f"{kafka_jars()}/*")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("4.3.0")


def test_the_archive_is_of_kafkas_jars_alone(tmp_path: Path) -> None:
    done = run(f"{tmp_path}:{kafka_jars()}/*")
    assert done.returncode != 0


def test_without_the_variable_kafka_starts_as_it_always_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ASKED_BY)
    assert _quick_start() == []
