"""Reads of a partition by a stock consumer, from the log start offset to the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

#: A broker answers so soon that there is no more, and the consumer says that it is at the end.
_FETCH_WAIT_MS: Final = 20


class Read(NamedTuple):
    """The records of a partition, and its log start offset."""

    messages: list[Message]
    start: int


def read_partition(
    client: Mapping[str, Any],
    topic: str,
    partition: int = 0,
    *,
    isolation: str = "read_committed",
    passes_over_errors: bool = False,
    timeout_s: float = 180,
) -> Read:
    """All records of a partition, as a consumer gets them.

    Args:
        client: settings of librdkafka that name the brokers.
        topic: its name.
        partition: its number.
        isolation: `read_committed` or `read_uncommitted`.
        passes_over_errors: of brokers that start and stop meanwhile.
        timeout_s: how long all of it may take.

    Raises:
        TimeoutError: it took longer.
    """
    settings: dict[str, Any] = {
        "log_level": 0,
        **client,
        "group.id": "reader",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": _FETCH_WAIT_MS,
    }
    consumer = Consumer(settings)
    ends = time.monotonic() + timeout_s
    try:
        place = TopicPartition(topic, partition)
        start, _ = consumer.get_watermark_offsets(place, timeout=timeout_s)
        consumer.assign([TopicPartition(topic, partition, start)])
        found: list[Message] = []
        while True:
            message = consumer.poll(max(ends - time.monotonic(), 0))
            if message is None:
                break
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # public, whatever its name
                return Read(found, start)
            else:
                assert passes_over_errors, str(error)
    finally:
        consumer.close()
    raise TimeoutError(f"{topic}-{partition} was not read to its end in {timeout_s:.0f} s")


def read_committed(servers: str, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every committed record of partition 0: offset, key and value."""
    messages, _ = read_partition({"bootstrap.servers": servers}, topic)
    return [(offset_of(each), each.key(), each.value()) for each in messages]


def offset_of(message: Message) -> int:
    """The offset of a record that was read."""
    offset: int | None = message.offset()
    assert offset is not None, "a message without an offset is none that was read"
    return offset
