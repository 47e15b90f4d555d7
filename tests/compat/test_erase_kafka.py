"""A real Kafka starts on a directory after an erasure, and consumers read everything else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.erasing import KEY, VALUE, sweep
from support.kafka import RealKafka
from support.reading import offset_of, read_partition
from support.served import ServedBroker
from support.workload import Workload

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

SMALL = {"internal.segment.bytes": "16384"}
TOPICS = {
    "erased-plain": {**SMALL, "cleanup.policy": "delete", "retention.ms": "-1"},
    "erased-gzip": {**SMALL, "compression.type": "gzip", "retention.ms": "-1"},
    "erased-compact": {**SMALL, "cleanup.policy": "compact"},
    "erased-transactions": {**SMALL, "retention.ms": "-1"},
}
READ_SECONDS_MAX = 120
SECONDS_MAX = 300

Read = list[tuple[int, bytes | None, bytes | None, int]]


def consumed(servers: str, topic: str, isolation: str) -> Read:
    """Offset, key, value and time of every record of a partition, by a stock consumer."""
    found = read_partition({"bootstrap.servers": servers}, topic, isolation=isolation)
    assert found.start == 0
    return [
        (offset_of(each), each.key(), each.value(), each.timestamp()[1]) for each in found.messages
    ]


def cordwood(*arguments: str) -> str:
    """The output of a command, which has to succeed."""
    command = [sys.executable, "-m", "cordwood", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def without_key(read: Read) -> Read:
    return [record for record in read if record[1] != KEY]


def test_kafka_serves_the_rest_and_an_open_transaction_ends_whole(tmp_path: Path) -> None:
    with RealKafka(tmp_path / "kafka") as kafka:
        kafka.start_without_cleaning()
        work = Workload(kafka, seed=11)
        work.create(TOPICS)
        left_open = work.transactional("erased-left-open", transaction_timeout_ms=900_000)
        for topic in TOPICS:
            work.fill(topic, 150, unkeyed=0 if topic == "erased-compact" else 0.2)
            for _ in range(3):
                writer = work.producer()
                work.send(writer, topic, VALUE, key=KEY)
                work.flush(writer)
                work.fill(topic, 120)
        work.transactions("erased-transactions", 30)
        left_open.begin_transaction()
        for key, value in ((KEY, VALUE), (b"stays", b"in the transaction"), (KEY, VALUE)):
            work.send(left_open, "erased-transactions", value, key=key)
            work.flush(left_open)
        work.fill("erased-transactions", 20)
        before = {
            topic: consumed(kafka.bootstrap_servers, topic, "read_uncommitted") for topic in TOPICS
        }
        kafka.stop()
        (data,) = kafka.log_dirs
        report = tmp_path / "report.json"

        topics = [part for topic in TOPICS for part in ("--topic", topic)]
        options = ["--key", KEY.decode(), "--report", str(report), "--json"]
        document = json.loads(cordwood("erase", str(data), *topics, *options))

        assert document["status"] == "erased"
        assert sum(entry["erased"] for entry in document["partitions"]) == 14
        assert sweep(data, KEY, VALUE) == []
        assert "the check passed" in cordwood("verify", "--erasure", str(report))
        kafka.start_without_cleaning()
        for topic in TOPICS:
            after = consumed(kafka.bootstrap_servers, topic, "read_uncommitted")
            assert after == without_key(before[topic]), topic
        committed = consumed(kafka.bootstrap_servers, "erased-transactions", "read_committed")
        assert b"stays" not in {key for _, key, _, _ in committed}, "the transaction is open"
        left_open.commit_transaction(READ_SECONDS_MAX)
        work.fill("erased-transactions", 10)
        committed = consumed(kafka.bootstrap_servers, "erased-transactions", "read_committed")
        assert (b"stays", b"in the transaction") in {(key, value) for _, key, value, _ in committed}
        assert KEY not in {key for _, key, _, _ in committed}
        assert kafka.errors_since_start == []
        kafka.stop()
        assert "the check passed" in cordwood("verify", "--erasure", str(report), str(data))


def test_kafka_serves_the_rest_of_what_a_running_broker_erased(tmp_path: Path) -> None:
    served = ServedBroker(tmp_path / "data", {"node.id": "1"})
    served.start()
    try:
        servers = served.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        new = [NewTopic(topic, 1, 1, config=TOPICS[topic]) for topic in TOPICS]
        for future in admin.create_topics(new).values():
            future.result()
        producer = Producer({"bootstrap.servers": servers, "transactional.id": "eraser"})
        producer.init_transactions(READ_SECONDS_MAX)
        for number in range(400):
            producer.begin_transaction()
            for topic in TOPICS:
                is_mine = number % 9 == 0
                value = VALUE if is_mine else b"value-%d" % number
                producer.produce(topic, value, KEY if is_mine else b"key-%d" % number)
            producer.commit_transaction(READ_SECONDS_MAX)
        before = {topic: consumed(servers, topic, "read_committed") for topic in TOPICS}
        topics = [part for topic in TOPICS for part in ("--topic", topic)]
        by_address = ("erase", *topics[:4], "--bootstrap-server", servers)
        cordwood(*by_address, "--key", KEY.decode(), "--report", str(tmp_path / "one.json"))
        by_directory = ("erase", *topics[4:], "--log-dir", str(served.log_dir))
        cordwood(*by_directory, "--key", KEY.decode(), "--report", str(tmp_path / "two.json"))
        assert sweep(served.log_dir, KEY, VALUE) == []
    finally:
        served.stop()
    reports = [json.loads((tmp_path / f"{name}.json").read_bytes()) for name in ("one", "two")]
    erased = [entry["erased"] for report in reports for entry in report["partitions"]]
    assert erased == [45] * len(TOPICS)
    with RealKafka(tmp_path) as kafka:
        kafka.start_without_cleaning()
        for topic in TOPICS:
            after = consumed(kafka.bootstrap_servers, topic, "read_committed")
            assert after == without_key(before[topic]), topic
        assert kafka.errors_since_start == []
        kafka.stop()
