"""The example of Spark Structured Streaming reads from the fixture."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cordwood.testing.broker import RunningBroker
from support.stock_clients.availability import nothing_missing
from support.stock_clients.program import spark_environment

pytestmark = pytest.mark.spark

EXAMPLE = Path(__file__).parents[2] / "examples" / "structured_streaming.py"
OPTIONS = (
    "--master local[1] --driver-memory 1g --conf spark.ui.enabled=false "
    "--conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 "
    "--conf spark.sql.shuffle.partitions=1"
)


def test_structured_streaming_counts_what_is_in_a_topic(
    cordwood_broker: RunningBroker, tmp_path: Path
) -> None:
    with nothing_missing():
        python, jars = spark_environment()
    producer = Producer({"bootstrap.servers": cordwood_broker.bootstrap_servers})
    for book in ("emma", "ulysses", "emma"):
        producer.produce("orders", b"1", key=book)
    assert producer.flush(30) == 0
    names = ",".join(str(jar) for jar in sorted(jars.glob("*.jar")))
    done = subprocess.run(
        [str(python), "-E", str(EXAMPLE), cordwood_broker.bootstrap_servers, "orders"],
        cwd=tmp_path,
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"{OPTIONS} --jars {names} pyspark-shell"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["emma 2", "ulysses 1"]
