"""Brokers for tests that hold for any: the address of one, Kafka's or Cordwood's."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from cordwood.testing.kafka import RealKafka, free_port, poll_until
from cordwood.testing.stock_clients.neutral import Neutral

pytest.register_assert_rewrite("cordwood.testing.stock_clients.contract")

#: Both brokers read these. Retention is looked at each second, and groups do not wait for more.
STOCK_PROPERTIES: Mapping[str, str] = {
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
}


_SECONDS_MAX = 60


@pytest.fixture(
    scope="module",
    params=[
        "cordwood",
        pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.nightly]),
    ],
)
def stock_broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The bootstrap servers of a broker in a process of its own."""
    root = tmp_path_factory.mktemp("stock-broker")
    if request.param == "cordwood":
        with served(root, STOCK_PROPERTIES) as bootstrap_servers:
            yield bootstrap_servers
        return
    request.getfixturevalue("kafka_jars")
    with RealKafka(root, properties=STOCK_PROPERTIES) as kafka:
        kafka.start()
        yield kafka.bootstrap_servers


@contextmanager
def served(root: Path, properties: Mapping[str, str]) -> Iterator[str]:
    """The bootstrap servers of a `cordwood serve`, which must stop in order afterwards."""
    port, log = free_port(), root / "serve.log"
    command = [sys.executable, "-m", "cordwood", "serve", "--log-dir", str(root / "data")]
    options = ["--port", str(port), "--http-port", "-1"]
    overrides = [part for pair in properties.items() for part in ("--override", "=".join(pair))]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *options, *overrides], stdout=output, stderr=output)
    try:

        def started() -> bool:
            assert process.poll() is None, log.read_text()
            return "Kafka Server started" in log.read_text()

        poll_until(started, timeout_s=_SECONDS_MAX, what="cordwood serve starts")
        yield f"127.0.0.1:{port}"
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(_SECONDS_MAX) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()
    said = log.read_text()
    assert "Traceback" not in said, said


@pytest.fixture(scope="module")
def neutral(stock_broker: str) -> Neutral:
    """The client that sets the stage for others."""
    return Neutral(stock_broker)
