"""The groups and offsets of one partition of `__consumer_offsets`, as its records say.

Groups of other protocols (consumer, share and streams groups) are known by name only: their records
stay in the log as they are.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorShard.replay,
GroupMetadataManager.replay.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from cordwood.broker.groups.group import ClassicGroup, GroupState
from cordwood.broker.groups.member import Client, Member, Protocol
from cordwood.broker.groups.offsets import CommittedOffset, OffsetKey, OffsetStore
from cordwood.format.coordinator_record import CoordinatorKey
from cordwood.format.group_metadata import (
    GROUP_METADATA_TYPE,
    OFFSET_COMMIT_TYPES,
    decode_group_key,
    decode_group_value,
)
from cordwood.format.message_schema import ZERO_UUID
from cordwood.format.offset_commit import decode_offset_commit_key, decode_offset_commit_value
from cordwood.model.clock import Clock
from cordwood.model.errors import UnsupportedVersionError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC

_LOG = logging.getLogger(__name__)

_OTHER_PROTOCOLS = {3: "consumer", 11: "share", 17: "streams"}
"""By the type of the record that a group of that protocol begins and ends with."""


class GroupShard:
    """What a coordinator knows of one partition."""

    def __init__(self, partition: int, clock: Clock) -> None:
        self.partition = partition
        self.groups: dict[str, ClassicGroup] = {}
        self.other_groups: dict[str, str] = {}
        self.offsets = OffsetStore()
        self._clock = clock

    def group(self, group_id: str, *, create: bool = False) -> ClassicGroup | None:
        """A classic group, a new one if there is none and `create` says so."""
        group = self.groups.get(group_id)
        if group is None and create:
            group = self.groups[group_id] = ClassicGroup.new(group_id, self._clock)
        return group

    def replay(
        self, record_offset: int, producer_id: int, key: bytes | None, value: bytes | None
    ) -> None:
        """Takes in a record of the log; those of unknown types are logged and left alone.

        Args:
            record_offset: where it lies.
            producer_id: of the transaction that it belongs to, or -1.
            key: its key.
            value: its value, None for a tombstone.

        Raises:
            CorruptError: it is malformed, or its value is of an unknown version.
        """
        if self._replay_quickly(record_offset, producer_id, key, value):
            return
        try:
            decoded = decode_group_key(key)
        except UnsupportedVersionError as error:
            _LOG.warning(
                "The record at offset %d of %s-%d is ignored: %s. It may be left over from an "
                "aborted upgrade.",
                record_offset,
                GROUP_METADATA_TOPIC,
                self.partition,
                error,
            )
            return
        if decoded.record_type in OFFSET_COMMIT_TYPES:
            self._replay_offset(record_offset, producer_id, decoded, value)
        elif decoded.record_type == GROUP_METADATA_TYPE:
            self._replay_group(decoded.fields["group"], value)
        elif decoded.record_type in _OTHER_PROTOCOLS:
            self._replay_other(
                decoded.fields["groupId"],
                None if value is None else _OTHER_PROTOCOLS[decoded.record_type],
            )

    def _replay_quickly(
        self, record_offset: int, producer_id: int, key: bytes | None, value: bytes | None
    ) -> bool:
        """Takes in an offset as Kafka writes it now; whether it was one."""
        known = decode_offset_commit_key(key)
        if known is None:
            return False
        offset_key = OffsetKey(*known)
        if value is None:
            self.offsets.remove(offset_key)
            return True
        decoded = decode_offset_commit_value(value)
        if decoded is None:
            return False
        self._put(producer_id, offset_key, CommittedOffset(*decoded, record_offset))
        return True

    def _replay_offset(
        self, record_offset: int, producer_id: int, key: CoordinatorKey, value: bytes | None
    ) -> None:
        offset_key = OffsetKey(key.fields["group"], key.fields["topic"], key.fields["partition"])
        decoded = decode_group_value(key.record_type, value)
        if decoded is None:
            self.offsets.remove(offset_key)
            return
        fields = decoded.fields
        offset = CommittedOffset(
            offset=fields["offset"],
            leader_epoch=fields.get("leaderEpoch", -1),
            metadata=fields["metadata"],
            commit_timestamp_ms=fields["commitTimestamp"],
            expire_timestamp_ms=fields.get("expireTimestamp", -1),
            topic_id=fields.get("topicId", ZERO_UUID),
            record_offset=record_offset,
        )
        self._put(producer_id, offset_key, offset)

    def _put(self, producer_id: int, key: OffsetKey, offset: CommittedOffset) -> None:
        if key.group_id not in self.other_groups:
            self.group(key.group_id, create=True)
        if producer_id == -1:
            self.offsets.put(key, offset)
        else:
            self.offsets.put_pending(producer_id, key, offset)

    def _replay_group(self, group_id: str, value: bytes | None) -> None:
        decoded = decode_group_value(GROUP_METADATA_TYPE, value)
        if decoded is None:
            self.groups.pop(group_id, None)
            return
        self.other_groups.pop(group_id, None)
        self.groups[group_id] = _group_of(group_id, decoded.fields, self._clock)

    def _replay_other(self, group_id: str, protocol: str | None) -> None:
        if protocol is None:
            self.other_groups.pop(group_id, None)
            return
        group = self.groups.get(group_id)
        if group is not None and group.is_simple:
            del self.groups[group_id]
        self.other_groups[group_id] = protocol


def _group_of(group_id: str, fields: Mapping[str, Any], clock: Clock) -> ClassicGroup:
    """A group as it was stored; who was a member still is.

    Source: GroupMetadataManager.replay(GroupMetadataKey, GroupMetadataValue).
    """
    members = fields["members"]
    timestamp = fields["currentStateTimestamp"]
    group = ClassicGroup(
        group_id,
        clock,
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
