"""A broker is killed, and no record is lost: `pytest examples/test_a_lost_broker.py`.

The fixture `cordwood_cluster` comes with the package, as a pytest plugin: a controller and three
brokers, each a process, that start in seconds and are gone after the test. The test kills the
leader of a partition while a producer writes, and reads everything back from the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from cordwood.testing.cluster import Cluster

TOPIC = "orders"
RECORDS = 300


def test_no_order_is_lost_with_the_leader(cordwood_cluster: Cluster) -> None:
    """A broker that is gone is fenced after broker.session.timeout.ms, 6 s in this fixture."""
    servers = {"bootstrap.servers": cordwood_cluster.bootstrap_servers, "log_level": 0}
    topic = NewTopic(TOPIC, num_partitions=1, replication_factor=3)
    admin = AdminClient(servers)
    admin.create_topics([topic])[TOPIC].result()
    cordwood_cluster.wait_until_in_sync(TOPIC)

    producer = Producer({**servers, "enable.idempotence": True})
    killed = cordwood_cluster.leader(TOPIC)
    for number in range(RECORDS):
        producer.produce(TOPIC, f"order {number}")
        if number == RECORDS // 2:
            assert producer.flush(60) == 0
            cordwood_cluster.kill(killed)
    assert producer.flush(60) == 0

    assert cordwood_cluster.leader(TOPIC) != killed
    assert orders(servers) == [f"order {number}" for number in range(RECORDS)]

    cordwood_cluster.start(killed)
    cordwood_cluster.wait_until_in_sync(TOPIC)


def orders(servers: dict[str, object]) -> list[str]:
    """All records of the topic, in order."""
    consumer = Consumer({**servers, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[str] = []
    while len(found) < RECORDS:
        records = consumer.consume(RECORDS, timeout=30)
        assert records, f"only {len(found)} records in 30 s"
        found += [str(record.value(), "utf-8") for record in records if record.error() is None]
    consumer.close()
    return found
