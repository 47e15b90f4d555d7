"""The brokers of a running Kafka cluster are replaced by Cordwood's, node by node, and back again.

Each takes over the directory of the other, its node id, its records, groups and transactions.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from support.kafka import poll_until
from support.mixed_cluster import WAIT_S, MixedCluster

IDS = (1, 2, 3)
TOPIC, GROUP = "t", "g"
PARTITIONS = 3
STEP = 200
"""Records that are written between two replacements, half of them in transactions."""
_PROPERTIES = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "replica.lag.time.max.ms": "5000",
}


class Clients:
    """A group, a producer with idempotence, and one with transactions."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self.written = 0

    def write(self) -> None:
        """One half with idempotence, the other in a transaction; and one that is aborted."""
        plain = Producer(self._cluster.client({"acks": "all", "enable.idempotence": True}))
        self._produce(plain, STEP // 2)
        assert plain.flush(WAIT_S) == 0
        producer = Producer(self._cluster.client({"transactional.id": "tx"}))
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
        """Reads and commits the records that the group has not read yet, in order."""
        consumer = Consumer(
            self._cluster.client(
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


def test_a_kafka_cluster_becomes_one_of_cordwood_and_a_kafka_cluster_again(tmp_path: Path) -> None:
    with MixedCluster(
        tmp_path, kafka=IDS, properties=_PROPERTIES, session_timeout_ms=5000
    ) as cluster:
        cluster.create_topic(TOPIC, cluster.spread(PARTITIONS), {"min.insync.replicas": "2"})
        clients = Clients(cluster)
        expected = 0
        for cordwood in (True, False):
            for node_id in IDS:
                clients.write()
                assert clients.read_on() == list(range(expected, clients.written))
                expected = clients.written
                cluster.replace(node_id, cordwood=cordwood)
        clients.write()
        assert clients.read_on() == list(range(expected, clients.written))
        poll_until(
            lambda: cluster.has_equal_logs(TOPIC, PARTITIONS),
            timeout_s=WAIT_S,
            what="the replicas are equal",
        )
        reader = Consumer(cluster.client({"group.id": "other"}))
        for partition in range(PARTITIONS):
            low, high = reader.get_watermark_offsets(TopicPartition(TOPIC, partition))
            assert low == 0
            assert high > clients.written // PARTITIONS
        reader.close()
