"""The client at a Kafka whose coordinators are not loaded yet: it waits, as Kafka's own does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.kafka import RealKafka, poll_until

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]


@pytest.mark.parametrize("lines", [1, 200_000])
def test_a_kafka_that_has_just_started_gets_every_record(tmp_path: Path, lines: int) -> None:
    properties = {"auto.create.topics.enable": "true"}
    with RealKafka(tmp_path / "kafka", properties=properties) as kafka:
        kafka.launch()
        poll_until(
            lambda: "Kafka Server started" in kafka.log_since_start,
            timeout_s=300,
            what="Kafka starts",
            interval_s=0.01,
        )
        at = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", "u1")
        given = b"".join(b"%d\n" % number for number in range(lines))
        assert cordwood("console-producer", *at, given=given) == (0, b"", b"")
        code, read, _ = cordwood(
            "console-consumer", *at, "--from-beginning", "--max-messages", str(lines)
        )
        assert (code, read) == (0, given)


def cordwood(*arguments: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
    """The exit code of the command, its output, and what it says of errors."""
    done = subprocess.run(
        [sys.executable, "-m", "cordwood", *arguments],
        input=given,
        capture_output=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
