"""The directory of a Cordwood controller is continued by Kafka's, under running brokers, and back.

This is the way from one controller to a quorum of several: Kafka's controllers join the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.cluster_controller import ClusterController
from support.kafka import poll_until
from support.kafka_cluster import CONTROLLER_ID, KafkaController
from support.kafka_tools import KafkaTools
from support.mixed_cluster import WAIT_S, MixedCluster

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("kafka_jars")]

RECORDS = 200
PARTITIONS = 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    with MixedCluster(tmp_path, kafka=[1], cordwood=[2, 3], has_own_controller=True) as cluster:
        yield cluster


def produce(cluster: MixedCluster, topic: str) -> None:
    """Returns when all replicas in sync have the records."""
    errors: list[object] = []
    producer = Producer(cluster.client({"acks": "all", "enable.idempotence": True}))
    for number in range(RECORDS):
        producer.produce(
            topic,
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: errors.append(error),
        )
    assert producer.flush(WAIT_S) == 0
    assert errors == [None] * RECORDS


def values(cluster: MixedCluster, topic: str, count: int) -> list[int]:
    """The values of all records of a topic, in order."""
    consumer = Consumer(cluster.client({"group.id": "none", "auto.offset.reset": "earliest"}))
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found: list[int] = []

    def has_all() -> bool:
        messages = consumer.consume(count, 0.5)
        found.extend(int(each.value() or b"") for each in messages if each.error() is None)
        return len(found) >= count

    poll_until(has_all, timeout_s=WAIT_S, what=f"{count} records of {topic}")
    consumer.close()
    return sorted(found)


def described(tools: KafkaTools, *servers: str) -> dict[str, str]:
    """The lines of `kafka-metadata-quorum describe --status`."""
    done = tools.run("metadata-quorum", *servers, "describe", "--status")
    assert done.code == 0, done.err
    return {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in done.out.splitlines())
    }


def fail_over(cluster: MixedCluster, node_id: int) -> None:
    """The controller has others lead while a broker is down."""
    broker = cluster.brokers[node_id]
    broker.kill()
    poll_until(
        lambda: (isr := cluster.isr("before")) and node_id not in isr,
        timeout_s=WAIT_S,
        what="it has left the ISR",
    )
    broker.start()
    cluster.wait_until_in_sync()


def test_kafka_goes_on_with_a_cordwood_controllers_directory_and_back(
    tmp_path: Path, cluster: MixedCluster, tools: KafkaTools
) -> None:
    own = cluster.controller
    assert isinstance(own, ClusterController)
    epochs = []
    at_controller = ("--bootstrap-controller", own.bootstrap_servers)
    with KafkaController(tmp_path / "kafka", log_dirs=[own.log_dir]) as kafka:
        kafka.port = own.port

        def note() -> None:
            for servers in (at_controller, ("--bootstrap-server", cluster.bootstrap_servers)):
                status = described(tools, *servers)
                assert status["LeaderId"] == str(CONTROLLER_ID)
                assert f'"id": {CONTROLLER_ID}' in status["CurrentVoters"]
                for node_id in cluster.brokers:
                    assert f'"id": {node_id},' in status["CurrentObservers"], status
            epochs.append(int(status["LeaderEpoch"]))

        cluster.create_topic("before", cluster.spread(PARTITIONS))
        produce(cluster, "before")
        note()
        own.stop()
        kafka.start()
        cluster.create_topic("meanwhile", cluster.spread(PARTITIONS))
        produce(cluster, "meanwhile")
        fail_over(cluster, 2)
        note()
        assert kafka.errors_since_start == []
        kafka.stop()
        own.start()
        cluster.create_topic("afterwards", cluster.spread(PARTITIONS))
        produce(cluster, "afterwards")
        fail_over(cluster, 1)
        note()
    assert epochs == sorted(set(epochs))
    for topic in ("before", "meanwhile", "afterwards"):
        assert values(cluster, topic, RECORDS) == list(range(RECORDS))
        assert cluster.has_equal_logs(topic, PARTITIONS)
