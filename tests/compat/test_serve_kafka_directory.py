"""One directory, a real Kafka and `cordwood serve` by turns: nothing is missing to either."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from typer.testing import CliRunner

from cordwood.format.file_names import META_PROPERTIES, RUNTIME_FILE
from cordwood.format.meta_properties import parse_meta_properties
from cordwood.metadata.releases import RELEASES
from cordwood.model.documents import to_document
from cordwood.model.uuids import uuid_text
from cordwood.queries.identity import NodeIdentity
from cordwood.surfaces.cli.main import app
from support.clean import run_clean
from support.commits import commit
from support.kafka import CLUSTER_ID, RealKafka
from support.kafka_programs import KAFKA_4_4, KAFKA_VERSIONS, kafka_tool
from support.ports import free_port
from support.reading import read_committed
from support.served import ServedBroker

pytestmark = pytest.mark.kafka

#: Of each level of metadata.version that both know, by its name; two of them for every change.
LEVELS = [
    name if name in {"4.3-IV0", "4.4-IV2"} else pytest.param(name, marks=pytest.mark.nightly)
    for name in RELEASES
]

Rows = list[tuple[int, bytes | None, bytes | None]]


class Client:
    """Questions to either broker."""

    def __init__(self, servers: str) -> None:
        self.settings = {"bootstrap.servers": servers}
        self.admin = AdminClient(self.settings)

    def create(self, topic: str, partitions: int, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, partitions, 1, config=settings)
        self.admin.create_topics([new])[topic].result(120)

    def alter(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(120)

    def own_settings(self, topic: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (found,) = self.admin.describe_configs([resource]).values()
        return {
            name: entry.value for name, entry in found.result(120).items() if not entry.is_default
        }

    def topics(self) -> dict[str, int]:
        metadata = self.admin.list_topics(timeout=120)
        return {
            name: len(topic.partitions)
            for name, topic in metadata.topics.items()
            if not name.startswith("__")
        }

    def write(self, topic: str, turn: str, count: int = 100) -> None:
        producer = Producer(self.settings | {"enable.idempotence": True, "linger.ms": 5})
        for number in range(count):
            producer.produce(topic, key=f"k{number % 10}", value=f"{turn}-{number}", partition=0)
        assert producer.flush(120) == 0

    def read(self, topic: str) -> Rows:
        return read_committed(self.settings["bootstrap.servers"], topic)

    def commit(self, group: str, topic: str, offset: int) -> None:
        commit(self.settings["bootstrap.servers"], group, [TopicPartition(topic, 0, offset)])

    def committed(self, group: str, topic: str) -> int:
        consumer = Consumer(self.settings | {"group.id": group})
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=120)
        consumer.close()
        return int(found.offset)


@pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")
@pytest.mark.parametrize("version", KAFKA_VERSIONS)
def test_topics_settings_records_and_offsets_go_to_and_fro(tmp_path: Path, version: str) -> None:
    kafka = RealKafka(tmp_path / "kafka", version=version)
    kafka.start()
    theirs = Client(kafka.bootstrap_servers)
    theirs.create("orders", 3, retention_ms="900000000", compression_type="lz4")
    theirs.create("gone", 1)
    theirs.write("orders", "kafka")
    theirs.commit("shop", "orders", 42)
    theirs.admin.delete_topics(["gone"])["gone"].result(120)
    rows = theirs.read("orders")
    kafka.stop()

    with ServedBroker(kafka.log_dirs[0], flags=()) as broker:
        ours = Client(broker.bootstrap_servers)
        assert ours.topics() == {"orders": 3}
        assert ours.own_settings("orders")["retention.ms"] == "900000000"
        assert ours.read("orders") == rows
        assert ours.committed("shop", "orders") == 42
        ours.write("orders", "cordwood")
        ours.create("added", 2, cleanup_policy="compact")
        ours.alter("orders", "retention.ms", "800000000")
        ours.write("added", "cordwood")
        ours.commit("shop", "orders", 142)
        rows = ours.read("orders")
        assert len(rows) == 200
        added = ours.read("added")
    assert "Traceback" not in broker.log, broker.log[-4000:]

    # As after kill -9: Kafka passes over the file, and commands are not led astray by it.
    stale = kafka.log_dirs[0] / RUNTIME_FILE
    url = f"http://127.0.0.1:{free_port()}"
    identity = NodeIdentity(
        node_id=1, cluster_id="c", pid=1, log_dirs=(str(kafka.log_dirs[0]),), http_url=url
    )
    stale.write_text(json.dumps(to_document(identity)), encoding="utf-8")

    kafka.start()
    said = CliRunner().invoke(app, ["clock", "--log-dir", str(kafka.log_dirs[0])])
    assert said.exit_code == 1
    assert "does not answer" in said.stderr
    said = CliRunner().invoke(app, ["clock", "--bootstrap-server", kafka.bootstrap_servers])
    assert said.exit_code == 1
    assert "is not a `cordwood serve`" in said.stderr
    theirs = Client(kafka.bootstrap_servers)
    assert theirs.topics() == {"orders": 3, "added": 2}
    assert theirs.own_settings("orders")["retention.ms"] == "800000000"
    assert theirs.own_settings("added")["cleanup.policy"] == "compact"
    assert theirs.read("orders") == rows
    assert theirs.read("added") == added
    assert theirs.committed("shop", "orders") == 142
    theirs.write("orders", "kafka again")
    assert len(theirs.read("orders")) == 300
    assert kafka.errors_since_start == []
    kafka.stop()
    assert stale.exists()


@pytest.mark.spark
@pytest.mark.usefixtures("kafka_4_4_jars")
@pytest.mark.parametrize("release", LEVELS)
def test_kafka_starts_on_what_was_formatted_served_and_cleaned_at_a_level(
    tmp_path: Path, release: str
) -> None:
    kafka = RealKafka(tmp_path / "kafka", version=KAFKA_4_4)
    data = kafka.log_dirs[0]
    config = tmp_path / "server.properties"
    lines = {"node.id": "1", "process.roles": "broker,controller", "log.dirs": str(data)}
    lines |= {"controller.listener.names": "CONTROLLER", **kafka.roles()}
    config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    words = ["storage", "format", "-t", CLUSTER_ID, "-c", str(config), "--release-version", release]
    formatted = CliRunner().invoke(app, words)
    assert formatted.exit_code == 0, formatted.output

    with ServedBroker(data, flags=()) as broker:
        ours = Client(broker.bootstrap_servers)
        ours.create("orders", 2, cleanup_policy="compact", internal_segment_bytes="6000")
        ours.write("orders", "first")
        for turn in ("second", "third", "fourth"):
            ours.write("orders", turn)
        ours.commit("shop", "orders", 42)
        rows = ours.read("orders")
        assert len(rows) == 400
    assert "Traceback" not in broker.log, broker.log[-4000:]
    run_clean([data], now_ms=time.time_ns() // 1_000_000 + 3_600_000)

    kafka.start()
    theirs = Client(kafka.bootstrap_servers)
    found = kafka_tool(
        *("features", "--bootstrap-server", kafka.bootstrap_servers, "describe"), version=KAFKA_4_4
    )
    assert re.search(rf"metadata\.version .*FinalizedVersionLevel: {release}\b", found.stdout)
    assert theirs.topics() == {"orders": 2}
    kept = theirs.read("orders")
    assert {key: value for _, key, value in kept} == {key: value for _, key, value in rows}
    assert len(kept) < len(rows)
    assert theirs.committed("shop", "orders") == 42
    theirs.write("orders", "fifth")
    assert kafka.errors_since_start == []
    kafka.stop()


@pytest.mark.usefixtures("kafka_jars", "kafka_4_4_jars")
def test_a_static_quorum_of_4_3_is_upgraded_here_and_goes_on_with_4_4(tmp_path: Path) -> None:
    kafka = RealKafka(tmp_path / "earlier")
    kafka.start()
    theirs = Client(kafka.bootstrap_servers)
    theirs.create("orders", 1)
    theirs.write("orders", "first")
    kafka.stop()

    with ServedBroker(kafka.log_dirs[0], flags=()) as broker:
        tool = ["features", "--bootstrap-server", broker.bootstrap_servers]
        done = CliRunner().invoke(app, [*tool, "upgrade", "--release-version", "4.4"])
        assert done.exit_code == 0, done.output
        assert "kraft.version was upgraded to 1." in done.output
        Client(broker.bootstrap_servers).write("orders", "second")
    assert "Traceback" not in broker.log, broker.log[-4000:]

    later = RealKafka(tmp_path / "later", log_dirs=kafka.log_dirs, version=KAFKA_4_4)
    later.start()
    servers = ("--bootstrap-server", later.bootstrap_servers)
    found = kafka_tool("features", *servers, "describe", version=KAFKA_4_4).stdout
    levels = dict(re.findall(r"Feature: (\S+).*FinalizedVersionLevel: (\S+)", found))
    assert levels == {
        "eligible.leader.replicas.version": "1",
        "group.version": "1",
        "kraft.version": "1",
        "metadata.version": "4.4-IV2",
        "share.version": "2",
        "streams.version": "1",
        "transaction.version": "2",
    }
    found = kafka_tool(
        "metadata-quorum", *servers, "describe", "--status", version=KAFKA_4_4
    ).stdout
    stored = parse_meta_properties((kafka.log_dirs[0] / META_PROPERTIES).read_bytes())
    assert stored.directory_id is not None
    assert f'"directoryId": "{uuid_text(stored.directory_id)}"' in found
    Client(later.bootstrap_servers).write("orders", "third")
    assert later.errors_since_start == []
    later.stop()

    with ServedBroker(kafka.log_dirs[0], flags=()) as broker:
        assert len(Client(broker.bootstrap_servers).read("orders")) == 300
