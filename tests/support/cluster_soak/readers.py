"""Members of a cluster soak's groups, which commit what they have read, and a reader of all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from support.cluster_soak.judge import Judge

Protocol = Literal["classic", "consumer"]

_BATCH: Final = 500
_POLL_S: Final = 0.3
_WAIT_S: Final = 120.0


def member(
    settings: Mapping[str, Any], group: str, protocol: Protocol, topic: str, judge: Judge
) -> Callable[[threading.Event], None]:
    """A member that reads a topic from its start; each commit that is accepted is reported."""
    own: dict[str, Any] = {
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if protocol == "classic":
        own["session.timeout.ms"] = 6000

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            judge.assigned(group, each.partition)

    def run(stopping: threading.Event) -> None:
        consumer = Consumer({**settings, **own})
        try:
            consumer.subscribe([topic], on_assign=assigned)
            while not stopping.is_set():
                for message in consumer.consume(_BATCH, _POLL_S):
                    if message.error() is None:
                        judge.read(group, message.partition(), message.offset())
                _commit(consumer, group, judge)
        finally:
            consumer.close()

    return run


def _commit(consumer: Consumer, group: str, judge: Judge) -> None:
    try:
        committed = consumer.commit(asynchronous=False)
    except KafkaException as error:
        judge.not_committed(error.args[0].name())
        return
    for each in committed or ():
        if each.error is None and each.offset >= 0:
            judge.committed(group, each.partition, each.offset)
        elif each.error is not None:
            judge.not_committed(each.error.name())


def read_committed(settings: Mapping[str, Any], topic: str, partition: int) -> list[Message]:
    """All that is committed, from the start to the last stable offset."""
    consumer = Consumer(
        {
            **settings,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    ends = time.monotonic() + _WAIT_S
    try:
        while time.monotonic() < ends:
            for message in consumer.consume(1000, 1.0):
                if message.error() is None:
                    found.append(message)
                elif message.error().name() == "_PARTITION_EOF":
                    return found
    finally:
        consumer.close()
    raise TimeoutError(f"{topic}-{partition} was not read to its end in {_WAIT_S} s")
