"""Names that are Kafka's own, created by a Cordwood broker: a real Kafka goes on with them."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from cordwood.broker.controller.metadata_records import partition_record, topic_record
from cordwood.storage.cluster_image import PartitionImage
from cordwood.testing.broker import RunningBroker
from cordwood.testing.controller_under_test import append_to_metadata_log
from cordwood.testing.kafka import RealKafka, poll_until
from cordwood.testing.no_engine import NoEngine
from cordwood.testing.wire import Plain
from cordwood.testing.wire_client import WireClient, batch_of

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

    return poll_until(seen, timeout_s=30, what="topics that Metadata creates")


def own_settings(wire: WireClient, topic: str) -> dict[str, str]:
    asked = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    (found,) = wire.ask("describe_configs", 4, {"resources": [asked]})["results"]
    return {each["name"]: each["value"] for each in found["configs"] if each["config_source"] == 1}


def test_kafka_leads_every_topic_of_a_directory_that_named_one_as_the_metadata_log(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with (
        RunningBroker(PROPERTIES, log_dir=data, engine=NoEngine) as running,
        WireClient(running.port) as wire,
    ):
        wire.create("kept", retention_ms=-1)
        assert wire.produce("kept", batch_of(b"one"))["error_code"] == "none"
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
        assert wire.produce("kept", batch_of(b"two"))["error_code"] == "none"
    with RealKafka(tmp_path / "kafka", log_dirs=[data], properties=PROPERTIES) as kafka:
        kafka.start_without_cleaning()
        with WireClient(kafka.port) as wire:
            theirs = ask_for(wire, METADATA_LOG, "kept", *INTERNAL)
            assert [each.value for each in wire.records("kept")] == [b"one", b"two"]
            assert wire.produce("kept", batch_of(b"three"))["error_code"] == "none"
            assert {name: own_settings(wire, name) for name in INTERNAL} == our_settings
        kafka.stop()
    for name, ours_of_it in ours.items():
        assert ours_of_it["error_code"] == theirs[name]["error_code"]
        leaders = [
            [p["leader_id"] for p in each["partitions"]] for each in (ours_of_it, theirs[name])
        ]
        assert leaders[0] == leaders[1]


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
