"""The messages that members of a consumer group exchange through its coordinator.

Source: org.apache.kafka.clients.consumer.internals.ConsumerProtocol.
"""

from __future__ import annotations

from collections.abc import Sequence

from cordwood.client.admin import by_topic
from cordwood.format.byte_reader import ByteReader
from cordwood.format.group_metadata import CONSUMER_PROTOCOL_SCHEMAS
from cordwood.format.message_schema import encode_message, read_message
from cordwood.model.topic_partition import TopicPartition

_VERSION = b"\x00\x01"
_SUBSCRIPTION = CONSUMER_PROTOCOL_SCHEMAS["ConsumerProtocolSubscription"]
_ASSIGNMENT = CONSUMER_PROTOCOL_SCHEMAS["ConsumerProtocolAssignment"]


def subscription(topics: Sequence[str]) -> bytes:
    """The topics that a member wants to read."""
    fields = {"topics": topics, "userData": None, "ownedPartitions": ()}
    return _VERSION + encode_message(_SUBSCRIPTION, 1, fields)


def parse_subscription(data: bytes) -> list[str]:
    """The topics that a member wants to read, of any version: later ones add fields behind."""
    found = read_message(_SUBSCRIPTION, 0, ByteReader(data, len(_VERSION))).fields
    return list(found["topics"])


def assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """The partitions that a member is to read."""
    fields = {
        "assignedPartitions": [
            {"topic": topic, "partitions": numbers}
            for topic, numbers in by_topic(partitions).items()
        ],
        "userData": None,
    }
    return _VERSION + encode_message(_ASSIGNMENT, 1, fields)


def parse_assignment(data: bytes) -> list[TopicPartition]:
    """The partitions that a member is to read, of any version; none for no bytes."""
    if not data:
        return []
    found = read_message(_ASSIGNMENT, 0, ByteReader(data, len(_VERSION))).fields
    return [
        TopicPartition(topic["topic"], number)
        for topic in found["assignedPartitions"]
        for number in topic["partitions"]
    ]
