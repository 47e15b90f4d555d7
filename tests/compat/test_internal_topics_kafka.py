"""Names that are Kafka's own, created by a Cordwood broker: a real Kafka goes on with them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import NamedTuple

import pytest

from cordwood.metadata.image import PartitionImage
from cordwood.metadata.records import partition_record, topic_record
from cordwood.testing.broker import RunningBroker
from support.controller_under_test import append_to_metadata_log
from support.kafka import RealKafka, poll_until
from support.no_engine import NoEngine
from support.wire import Plain
from support.wire_client import WireClient, batch_of

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

METADATA_LOG = "__cluster_metadata"
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
PROPERTIES = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "auto.create.topics.enable": "true",
}


def ask_for(wire: WireClient, *names: str) -> dict[str, Plain]:
    """The answers of Metadata, once the topics that it creates are there."""

    def seen() -> dict[str, Plain] | None:
        asked = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": True}
        topics = {each["name"]: each for each in wire.ask("metadata", 9, asked)["topics"]}
        known = [name for name, each in topics.items() if each["error_code"] == "none"]
        return topics if set(known) == set(names) - {METADATA_LOG} else None

    return poll_until(seen, timeout_s=180, what="topics that Metadata creates")


def produce(wire: WireClient, value: bytes) -> None:
    """Writes a record, once the partition has a leader that serves it."""

    def written() -> bool:
        return bool(wire.produce("kept", batch_of(value))["error_code"] == "none")

    poll_until(written, timeout_s=180, what="a leader of kept-0")


def own_settings(wire: WireClient, topic: str) -> dict[str, str]:
    asked = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    (found,) = wire.ask("describe_configs", 4, {"resources": [asked]})["results"]
    return {each["name"]: each["value"] for each in found["configs"] if each["config_source"] == 1}


class Turns(NamedTuple):
    """Observations of both brokers: Metadata, settings, values, checkpoints after both stops."""

    topics: tuple[dict[str, Plain], dict[str, Plain]]
    settings: tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]
    values: list[bytes | None]
    checkpoints: tuple[dict[str, list[str]], dict[str, list[str]]]


def partitions_in(data: Path) -> dict[str, list[str]]:
    """The partitions of the checkpoints, in the order of their lines."""
    return {
        name: [line.rpartition(" ")[0] for line in (data / name).read_text().splitlines()[2:]]
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
    }


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Turns:
    """A directory whose metadata log holds a topic with its own name: ours first, then Kafka's."""
    root = tmp_path_factory.mktemp("internal-topics")
    data = root / "data"
    with (
        RunningBroker(PROPERTIES, log_dir=data, engine=NoEngine) as running,
        WireClient(running.port) as wire,
    ):
        wire.create("kept", 30, retention_ms=-1)
        produce(wire, b"one")
    topic_id = uuid.uuid4()
    partition = PartitionImage(replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
    append_to_metadata_log(
        data,
        [
            topic_record(METADATA_LOG, topic_id),
            *(partition_record(topic_id, number, partition, 30) for number in range(2)),
        ],
        node_id=1,
    )
    with (
        RunningBroker(PROPERTIES, log_dir=data, engine=NoEngine) as running,
        WireClient(running.port) as wire,
    ):
        ours = ask_for(wire, METADATA_LOG, "kept", *INTERNAL)
        our_settings = {name: own_settings(wire, name) for name in INTERNAL}
        produce(wire, b"two")
    our_checkpoints = partitions_in(data)
    with RealKafka(root / "kafka", log_dirs=[data], properties=PROPERTIES) as kafka:
        kafka.start_without_cleaning()
        with WireClient(kafka.port) as wire:
            theirs = ask_for(wire, METADATA_LOG, "kept", *INTERNAL)
            produce(wire, b"three")
            values = [each.value for each in wire.records("kept")]
            their_settings = {name: own_settings(wire, name) for name in INTERNAL}
        kafka.stop()
    return Turns(
        topics=(ours, theirs),
        settings=(our_settings, their_settings),
        values=values,
        checkpoints=(our_checkpoints, partitions_in(data)),
    )


def test_kafka_leads_every_topic_of_a_directory_that_named_one_as_the_metadata_log(
    turns: Turns,
) -> None:
    leaders = [
        {name: [p["leader_id"] for p in each["partitions"]] for name, each in topics.items()}
        for topics in turns.topics
    ]
    assert leaders[0] == leaders[1]
    assert leaders[1]["kept"] == [1] * 30
    assert leaders[1][METADATA_LOG] == []
    assert turns.settings[0] == turns.settings[1]
    assert turns.values == [b"one", b"two", b"three"]


def test_kafka_writes_the_lines_of_checkpoints_in_the_same_order(turns: Turns) -> None:
    assert turns.checkpoints[0] == turns.checkpoints[1]
    assert all(len(lines) >= 30 for lines in turns.checkpoints[0].values())


def test_kafka_creates_internal_topics_with_the_same_settings(tmp_path: Path) -> None:
    with (
        RunningBroker(PROPERTIES, engine=NoEngine) as running,
        RealKafka(tmp_path, properties=PROPERTIES) as kafka,
    ):
        kafka.start()
        found = []
        for port in (running.port, kafka.port):
            with WireClient(port) as wire:
                topics = ask_for(wire, METADATA_LOG, *INTERNAL)
                partitions = {name: len(each["partitions"]) for name, each in topics.items()}
                found.append([partitions, {name: own_settings(wire, name) for name in INTERNAL}])
        kafka.stop()
    assert found[0] == found[1]
