"""`cordwood erase` at a running broker, beside a producer and a consumer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner, Result

from cordwood.queries.http_client import EndpointError, ask
from cordwood.surfaces.cli.main import app
from cordwood.surfaces.http.endpoint import HttpEndpoint, listen
from cordwood.surfaces.http.observed import ObservedBroker
from cordwood.testing.broker import RunningBroker
from support.erasing import KEY, VALUE, kept_records, sweep
from support.in_process_engine import CompiledEngine

RECORDS = 3000
Read = list[tuple[int, bytes | None, bytes | None, int, Any]]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    log_dir = tmp_path / "data"
    log_dir.mkdir()
    with RunningBroker(log_dir=log_dir, engine=CompiledEngine) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers})
        config = {"internal.segment.bytes": "16384", "retention.ms": "-1"}
        for future in admin.create_topics([NewTopic("orders", 1, 1, config=config)]).values():
            future.result()
        fill(running)
        yield running


@pytest.fixture
def url(broker: RunningBroker) -> Iterator[str]:
    endpoint = HttpEndpoint(ObservedBroker(broker.node), listen(0))
    try:
        yield endpoint.url
    finally:
        endpoint.close()


def fill(broker: RunningBroker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "compression.type": "zstd"})
    for number in range(RECORDS):
        is_mine = number % 10 == 0
        producer.produce(
            "orders",
            VALUE if is_mine else b"value-%d" % number,
            KEY if is_mine else b"key-%d" % (number % 700),
            headers=[("trace", b"%d" % number)],
        )
        if number % 50 == 0:
            producer.flush()
    assert producer.flush(30) == 0


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner(env={"COLUMNS": "200", "USER": "ada"}).invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result


def reader(broker: RunningBroker) -> Consumer:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "max.partition.fetch.bytes": 40_000,
        "queued.max.messages.kbytes": 40,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition("orders", 0, 0)])
    return consumer


def rest_of(consumer: Consumer) -> list[bytes | None]:
    keys: list[bytes | None] = []
    while True:
        for message in consumer.consume(500, timeout=10):
            if message.error() is not None:
                assert "reached end of partition" in str(message.error()) or "No more" in str(
                    message.error()
                ), str(message.error())
                return keys
            keys.append(message.key())


def test_it_erases_beside_clients_and_the_report_is_checked_in_use(
    broker: RunningBroker, url: str, tmp_path: Path
) -> None:
    partition = broker.log_dir / "orders-0"
    before = kept_records(partition)
    consumer = reader(broker)
    first = [message.key() for message in consumer.consume(100, timeout=120)]
    assert len(first) == 100
    stop = threading.Event()
    appended = 0

    def produce() -> None:
        nonlocal appended
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
        while not stop.is_set():
            producer.produce("orders", b"meanwhile", b"other")
            appended += 1
            assert producer.flush(30) == 0

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        report = tmp_path / "report.json"
        named = ("--topic", "orders", "--key", KEY.decode())
        dry = run("erase", "--url", url, *named, "--dry-run")
        assert f"{RECORDS // 10} records would be erased" in dry.output
        done = run("erase", "--url", url, *named, "--report", report, "--reason", "No. 93")
        assert f"{RECORDS // 10} records erased and searched for again" in done.output
        assert "the check passed" in run("verify", "--erasure", report).output
        sound = json.loads(run("verify", broker.log_dir, "--json").stdout)
        assert sound["sound"] is True
    finally:
        stop.set()
        thread.join()
        keys = rest_of(consumer)
        consumer.close()
    assert sweep(broker.log_dir, KEY, VALUE) == []
    after = kept_records(partition)
    assert after[: len(before)] == before
    assert len(after) == len(before) + appended
    assert len([key for key in keys if key not in {KEY, b"other"}]) >= len(before) - 100
    document = json.loads(report.read_bytes())
    assert (document["operator"], document["reason"]) == ("ada", "No. 93")
    assert document["partitions"][0]["log_end_offset"] >= RECORDS
    assert "the check passed" in run("verify", "--erasure", report).output


def test_what_is_wrong_is_refused_with_what_to_do(broker: RunningBroker, url: str) -> None:
    key = ("--key", "k")
    wrong: tuple[tuple[tuple[object, ...], int, str], ...] = (
        (("--url", url, "--topic", "none", *key), 1, "--topic none: this broker has no such log"),
        (("--url", url, "--topic", "__consumer_offsets", *key), 1, "a coordinator has its records"),
        (("--url", url, "--topic", "orders", *key, "--trash", "/x"), 2, "--trash needs LOG_DIR"),
        (("--topic", "orders", *key), 2, "Give LOG_DIR, such as"),
        ((broker.log_dir, "--url", url, "--topic", "orders", *key), 2, "not both"),
        (("--url", url, "--topic", "orders", "--where", "true"), 1, "--where needs Spark"),
    )
    for arguments, code, says in wrong:
        assert says in run("erase", *arguments, code=code).output, arguments
    with pytest.raises(EndpointError, match="400: not the request of an erasure"):
        ask(url, "/erasures/start", "POST", body=b"{}")
    assert ask(url, "/erasures")["interrupted"] == []
    assert [each["state"] for each in ask(url, "/erasures")["erasures"]] == ["failed"]
