"""The example of Faust runs against the fixture, in the environment that its first lines name."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from cordwood.testing.broker import RunningBroker
from support.built_programs import fetch
from support.stock_clients.availability import nothing_missing

EXAMPLE = Path(__file__).parents[2] / "examples" / "faust_app.py"
UV = [sys.executable, "-m", "uv"]
_SECONDS_MAX = 120
_STOP_SECONDS_MAX = 60


@pytest.fixture(scope="module", autouse=True)
def environment() -> None:
    """Fetches the program's dependencies, once."""
    with nothing_missing():
        fetch([*UV, "sync", "-q", "--script", str(EXAMPLE)], EXAMPLE.parent)


@contextmanager
def running(servers: str, directory: Path) -> Iterator[None]:
    """The program, as a user starts it; what it printed is shown if it did not end well."""
    log = directory / "faust.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*UV, "run", "-q", "--offline", "--script", str(EXAMPLE), "worker", "-l", "info"],
            cwd=directory,
            env={**os.environ, "KAFKA_BOOTSTRAP_SERVERS": servers},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        process.terminate()
        assert process.wait(_STOP_SECONDS_MAX) == 0, log.read_text()
    finally:
        print(log.read_text())
        process.kill()
        process.wait()


def order(servers: str, *books: str) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for book in books:
        producer.produce("orders", b"1", key=book)
    assert producer.flush(30) == 0


def next_counts(consumer: Consumer, count: int) -> list[tuple[str, str]]:
    found = consumer.consume(count, timeout=_SECONDS_MAX)
    assert len(found) == count, f"only {len(found)} of {count} in {_SECONDS_MAX} s"
    return [(str(each.key(), "utf-8"), str(each.value(), "utf-8")) for each in found]


def test_faust_counts_orders_and_has_its_table_again_from_a_compacted_changelog(
    cordwood_broker: RunningBroker, tmp_path: Path
) -> None:
    servers = cordwood_broker.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics(
        [NewTopic(name, 1, 1) for name in ("orders", "counts")]
    ).values():
        made.result()
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["counts"])
    order(servers, "emma", "ulysses", "emma")
    with running(servers, tmp_path):
        assert next_counts(consumer, 3) == [("emma", "1"), ("ulysses", "1"), ("emma", "2")]
    (changelog,) = [name for name in admin.list_topics().topics if name.endswith("changelog")]
    resource = ConfigResource(ResourceType.TOPIC, changelog)
    (described,) = [each.result() for each in admin.describe_configs([resource]).values()]
    assert "compact" in described["cleanup.policy"].value
    order(servers, "emma")
    with running(servers, tmp_path):
        assert next_counts(consumer, 1) == [("emma", "3")]
    consumer.close()
