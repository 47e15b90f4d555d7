"""SIGKILL while a topic is deleted to the trash, and while it is restored: nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from cordwood.surfaces.cli.main import app
from support.commits import commit
from support.kafka import poll_until
from support.served import ServedBroker

GROUP = "readers"
# Of the deletion: before its logs are noted as closed, and before the first is marked.
DELETIONS = {
    "closed": r"append_durably \.topic/cordwood-trash\.json",
    "marked": r"rename logs/orders-1 .*-delete",
    "moved": r"rename -delete .*trash/.*orders-1",
}
# Of the restoration: before a directory leaves the trash, before it has its name, and at the end.
RESTORATIONS = {
    "staged": r"rename trash/.*orders-1 .*-delete",
    "named": r"rename logs/orders-1\S+-delete \S+logs/orders-1$",
    "forgotten": r"remove_tree \.topic$",
}


def served(root: Path, kill: str | None = None) -> ServedBroker:
    return ServedBroker(
        root / "logs",
        {
            "cordwood.trash.dir": str(root / "trash"),
            "cordwood.trash.ms": "86400000",
            "group.initial.rebalance.delay.ms": "0",
            "log.initial.task.delay.ms": "0",
            "log.segment.delete.delay.ms": "1000",
        },
        module="support.serve_in_process",
        environment={} if kill is None else {"KILL_BEFORE": kill},
    )


@contextmanager
def admin_of(broker: ServedBroker) -> Iterator[AdminClient]:
    yield AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


def fill(broker: ServedBroker) -> None:
    """Ten records in each of two partitions; a group has read four of the second."""
    with admin_of(broker) as admin:
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(10):
        for partition in (0, 1):
            producer.produce("orders", f"{partition}: {number}", partition=partition)
    assert producer.flush(60) == 0
    commit(broker.bootstrap_servers, GROUP, [TopicPartition("orders", 1, 4)])


def delete(broker: ServedBroker) -> None:
    with admin_of(broker) as admin:
        admin.delete_topics(["orders"], request_timeout=60)["orders"].result()


def restore(broker: ServedBroker) -> int:
    return (
        CliRunner()
        .invoke(app, ["trash", "restore", "--url", broker.url, "--topic", "orders"])
        .exit_code
    )


def shown(broker: ServedBroker) -> list[str]:
    result = CliRunner().invoke(app, ["trash", "list", "--url", broker.url, "--json"])
    return [each["topic"] for each in json.loads(result.stdout)["removals"]]


def killed(broker: ServedBroker) -> None:
    poll_until(lambda: not broker.is_running, timeout_s=60, what="the kill")
    broker.kill()


def require_whole(broker: ServedBroker) -> None:
    """The group resumes where it was, and every record is there, once."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    found: list[tuple[int | None, int | None]] = []
    while len(found) < 16:
        message = consumer.poll(60)
        assert message is not None, found
        assert message.error() is None, str(message.error())
        found.append((message.partition(), message.offset()))
    assert sorted(found) == [(0, n) for n in range(10)] + [(1, n) for n in range(4, 10)]
    ends = [consumer.get_watermark_offsets(TopicPartition("orders", n), 30) for n in (0, 1)]
    assert ends == [(0, 10), (0, 10)]
    consumer.close()
    logs = sorted(path.name for path in broker.log_dir.glob("orders-*"))
    assert logs == ["orders-0", "orders-1"]
    poll_until(lambda: shown(broker) == [], timeout_s=60, what="an empty trash")


@pytest.mark.parametrize("kill", [pytest.param(kill, id=name) for name, kill in DELETIONS.items()])
def test_a_topic_whose_deletion_is_killed_is_restored(tmp_path: Path, kill: str) -> None:
    with served(tmp_path) as broker:
        fill(broker)
    broker = served(tmp_path, kill).start()
    try:
        delete(broker)
    except KafkaException:
        assert "trash/" not in kill, "the files are moved after the answer"
    killed(broker)
    with served(tmp_path) as broker:
        assert shown(broker) == ["orders"]
        assert restore(broker) == 0
        require_whole(broker)


@pytest.mark.parametrize(
    "kill", [pytest.param(kill, id=name) for name, kill in RESTORATIONS.items()]
)
def test_a_restoration_that_is_killed_is_finished(tmp_path: Path, kill: str) -> None:
    with served(tmp_path, kill) as broker:
        fill(broker)
        delete(broker)
        assert restore(broker) == 1
        killed(broker)
    with served(tmp_path) as broker:
        if kill != RESTORATIONS["forgotten"]:
            assert restore(broker) == 0
        require_whole(broker)
