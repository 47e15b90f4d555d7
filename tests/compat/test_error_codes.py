"""The table of error codes against that of Kafka's own classes."""

from __future__ import annotations

import subprocess

import pytest

from cordwood.client.retry import INVALID_METADATA
from cordwood.model.error_codes import ErrorCode
from support.kafka_programs import KAFKA_4_4, kafka_jars, tools_resource

pytestmark = pytest.mark.kafka

_QUICK = ("-Xmx128m", "-XX:TieredStopAtLevel=1")


@pytest.mark.usefixtures("kafka_4_4_jars")
def test_every_error_code_is_as_in_kafka() -> None:
    program = tools_resource("ErrorTable.java")
    done = subprocess.run(
        ["java", *_QUICK, "-cp", f"{kafka_jars(KAFKA_4_4)}/*", str(program)],
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    in_kafka = [line.split("\t") for line in done.stdout.splitlines()]
    known = [
        [
            str(error.value),
            error.name,
            error.java_class if error.exception else "null",
            str(error.is_retriable).lower(),
            str(error in INVALID_METADATA).lower(),
            error.message or "null",
        ]
        for error in sorted(ErrorCode)
    ]
    assert known == in_kafka
