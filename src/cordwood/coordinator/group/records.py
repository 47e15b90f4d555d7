"""Records of `__consumer_offsets`: as values that are replayed into the state, and as bytes.

Encoded records with text are decoded again before they are written: what is written must be
readable when the groups are loaded. The functions that encode raise EncodingError for a value that
does not fit.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers,
GroupCoordinatorRecordSerde (4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import Client, Member, Protocol
from cordwood.coordinator.group.consumer.records import CONSUMER_RECORD_TYPES, ConsumerRecord
from cordwood.coordinator.group.offsets import KEYS_CACHED_MAX, CommittedOffset, OffsetKey
from cordwood.coordinator.runtime import EncodedRecord
from cordwood.format.compression import Codec
from cordwood.format.coordinator_record import CoordinatorKey
from cordwood.format.group_metadata import (
    GROUP_METADATA_TYPE,
    GROUP_RECORDS,
    OFFSET_COMMIT_TYPES,
    decode_group_key,
    decode_group_value,
)
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
from cordwood.format.record_batch import build_batch_of
from cordwood.model.errors import EncodingError, UnsupportedVersionError
from cordwood.model.uuids import ZERO_UUID

KeyValue = EncodedRecord

_GROUP_METADATA_VERSION = 3
_OTHER_PROTOCOLS = {11: "share", 17: "streams"}
"""The protocol of a group, by the type of its first and its last record."""


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupRecord:
    """A classic group; a value of None is a tombstone.

    `group` is the group after this record. `fields` are those of the record in the log: members are
    written only for a stable group, pending requests never.
    """

    group_id: str
    group: ClassicGroup | None
    fields: Mapping[str, object] = field(default_factory=dict)


class OtherGroupRecord(NamedTuple):
    """A group of another protocol, of which only the name is known; None is a tombstone."""

    group_id: str
    protocol: str | None


CoordinatorRecord = OffsetRecord | GroupRecord | ConsumerRecord | OtherGroupRecord


def encode(records: Sequence[CoordinatorRecord]) -> list[KeyValue]:
    """The keys and values of records."""
    encoded: list[KeyValue] = []
    topic_id, tags = ZERO_UUID, topic_id_tags(ZERO_UUID)
    for record in records:
        if not isinstance(record, OffsetRecord):
            encoded.append(_encode_other(record))
            continue
        offset = record.offset
        if offset is None:
            encoded.append(offset_tombstone(record.key))
            continue
        if offset.topic_id is not topic_id:  # those of a topic follow each other
            topic_id, tags = offset.topic_id, topic_id_tags(offset.topic_id)
        encoded.append((_offset_key(record.key), _offset_value(offset, tags)))
    return encoded


def _encode_other(record: CoordinatorRecord) -> KeyValue:
    if isinstance(record, ConsumerRecord):
        return record.encoded()
    assert isinstance(record, GroupRecord), "records of other protocols are not written"
    if record.group is None:
        return _group_key(record.group_id), None
    value = GROUP_RECORDS.encode_readable_value(
        GROUP_METADATA_TYPE, _GROUP_METADATA_VERSION, record.fields
    )
    return _group_key(record.group_id), value


def decode(key: bytes | None, value: bytes | None) -> CoordinatorRecord | None:
    """The record of a key and a value; None for one of a type that is not used here.

    Raises:
        UnknownRecordTypeError: the key is of an unknown type.
        CorruptError: it is malformed, or its value is of an unknown version.
    """
    offset = decode_offset(key, value)
    if offset is not None:
        return offset
    decoded_key = _decode_key(key)
    if decoded_key.record_type in OFFSET_COMMIT_TYPES:
        return _decode_offset(decoded_key, value)
    if decoded_key.record_type == GROUP_METADATA_TYPE:
        decoded = decode_group_value(GROUP_METADATA_TYPE, value)
        group_id = decoded_key.fields["group"]
        group = None if decoded is None else _group_of(group_id, decoded.fields)
        return GroupRecord(group_id=group_id, group=group)
    if decoded_key.record_type in CONSUMER_RECORD_TYPES:
        decoded = decode_group_value(decoded_key.record_type, value)
        fields = None if decoded is None else decoded.fields
        return ConsumerRecord.of(decoded_key.record_type, decoded_key.fields, fields)
    protocol = _OTHER_PROTOCOLS.get(decoded_key.record_type)
    if protocol is None:
        return None
    return OtherGroupRecord(decoded_key.fields["groupId"], None if value is None else protocol)


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


class UnknownRecordTypeError(UnsupportedVersionError):
    """A record of a type that this release does not know."""


def _decode_key(key: bytes | None) -> CoordinatorKey:
    try:
        return decode_group_key(key)
    except UnsupportedVersionError as error:
        raise UnknownRecordTypeError(error.reason) from error


def _decode_offset(key: CoordinatorKey, value: bytes | None) -> OffsetRecord:
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


def _group_of(group_id: str, fields: Mapping[str, Any]) -> ClassicGroup:
    """A group as it was written; its members are members still.

    Source: GroupMetadataManager.replay(GroupMetadataKey, GroupMetadataValue).
    """
    members = fields["members"]
    timestamp = fields["currentStateTimestamp"]
    group = ClassicGroup(
        group_id,
        state=GroupState.STABLE if members else GroupState.EMPTY,
        generation_id=fields["generation"],
        protocol_type=fields["protocolType"] or None,
        protocol_name=fields["protocol"],
        leader_id=fields["leader"],
        state_timestamp_ms=None if timestamp == -1 else timestamp,
    )
    for member in members:
        rebalance_timeout_ms = member["rebalanceTimeout"]
        group.add(
            Member(
                member_id=member["memberId"],
                group_instance_id=member["groupInstanceId"],
                client=Client(member["clientId"], member["clientHost"]),
                rebalance_timeout_ms=(
                    member["sessionTimeout"] if rebalance_timeout_ms == -1 else rebalance_timeout_ms
                ),
                session_timeout_ms=member["sessionTimeout"],
                protocol_type=fields["protocolType"],
                protocols=(Protocol(fields["protocol"], member["subscription"]),),
                assignment=member["assignment"],
            )
        )
    group.subscribed_topics = group.compute_subscribed_topics()
    return group


def offset_commit(key: OffsetKey, offset: CommittedOffset) -> KeyValue:
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


def offset_tombstone(key: OffsetKey) -> KeyValue:
    """The tombstone of a committed offset."""
    return _offset_key(key), None


def group_metadata(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupRecord:
    """A group with its members as they are now, and these assignments by member id."""
    members = [
        {
            "memberId": member.member_id,
            "groupInstanceId": member.group_instance_id,
            "clientId": member.client.client_id,
            "clientHost": member.client.client_host,
            "rebalanceTimeout": member.rebalance_timeout_ms,
            "sessionTimeout": member.session_timeout_ms,
            "subscription": member.metadata(group.protocol_name),
            "assignment": assignments.get(member.member_id, b""),
        }
        for member in group.members()
    ]
    return _group(
        group,
        {
            "protocolType": group.protocol_type or "",
            "generation": group.generation_id,
            "protocol": group.protocol_name,
            "leader": group.leader_id,
            "members": members,
        },
    )


def new_group_metadata(group: ClassicGroup) -> GroupRecord:
    """A group that is about to be joined for the first time."""
    return _group(
        group,
        {"protocolType": "", "generation": 0, "protocol": None, "leader": None, "members": []},
    )


def group_tombstone(group_id: str) -> GroupRecord:
    """The tombstone of a group."""
    return GroupRecord(group_id=group_id, group=None)


def batch_of(
    records: Sequence[KeyValue],
    *,
    now_ms: int,
    codec: Codec,
    producer: TransactionalProducer | None = None,
) -> bytes:
    """The batch that writes them, as a part of the producer's transaction if there is one."""
    # The sequence is Kafka's, with and without a producer.
    if producer is None:
        return build_batch_of(records, timestamp=now_ms, codec=codec, base_sequence=0)
    return build_batch_of(
        records,
        timestamp=now_ms,
        codec=codec,
        base_sequence=0,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        is_transactional=True,
    )


@lru_cache(maxsize=KEYS_CACHED_MAX)
def _offset_key(key: OffsetKey) -> bytes:
    """The key's bytes, cached as the key is."""
    fields = OffsetCommitKey(key.group_id, key.topic, key.partition)
    data = encode_offset_commit_key(fields)
    if decode_offset_commit_key(data) != fields:
        raise EncodingError(f"{fields} does not read back as it is written")
    return data


def _group_key(group_id: str) -> bytes:
    return GROUP_RECORDS.encode_readable_key(GROUP_METADATA_TYPE, {"group": group_id})


def _group(group: ClassicGroup, fields: Mapping[str, object]) -> GroupRecord:
    timestamp = group.state_timestamp_ms
    return GroupRecord(
        group_id=group.group_id,
        group=group,
        fields={**fields, "currentStateTimestamp": -1 if timestamp is None else timestamp},
    )
