"""Commits of offsets by a stock client, which does not try again itself where there is no group."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from support.kafka import poll_until

_NOT_READY = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_WAIT_S = 120.0


def commit(servers: str, group: str, positions: Sequence[TopicPartition]) -> None:
    """Commits positions for a group without members, in order.

    The first request makes the offsets topic, whose coordinator may not be ready when it is found:
    clients with members try again then, a commit alone does not.
    """
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False}
    )
    try:
        for position in positions:
            poll_until(
                partial(_try, consumer, position),
                timeout_s=_WAIT_S,
                what=f"{group} has a coordinator that is ready",
            )
    finally:
        consumer.close()


def _try(consumer: Consumer, position: TopicPartition) -> bool:
    try:
        consumer.commit(offsets=[position], asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() in _NOT_READY:
            return False
        raise
    return True
