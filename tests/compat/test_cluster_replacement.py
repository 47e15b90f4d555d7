"""The brokers of a running Kafka cluster are replaced by Cordwood's, node by node, and back again.

Each takes over the directory of the other, its node id, its records, groups and transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.cluster_broker import ClusterBroker
from support.kafka import poll_until
from support.kafka_cluster import KafkaBroker, KafkaController

IDS = (1, 2, 3)
TOPIC, GROUP = "t", "g"
PARTITIONS = 3
STEP = 200
"""Records that are written between two replacements, half of them in transactions."""
WAIT_S = 120
_PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "5000",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "5000",
}

Broker = KafkaBroker | ClusterBroker


class Cluster:
    """Three brokers, each of Kafka or of Cordwood; the directory of a node is the same for both."""

    def __init__(self, root: Path, controller: KafkaController) -> None:
        self._root = root
        self._controller = controller
        self.brokers: dict[int, Broker] = {}
        self.written = 0

    def start(self, node_id: int, *, cordwood: bool) -> None:
        """Starts a node, which is not running, on its directory."""
        root = self._root / str(node_id)
        broker: Broker
        if cordwood:
            broker = ClusterBroker(root, self._controller, node_id, properties=_PROPERTIES)
        else:
            broker = KafkaBroker(root, self._controller, node_id, properties=_PROPERTIES)
        self.brokers[node_id] = broker
        broker.start()

    def replace(self, node_id: int, *, cordwood: bool) -> None:
        """Stops a node, and starts the other kind on its directory, until all is in sync."""
        self.brokers[node_id].stop()
        self.start(node_id, cordwood=cordwood)
        poll_until(self._is_whole, timeout_s=WAIT_S, what=f"all is in sync with {node_id}")

    def client(self, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
        servers = ",".join(each.bootstrap_servers for each in self.brokers.values())
        return {"bootstrap.servers": servers, "log_level": 0, **(settings or {})}

    def make_topic(self) -> None:
        admin = AdminClient(self.client())
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result()
        poll_until(self._is_whole, timeout_s=WAIT_S, what="all is in sync")

    def _is_whole(self) -> bool:
        try:
            topics = AdminClient(self.client()).list_topics(timeout=5).topics
        except KafkaException:
            return False
        return TOPIC in topics and all(
            set(partition.isrs) == set(IDS)
            for topic in topics.values()
            for partition in topic.partitions.values()
        )

    def write(self) -> None:
        """One half with idempotence, the other in a transaction; and one that is aborted."""
        plain = Producer(self.client({"acks": "all", "enable.idempotence": True}))
        self._produce(plain, STEP // 2)
        assert plain.flush(WAIT_S) == 0
        producer = Producer(self.client({"transactional.id": "tx"}))
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        self._produce(producer, STEP // 2)
        producer.commit_transaction(WAIT_S)
        producer.begin_transaction()
        producer.produce(TOPIC, b"aborted", partition=0)
        producer.flush(WAIT_S)
        producer.abort_transaction(WAIT_S)

    def _produce(self, producer: Producer, count: int) -> None:
        for _ in range(count):
            producer.produce(TOPIC, b"%d" % self.written, partition=self.written % PARTITIONS)
            self.written += 1

    def read_on(self) -> list[int]:
        """What the group has not read yet, in order; it commits."""
        consumer = Consumer(
            self.client(
                {
                    "group.id": GROUP,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "enable.auto.commit": False,
                }
            )
        )
        consumer.subscribe([TOPIC])
        found: list[int] = []

        def has_all() -> bool:
            for message in consumer.consume(500, 0.5):
                assert message.error() is None, message.error()
                found.append(int(message.value()))
            return len(found) >= STEP

        poll_until(has_all, timeout_s=WAIT_S, what="what was written")
        consumer.commit(asynchronous=False)
        consumer.close()
        return sorted(found)

    def logs(self) -> dict[int, dict[str, bytes]]:
        """The bytes of each partition on each node."""
        return {
            node_id: {
                path.parent.name: path.read_bytes()
                for path in sorted((self._root / str(node_id) / "data").glob(f"{TOPIC}-*/*.log"))
            }
            for node_id in IDS
        }

    def has_equal_logs(self) -> bool:
        first, *others = self.logs().values()
        return all(each == first for each in others)


def test_a_kafka_cluster_becomes_one_of_cordwood_and_a_kafka_cluster_again(tmp_path: Path) -> None:
    session = {"broker.session.timeout.ms": "5000"}
    with (
        KafkaController(tmp_path / "controller", properties=session) as controller,
        ExitStack() as stack,
    ):
        controller.start()
        cluster = Cluster(tmp_path, controller)

        def stop_all() -> None:
            for broker in cluster.brokers.values():
                broker.stop()

        for node_id in IDS:
            cluster.start(node_id, cordwood=False)
        stack.callback(stop_all)
        cluster.make_topic()
        expected = 0
        for cordwood in (True, False):
            for node_id in IDS:
                cluster.write()
                assert cluster.read_on() == list(range(expected, cluster.written))
                expected = cluster.written
                cluster.replace(node_id, cordwood=cordwood)
        cluster.write()
        assert cluster.read_on() == list(range(expected, cluster.written))
        poll_until(cluster.has_equal_logs, timeout_s=WAIT_S, what="the replicas are equal")
        reader = Consumer(cluster.client({"group.id": "other"}))
        for partition in range(PARTITIONS):
            low, high = reader.get_watermark_offsets(TopicPartition(TOPIC, partition))
            assert low == 0
            assert high > cluster.written // PARTITIONS
        reader.close()
