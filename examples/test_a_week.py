"""A test against a broker whose week takes milliseconds.

Run it with `pytest examples/test_a_week.py`. pytest finds the fixture `cordwood_broker` by itself.
The client here is confluent-kafka; any other client of Kafka works too.
"""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition

from cordwood.testing.broker import RunningBroker


def test_prices_are_kept_for_a_week(cordwood_broker: RunningBroker) -> None:
    """log.retention.hours is 168 by default."""
    servers = {"bootstrap.servers": cordwood_broker.bootstrap_servers}
    producer = Producer(servers)
    for price in ("10.50", "11.20"):
        producer.produce("prices", key="book", value=price)
    assert producer.flush(10) == 0
    consumer = Consumer(servers | {"group.id": "shop"})

    cordwood_broker.advance(days=6)
    assert consumer.get_watermark_offsets(TopicPartition("prices", 0)) == (0, 2)

    cordwood_broker.advance(days=1, minutes=10)
    assert consumer.get_watermark_offsets(TopicPartition("prices", 0)) == (2, 2)
    consumer.close()
