"""A topic that was deleted and restored here is served by a real Kafka as one that never was."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from cordwood.surfaces.cli.main import app
from cordwood.testing.broker import RunningBroker
from support.in_process_engine import CompiledEngine
from support.kafka import RealKafka
from support.scrape import probed

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

RECORDS = 50


def served(data: Path, trash: Path) -> RunningBroker:
    settings = {"node.id": "1", "cordwood.trash.dir": str(trash), "cordwood.trash.ms": "86400000"}
    return RunningBroker(settings, log_dir=data, engine=CompiledEngine)


def topic_id(admin: AdminClient, topic: str) -> str:
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result().topic_id)


def produce(servers: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d" % number, key=b"%d" % (number % 7), partition=number % 2)
    assert producer.flush(60) == 0


def resumed(servers: str, topic: str, count: int) -> list[tuple[int | None, int | None]]:
    """The records that a group reads next."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    found: list[Message] = []
    while len(found) < count:
        message = consumer.poll(120)
        assert message is not None, f"only {len(found)} of {count} records came"
        assert message.error() is None, str(message.error())
        found.append(message)
    consumer.close()
    return sorted((each.partition(), each.offset()) for each in found)


def test_a_restored_topic_is_served_by_kafka(tmp_path: Path) -> None:
    data, trash = tmp_path / "data", tmp_path / "trash"
    data.mkdir()
    with served(data, trash) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        new = NewTopic("orders", 2, 1, config={"retention.ms": "-1", "segment.bytes": "1048576"})
        admin.create_topics([new])["orders"].result()
        produce(servers, "orders", RECORDS)
        known = topic_id(admin, "orders")
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "readers"})
        offsets = [TopicPartition("orders", 0, 20), TopicPartition("orders", 1, 10)]
        consumer.commit(offsets=offsets, asynchronous=False)
        consumer.close()
        admin.delete_topics(["orders"])["orders"].result()
        del admin
    with served(data, trash) as broker, probed(broker) as probe:
        broker.advance(minutes=2)
        restored = CliRunner().invoke(
            app, ["trash", "restore", "--url", probe.url, "--topic", "orders"]
        )
        assert restored.exit_code == 0, restored.output
        produce(broker.bootstrap_servers, "orders", 2)
    expected = [(0, n) for n in range(20, 26)] + [(1, n) for n in range(10, 26)]
    with RealKafka(tmp_path) as kafka:
        admin = kafka.start_without_cleaning()
        assert topic_id(admin, "orders") == known
        assert resumed(kafka.bootstrap_servers, "orders", len(expected)) == expected
        produce(kafka.bootstrap_servers, "orders", 2)
        assert kafka.errors_since_start == []
        del admin
        kafka.stop()
    with served(data, trash) as broker:
        expected += [(0, 26), (1, 26)]
        assert resumed(broker.bootstrap_servers, "orders", len(expected)) == sorted(expected)
