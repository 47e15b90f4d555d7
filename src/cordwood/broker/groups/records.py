"""Records of `__consumer_offsets`: what a group and a committed offset are written as.

Each is read back before it is given: what is written must be readable when the groups are loaded.
The functions raise EncodingError for a value that does not fit its record.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers (4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cordwood.broker.groups.group import ClassicGroup
from cordwood.broker.groups.offsets import CommittedOffset, OffsetKey
from cordwood.format.compression import Codec
from cordwood.format.group_metadata import (
    GROUP_METADATA_TYPE,
    GROUP_RECORDS,
    decode_group_value,
)
from cordwood.format.offset_commit import (
    KEY_TYPE,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_offset_commit_key,
    decode_offset_commit_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)
from cordwood.format.record_batch import Record, build_batch
from cordwood.model.errors import EncodingError

_GROUP_METADATA_VERSION = 3


class KeyValue(NamedTuple):
    """A record to be written; no value makes it a tombstone."""

    key: bytes
    value: bytes | None


def offset_commit(key: OffsetKey, offset: CommittedOffset) -> KeyValue:
    """A committed offset; version 1 if it says itself when it expires."""
    value = OffsetCommitValue(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp=offset.commit_timestamp_ms,
        expire_timestamp=offset.expire_timestamp_ms,
        topic_id=offset.topic_id,
    )
    data = encode_offset_commit_value(value)
    # The quick reader knows no version that says itself when it expires.
    if value.expire_timestamp != -1:
        decode_group_value(KEY_TYPE, data)
    elif decode_offset_commit_value(data) != value:
        raise EncodingError(f"{value} does not read back as it is written")
    return KeyValue(_offset_key(key), data)


def offset_tombstone(key: OffsetKey) -> KeyValue:
    """The end of a committed offset."""
    return KeyValue(_offset_key(key), None)


def group_metadata(group: ClassicGroup, assignments: Mapping[str, bytes]) -> KeyValue:
    """A group with its members and these assignments, by member id."""
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


def new_group_metadata(group: ClassicGroup) -> KeyValue:
    """A group that somebody is about to join for the first time."""
    return _group(
        group,
        {"protocolType": "", "generation": 0, "protocol": None, "leader": None, "members": []},
    )


def group_tombstone(group_id: str) -> KeyValue:
    """The end of a group."""
    return KeyValue(_group_key(group_id), None)


def batch_of(records: Sequence[KeyValue], *, now_ms: int, codec: Codec) -> bytes:
    """The batch that writes them."""
    return build_batch(
        [Record(number, now_ms, key, value) for number, (key, value) in enumerate(records)],
        base_offset=0,
        base_sequence=0,  # as Kafka's, although there is no producer
        codec=codec,
    )


def _offset_key(key: OffsetKey) -> bytes:
    fields = OffsetCommitKey(key.group_id, key.topic, key.partition)
    data = encode_offset_commit_key(fields)
    if decode_offset_commit_key(data) != fields:
        raise EncodingError(f"{fields} does not read back as it is written")
    return data


def _group_key(group_id: str) -> bytes:
    return GROUP_RECORDS.encode_readable_key(GROUP_METADATA_TYPE, {"group": group_id})


def _group(group: ClassicGroup, fields: Mapping[str, object]) -> KeyValue:
    timestamp = group.state_timestamp_ms
    value = GROUP_RECORDS.encode_readable_value(
        GROUP_METADATA_TYPE,
        _GROUP_METADATA_VERSION,
        {**fields, "currentStateTimestamp": -1 if timestamp is None else timestamp},
    )
    return KeyValue(_group_key(group.group_id), value)
