"""The same is done to a real Kafka and to Cordwood: their metrics say the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.surfaces.metrics.metric import Metric, MetricType
from cordwood.surfaces.metrics.table import METRICS
from cordwood.testing.broker import RunningBroker
from support.applied import wait_until_applied
from support.kafka import RealKafka
from support.kafka_programs import kafka_tool
from support.no_engine import NoEngine
from support.ports import free_port
from support.scrape import Scrape, probed

pytestmark = pytest.mark.kafka

PROPERTIES = {"offsets.topic.num.partitions": "1"}
TOPICS: Mapping[str, tuple[int, Mapping[str, str]]] = {
    "orders": (2, {"retention.bytes": "10000"}),
    "table": (1, {"cleanup.policy": "compact"}),
    "small": (1, {"max.message.bytes": "500"}),
    "zipped": (1, {"compression.type": "lz4"}),
}
BY_TOPIC = (
    "MessagesInPerSec",
    "BytesInPerSec",
    "BytesOutPerSec",
    "BytesRejectedPerSec",
    "FailedProduceRequestsPerSec",
    "FailedFetchRequestsPerSec",
)
# Those of all topics whose sum does not hang on what the coordinator of groups writes.
OF_ALL = (
    "BrokerTopicMetrics,name=BytesRejectedPerSec",
    "BrokerTopicMetrics,name=FailedProduceRequestsPerSec",
    "BrokerTopicMetrics,name=FailedFetchRequestsPerSec",
    "BrokerTopicMetrics,name=NoKeyCompactedTopicRecordsPerSec",
    "BrokerTopicMetrics,name=InvalidMagicNumberRecordsPerSec",
    "BrokerTopicMetrics,name=InvalidMessageCrcRecordsPerSec",
    "BrokerTopicMetrics,name=InvalidOffsetOrSequenceRecordsPerSec",
    "KafkaServer,name=BrokerState",
    "ReplicaManager,name=PartitionCount",
    "ReplicaManager,name=LeaderCount",
    "ReplicaManager,name=OfflineReplicaCount",
    "ReplicaManager,name=UnderReplicatedPartitions",
    "ReplicaManager,name=UnderMinIsrPartitionCount",
    "ReplicaManager,name=AtMinIsrPartitionCount",
    "ReplicaManager,name=ReassigningPartitions",
    "KafkaController,name=ActiveControllerCount",
    "KafkaController,name=ActiveBrokerCount",
    "KafkaController,name=FencedBrokerCount",
    "KafkaController,name=GlobalTopicCount",
    "KafkaController,name=GlobalPartitionCount",
    "KafkaController,name=OfflinePartitionsCount",
    "KafkaController,name=PreferredReplicaImbalanceCount",
    "LogManager,name=OfflineLogDirectoryCount",
    "LogManager,name=CordonedLogDirectoryCount",
    "LogCleaner,name=DeadThreadCount",
    "LogCleaner,name=cleaner-recopy-percent",
    "MetadataLoader,name=CurrentMetadataVersion",
)


def do_it(servers: str) -> None:
    """Appends, refusals of three kinds, and a group that reads what there is."""
    settings = {"bootstrap.servers": servers, "log_level": 0}
    admin = AdminClient(settings)
    wanted = [NewTopic(name, count, 1, config=dict(c)) for name, (count, c) in TOPICS.items()]
    for done in admin.create_topics(wanted).values():
        done.result()
    # A producer that is ahead of the broker is refused, and counted, as often as it tries.
    wait_until_applied(int(servers.rpartition(":")[2]))
    # Flushed record by record: batches of the same size in both.
    producer = Producer(settings)
    for number in range(20):
        producer.produce("orders", b"v" * 10 * number, key=b"k", partition=number % 2)
        assert producer.flush(180) == 0
    for topic, key, value in (("table", b"k", b"v"), ("table", None, b"v"), ("zipped", b"k", b"v")):
        producer.produce(topic, value, key=key)
        assert producer.flush(180) == 0
    producer.produce("small", b"v" * 1000)
    assert producer.flush(180) == 0
    consumer = Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    assert len(consumer.consume(20, 180)) == 20
    consumer.close()


class Jmx:
    """Output of JmxTool, by MBean and attribute."""

    def __init__(self, text: str) -> None:
        self._values = dict(line.rpartition("=")[::2] for line in text.splitlines())

    def find(self, mbean: str) -> float | None:
        for attribute in ("Value", "Count"):
            value = self._values.get(f"{mbean}:{attribute}")
            if value is not None:
                return float(value)
        return None


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, kafka_jars: Path) -> Jmx:
    port = free_port()
    flags = {"port": port, "authenticate": "false", "ssl": "false"}
    options = [f"-Dcom.sun.management.jmxremote.{name}={value}" for name, value in flags.items()]
    options += ["-Dcom.sun.management.jmxremote", "-Djava.rmi.server.hostname=127.0.0.1"]
    root = tmp_path_factory.mktemp("kafka")
    with RealKafka(root, properties=PROPERTIES) as real:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JAVA_TOOL_OPTIONS", " ".join(options))
            real.start()
        do_it(real.bootstrap_servers)
        url = f"service:jmx:rmi:///jndi/rmi://127.0.0.1:{port}/jmxrmi"
        tool = "org.apache.kafka.tools.JmxTool"
        done = kafka_tool(tool, "--jmx-url", url, "--one-time", "--report-format", "properties")
        assert done.returncode == 0, done.stderr
        return Jmx(done.stdout)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Scrape:
    log_dir = tmp_path_factory.mktemp("cordwood")
    with (
        RunningBroker(PROPERTIES, log_dir=log_dir, engine=NoEngine) as broker,
        probed(broker) as probe,
    ):
        do_it(broker.bootstrap_servers)
        return probe.scrape()


def metric_of(ending: str) -> Metric[Any]:
    return next(metric for metric in METRICS if metric.mbean.endswith(f"type={ending}"))


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("name", BY_TOPIC)
def test_counters_of_a_topic_are_kafkas(kafka: Jmx, ours: Scrape, topic: str, name: str) -> None:
    metric = metric_of(f"BrokerTopicMetrics,name={name}")
    assert ours.find(metric.name, topic=topic) == kafka.find(f"{metric.mbean},topic={topic}")


@pytest.mark.parametrize("ending", OF_ALL)
def test_values_of_all_are_kafkas(kafka: Jmx, ours: Scrape, ending: str) -> None:
    metric = metric_of(ending)
    assert metric.type is not MetricType.SUMMARY
    theirs = kafka.find(metric.mbean)
    assert theirs is not None
    assert ours.value(metric.name) == theirs


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("kind", ["kafka.log:type=Log", "kafka.cluster:type=Partition"])
def test_values_of_a_partition_are_kafkas(kafka: Jmx, ours: Scrape, topic: str, kind: str) -> None:
    metrics = [
        metric
        for metric in METRICS
        # Kafka's is that of when retention was last applied.
        if metric.mbean.startswith(f"{kind},") and not metric.mbean.endswith("InPercent")
    ]
    assert len(metrics) >= 4
    for partition in map(str, range(TOPICS[topic][0])):
        found = {
            metric.name: ours.value(metric.name, topic=topic, partition=partition)
            for metric in metrics
        }
        theirs = {
            metric.name: kafka.find(f"{metric.mbean},topic={topic},partition={partition}")
            for metric in metrics
        }
        assert found == theirs
