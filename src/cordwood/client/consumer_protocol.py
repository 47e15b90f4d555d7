"""The messages that members of a consumer group exchange through its coordinator.

Source: org.apache.kafka.clients.consumer.internals.ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.consumer_protocol_assignment.v0.data import (
    ConsumerProtocolAssignment as AssignmentV0,
)
from kio.schema.consumer_protocol_assignment.v1.data import ConsumerProtocolAssignment
from kio.schema.consumer_protocol_subscription.v0.data import (
    ConsumerProtocolSubscription as SubscriptionV0,
)
from kio.schema.consumer_protocol_subscription.v1.data import ConsumerProtocolSubscription
from kio.serial import entity_reader

from cordwood.client.admin import by_topic
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.messages import encode

_VERSION = b"\x00\x01"


def subscription(topics: Sequence[str]) -> bytes:
    """The topics that a member wants to read."""
    fields = {"topics": topics, "user_data": None, "owned_partitions": ()}
    return _VERSION + encode(ConsumerProtocolSubscription, fields)


def parse_subscription(data: bytes) -> list[str]:
    """The topics that a member wants to read, of any version: later ones add fields behind."""
    found, _ = entity_reader(SubscriptionV0)(data, len(_VERSION))
    return list(found.topics)


def assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """The partitions that a member is to read."""
    fields = {
        "assigned_partitions": [
            {"topic": topic, "partitions": numbers}
            for topic, numbers in by_topic(partitions).items()
        ],
        "user_data": None,
    }
    return _VERSION + encode(ConsumerProtocolAssignment, fields)


def parse_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions that a member is to read, of any version; none for no bytes."""
    if not data:
        return []
    found, _ = entity_reader(AssignmentV0)(data, len(_VERSION))
    return [
        TopicPartition(topic.topic, int(number))
        for topic in found.assigned_partitions
        for number in topic.partitions
    ]
