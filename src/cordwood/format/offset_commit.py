"""Fast coding of offset commits, which are most of the records in `__consumer_offsets`.

Records in another form than Kafka writes now are left to `cordwood.format.group_metadata`, which
reads all versions and reports errors.

Source: OffsetCommitKey, OffsetCommitValue of org.apache.kafka.coordinator.group.generated (4.3.0).
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from uuid import UUID

from cordwood.format.messages.primitives import STRING_BYTES_MAX
from cordwood.format.varint import decode_unsigned_varint, encode_unsigned_varint
from cordwood.model.errors import CorruptError, EncodingError
from cordwood.model.uuids import ZERO_UUID, uuid_of_bytes

KEY_TYPE = 1
VERSION = 4
VERSION_WITH_EXPIRY = 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_START = struct.Struct(">hqi")
_START_WITH_EXPIRY = struct.Struct(">hq")
_END_WITH_EXPIRY = struct.Struct(">qq")
# A value without metadata, up to its tags: the length of the metadata counts itself.
_WITHOUT_METADATA = struct.Struct(">hqiBq")
_NO_TAGS = b"\0"
_TOPIC_ID_TAG = b"\1\0\x10"  # one tag, of number 0, of 16 bytes
_UUID_BYTES = 16


class OffsetCommitKey(NamedTuple):
    """The group and the partition of an offset."""

    group: str
    topic: str
    partition: int


class OffsetCommitValue(NamedTuple):
    """The offset; times in ms, -1 for none."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: UUID


def encode_offset_commit_key(key: OffsetCommitKey) -> bytes:
    """The key's bytes.

    Raises:
        EncodingError: a value does not fit its field.
    """
    group, topic = _text(key.group, "group"), _text(key.topic, "topic")
    return b"".join(
        (
            _INT16.pack(KEY_TYPE),
            _INT16.pack(len(group)),
            group,
            _INT16.pack(len(topic)),
            topic,
            _INT32.pack(key.partition),
        )
    )


def encode_offset_commit_value(value: OffsetCommitValue) -> bytes:
    """The value's bytes: version 1 if it has an expiry timestamp, else version 4.

    Raises:
        EncodingError: a value does not fit its field.
    """
    if value.expire_timestamp != -1:
        metadata = _text(value.metadata, "metadata")
        return b"".join(
            (
                _START_WITH_EXPIRY.pack(VERSION_WITH_EXPIRY, value.offset),
                _INT16.pack(len(metadata)),
                metadata,
                _END_WITH_EXPIRY.pack(value.commit_timestamp, value.expire_timestamp),
            )
        )
    return encode_offset_commit(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        topic_id_tags(value.topic_id),
    )


def topic_id_tags(topic_id: UUID) -> bytes:
    """The end of a value of version 4, which names the topic."""
    return _NO_TAGS if topic_id == ZERO_UUID else _TOPIC_ID_TAG + topic_id.bytes


def encode_offset_commit(
    offset: int, leader_epoch: int, metadata: str, commit_timestamp: int, tags: bytes
) -> bytes:
    """A value of version 4, with what `topic_id_tags` gives.

    Raises:
        EncodingError: the metadata does not fit its field.
    """
    if not metadata:
        return _WITHOUT_METADATA.pack(VERSION, offset, leader_epoch, 1, commit_timestamp) + tags
    text = _text(metadata, "metadata")
    return b"".join(
        (
            _START.pack(VERSION, offset, leader_epoch),
            encode_unsigned_varint(len(text) + 1),
            text,
            _INT64.pack(commit_timestamp),
            tags,
        )
    )


def _text(value: str, name: str) -> bytes:
    data = value.encode()
    if len(data) > STRING_BYTES_MAX:
        raise EncodingError(
            f"the string field {name} is too long to be serialized: {len(data)} bytes"
        )
    return data


def decode_offset_commit_key(data: bytes | None) -> OffsetCommitKey | None:
    """The key of a committed offset; None for any other, and for one that is malformed."""
    try:
        if data is None or data[0] or data[1] > KEY_TYPE:
            return None
        (group_size,) = _INT16.unpack_from(data, 2)
        topic_at = 4 + group_size
        (topic_size,) = _INT16.unpack_from(data, topic_at)
        partition_at = topic_at + 2 + topic_size
        if group_size < 0 or topic_size < 0:
            return None
        (partition,) = _INT32.unpack_from(data, partition_at)
        return OffsetCommitKey(
            data[4:topic_at].decode(), data[topic_at + 2 : partition_at].decode(), partition
        )
    except (struct.error, IndexError, UnicodeDecodeError):
        return None


def decode_offset_commit_value(data: bytes) -> OffsetCommitValue | None:
    """The value, if it is of version 3 or 4 and as Kafka writes it; None otherwise."""
    try:
        version, offset, leader_epoch = _START.unpack_from(data)
        if version == VERSION:
            size, start = decode_unsigned_varint(data, _START.size)
            size -= 1
        elif version == VERSION - 1:
            (size,) = _INT16.unpack_from(data, _START.size)
            start = _START.size + _INT16.size
        else:
            return None
        if not 0 <= size <= STRING_BYTES_MAX:
            return None
        end = start + size
        (commit_timestamp,) = _INT64.unpack_from(data, end)
        topic_id = _topic_id(data[end + _INT64.size :]) if version == VERSION else ZERO_UUID
        if topic_id is None:
            return None
        metadata = data[start:end].decode()
    except (struct.error, CorruptError, UnicodeDecodeError):
        return None
    return OffsetCommitValue(offset, leader_epoch, metadata, commit_timestamp, -1, topic_id)


def _topic_id(tags: bytes) -> UUID | None:
    if tags == _NO_TAGS:
        return ZERO_UUID
    if tags.startswith(_TOPIC_ID_TAG) and len(tags) == len(_TOPIC_ID_TAG) + _UUID_BYTES:
        return uuid_of_bytes(tags[len(_TOPIC_ID_TAG) :])
    return None
