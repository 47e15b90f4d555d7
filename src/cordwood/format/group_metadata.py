"""Keys and values of `__consumer_offsets`: committed offsets, and groups of every protocol.

Source: the schemas of org.apache.kafka.coordinator.group.generated; ConsumerProtocolSubscription
and ConsumerProtocolAssignment for what members of classic consumer groups keep inside.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from cordwood.format.byte_reader import ByteReader
from cordwood.format.coordinator_record import CoordinatorKey, CoordinatorSchemas
from cordwood.format.group_schemas import CONSUMER_PROTOCOL, KEYS, VALUES
from cordwood.format.message_schema import MessageValue, encode_message, read_message, schemas
from cordwood.model.errors import CorruptError

OFFSET_COMMIT_TYPES = frozenset({0, 1})
GROUP_METADATA_TYPE = 2
_CONSUMER_PROTOCOL_VERSION: Final = 3

GROUP_RECORDS = CoordinatorSchemas.parse(keys=KEYS, values=VALUES)

CONSUMER_PROTOCOL_SCHEMAS = schemas(CONSUMER_PROTOCOL)


def decode_group_key(key: bytes | None) -> CoordinatorKey:
    """The key of a record of `__consumer_offsets`.

    Raises:
        UnsupportedVersionError: its type is unknown: such records are to be left alone.
        CorruptError: it is null or malformed.
    """
    return GROUP_RECORDS.decode_key(key)


def decode_group_value(record_type: int, value: bytes | None) -> MessageValue | None:
    """The value of a record whose key is of that type; None for a tombstone.

    Raises:
        UnsupportedVersionError: the type or the value's version is unknown.
        CorruptError: the value is malformed.
    """
    return GROUP_RECORDS.decode_value(record_type, value)


def describe_group_record(key: bytes | None) -> str:
    """The type of a record that may be malformed, for errors: `GroupMetadata record`."""
    if key is None or len(key) < 2:
        return "record without a type"
    (record_type,) = struct.unpack_from(">h", key)
    schema = GROUP_RECORDS.keys.get(record_type)
    if schema is None:
        return f"record of unknown type {record_type}"
    return f"{schema.name.removesuffix('Key')} record"


def decode_consumer_subscription(data: bytes) -> MessageValue:
    """The subscription of a member of a classic consumer group.

    Raises:
        CorruptError: it is malformed.
    """
    return _decode_consumer_protocol("ConsumerProtocolSubscription", data)


def decode_consumer_assignment(data: bytes) -> MessageValue:
    """The assignment of a member of a classic consumer group.

    Raises:
        CorruptError: it is malformed.
    """
    return _decode_consumer_protocol("ConsumerProtocolAssignment", data)


class ConsumerSubscription(NamedTuple):
    """The subscription of a consumer of the classic protocol, and the partitions that it has."""

    topics: tuple[str, ...]
    owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    rack_id: str | None = None


class ConsumerAssignment(NamedTuple):
    """The partitions of a consumer of the classic protocol."""

    partitions: tuple[tuple[str, tuple[int, ...]], ...]
    user_data: bytes | None = None


def parse_consumer_subscription(data: bytes) -> ConsumerSubscription:
    """A subscription, of a later version as of the last known one.

    Raises:
        CorruptError: it is malformed.

    Source: ConsumerProtocol.deserializeConsumerProtocolSubscription.
    """
    fields = _decode_known("ConsumerProtocolSubscription", data).fields
    owned = tuple((each["topic"], tuple(each["partitions"])) for each in fields["ownedPartitions"])
    return ConsumerSubscription(tuple(fields["topics"]), owned, fields["rackId"])


def parse_consumer_assignment(data: bytes) -> ConsumerAssignment:
    """An assignment, of a later version as of the last known one.

    Raises:
        CorruptError: it is malformed.

    Source: ConsumerProtocol.deserializeConsumerProtocolAssignment.
    """
    fields = _decode_known("ConsumerProtocolAssignment", data).fields
    topics = fields["assignedPartitions"]
    partitions = tuple((each["topic"], tuple(each["partitions"])) for each in topics)
    return ConsumerAssignment(partitions, fields["userData"])


def build_consumer_assignment(
    partitions: Iterable[tuple[str, Collection[int]]], version: int
) -> bytes:
    """An assignment of a version, or of the last known one.

    Source: ConsumerProtocol.serializeAssignment.
    """
    version = min(version, _CONSUMER_PROTOCOL_VERSION)
    topics = [{"topic": topic, "partitions": list(numbers)} for topic, numbers in partitions]
    fields = {"assignedPartitions": topics, "userData": None}
    schema = CONSUMER_PROTOCOL_SCHEMAS["ConsumerProtocolAssignment"]
    return struct.pack(">h", version) + encode_message(schema, version, fields)


def consumer_protocol_version(data: bytes) -> int:
    """The version of a subscription or an assignment; raises CorruptError if it has none.

    Source: ConsumerProtocol.deserializeVersion.
    """
    if len(data) < 2:
        raise CorruptError("a consumer's metadata without a version")
    (version,) = struct.unpack_from(">h", data)
    return int(version)


def _decode_known(name: str, data: bytes) -> MessageValue:
    version = consumer_protocol_version(data)
    if version < 0:
        raise CorruptError(f"{name} of version {version}")
    schema = CONSUMER_PROTOCOL_SCHEMAS[name]
    known = min(version, _CONSUMER_PROTOCOL_VERSION)
    return read_message(schema, known, ByteReader(data, 2))


def _decode_consumer_protocol(name: str, data: bytes) -> MessageValue:
    if len(data) < 2:
        raise CorruptError(f"{name} without a version")
    (version,) = struct.unpack_from(">h", data)
    return read_message(CONSUMER_PROTOCOL_SCHEMAS[name], version, ByteReader(data, 2))


def subscribed_topics(data: bytes) -> list[str]:
    """The topics that a member of a classic consumer group subscribes to, of any version.

    Raises:
        CorruptError: it is malformed.

    Source: ClassicGroup.computeSubscribedTopics, which looks no further than version 0 does.
    """
    if len(data) < 2:
        raise CorruptError("ConsumerProtocolSubscription without a version")
    schema = CONSUMER_PROTOCOL_SCHEMAS["ConsumerProtocolSubscription"]
    topics: list[str] = read_message(schema, 0, ByteReader(data, 2)).fields["topics"]
    return topics
