"""Reads of a consumer of a topic."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition


def read_committed(servers: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every committed record of partition 0, as a consumer gets it: offset, key and value."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "reader",
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while True:
        message = consumer.poll(120)
        assert message is not None, "nothing came for 120 s"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, str(error)
            consumer.close()
            return found
        offset = message.offset()
        assert offset is not None
        found.append((offset, message.key(), message.value()))
