"""Records of committed offsets in `__consumer_offsets`: as values, and as bytes.

An encoded record with text is decoded again before it is written: what is written must be readable
when the groups are loaded. The functions that encode raise EncodingError for a value that does not
fit.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers (4.3.0).
"""

from __future__ import annotations

from functools import lru_cache

from cordwood.coordinator.group.offsets import KEYS_CACHED_MAX, CommittedOffset, OffsetKey
from cordwood.coordinator.log import EncodedRecord
from cordwood.format.coordinator_record import CoordinatorKey
from cordwood.format.group_metadata import decode_group_value
from cordwood.format.offset_commit import (
    KEY_TYPE,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offset_commit_key,
    decode_offset_commit_value,
    encode_offset_commit,
    encode_offset_commit_key,
    encode_offset_commit_value,
    topic_id_tags,
)
from cordwood.model.errors import EncodingError
from cordwood.model.uuids import ZERO_UUID


class OffsetRecord:
    """A committed offset; a value of None is a tombstone. A plain class as `CommittedOffset`."""

    __slots__ = ("key", "offset")

    def __init__(self, key: OffsetKey, offset: CommittedOffset | None) -> None:
        self.key = key
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, OffsetRecord)
            and self.key == other.key
            and self.offset == other.offset
        )

    def __hash__(self) -> int:
        return hash((self.key, self.offset))

    def __repr__(self) -> str:
        return f"OffsetRecord({self.key}, {self.offset})"


class OffsetEncoder:
    """Encodes records of offsets; those of a topic follow each other."""

    def __init__(self) -> None:
        self._topic_id = ZERO_UUID
        self._tags = topic_id_tags(ZERO_UUID)

    def encode(self, record: OffsetRecord) -> EncodedRecord:
        """The key and the value of a record."""
        offset = record.offset
        if offset is None:
            return offset_tombstone(record.key)
        if offset.topic_id is not self._topic_id:
            self._topic_id, self._tags = offset.topic_id, topic_id_tags(offset.topic_id)
        return _offset_key(record.key), _offset_value(offset, self._tags)


def decode_offset(
    key: bytes | None, value: bytes | None, record_offset: int = -1
) -> OffsetRecord | None:
    """The record of an offset as Kafka writes it now; None for any other."""
    known = decode_offset_commit_key(key)
    if known is None:
        return None
    place = OffsetKey(known.group, known.topic, known.partition)
    if value is None:
        return OffsetRecord(place, None)
    quick = decode_offset_commit_value(value)
    if quick is None:
        return None
    offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id = quick
    committed = CommittedOffset(
        offset, leader_epoch, metadata, commit_timestamp, expire_timestamp, topic_id, record_offset
    )
    return OffsetRecord(place, committed)


def decode_any_offset(key: CoordinatorKey, value: bytes | None) -> OffsetRecord:
    """The record of an offset in any version, of a decoded key.

    Raises:
        CorruptError: the value is malformed, or of an unknown version.
    """
    offset_key = OffsetKey(key.fields["group"], key.fields["topic"], key.fields["partition"])
    decoded = decode_group_value(key.record_type, value)
    if decoded is None:
        return OffsetRecord(offset_key, None)
    fields = decoded.fields
    return OffsetRecord(
        offset_key,
        CommittedOffset(
            offset=fields["offset"],
            leader_epoch=fields.get("leaderEpoch", -1),
            metadata=fields["metadata"],
            commit_timestamp_ms=fields["commitTimestamp"],
            expire_timestamp_ms=fields.get("expireTimestamp", -1),
            topic_id=fields.get("topicId", ZERO_UUID),
        ),
    )


def offset_commit(key: OffsetKey, offset: CommittedOffset) -> EncodedRecord:
    """A committed offset; version 1 if it has an expiry timestamp."""
    return _offset_key(key), _offset_value(offset, topic_id_tags(offset.topic_id))


def _offset_value(offset: CommittedOffset, tags: bytes) -> bytes:
    metadata = offset.metadata
    if offset.expire_timestamp_ms == -1:
        data = encode_offset_commit(
            offset.offset, offset.leader_epoch, metadata, offset.commit_timestamp_ms, tags
        )
        if metadata and decode_offset_commit_value(data) != _value_of(offset):
            raise EncodingError(f"{offset} does not read back as it is written")
        return data
    data = encode_offset_commit_value(_value_of(offset))
    # The fast reader does not support the version with an expiry timestamp.
    decode_group_value(KEY_TYPE, data)
    return data


def _value_of(offset: CommittedOffset) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
        topic_id=offset.topic_id,
    )


def offset_tombstone(key: OffsetKey) -> EncodedRecord:
    """The tombstone of a committed offset."""
    return _offset_key(key), None


@lru_cache(maxsize=KEYS_CACHED_MAX)
def _offset_key(key: OffsetKey) -> bytes:
    """The key's bytes, cached as the key is."""
    fields = OffsetCommitKey(key.group_id, key.topic, key.partition)
    data = encode_offset_commit_key(fields)
    if decode_offset_commit_key(data) != fields:
        raise EncodingError(f"{fields} does not read back as it is written")
    return data
