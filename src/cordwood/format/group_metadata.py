"""Keys and values of `__consumer_offsets`: committed offsets, and groups of every protocol.

Source: the schemas of org.apache.kafka.coordinator.group.generated; ConsumerProtocolSubscription
and ConsumerProtocolAssignment for what members of classic consumer groups keep inside.
"""

from __future__ import annotations

import struct

from cordwood.format.byte_reader import ByteReader
from cordwood.format.coordinator_record import CoordinatorKey, CoordinatorSchemas
from cordwood.format.group_schemas import CONSUMER_PROTOCOL, KEYS, VALUES
from cordwood.format.message_schema import MessageValue, read_message, schemas
from cordwood.model.errors import CorruptError

OFFSET_COMMIT_TYPES = frozenset({0, 1})
GROUP_METADATA_TYPE = 2

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
