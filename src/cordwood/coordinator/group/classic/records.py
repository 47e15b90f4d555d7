"""Records of classic groups in `__consumer_offsets`: as values that are replayed, and as bytes.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers,
GroupMetadataManager.replay(GroupMetadataKey, GroupMetadataValue) (4.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import Client, Member, Protocol
from cordwood.coordinator.group.shard import GroupShard
from cordwood.coordinator.log import EncodedRecord
from cordwood.format.group_metadata import GROUP_METADATA_TYPE, GROUP_RECORDS, decode_group_value

_GROUP_METADATA_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GroupMetadataRecord:
    """A classic group; a value of None is a tombstone.

    `group` is the group after this record. `fields` are those of the record in the log: members are
    written only for a stable group, pending requests never.
    """

    group_id: str
    group: ClassicGroup | None
    fields: Mapping[str, object] = field(default_factory=dict)

    def encoded(self) -> EncodedRecord:
        """Its key and value; raises EncodingError for one that does not fit."""
        key = GROUP_RECORDS.encode_readable_key(GROUP_METADATA_TYPE, {"group": self.group_id})
        if self.group is None:
            return key, None
        return key, GROUP_RECORDS.encode_readable_value(
            GROUP_METADATA_TYPE, _GROUP_METADATA_VERSION, self.fields
        )

    def replay(self, shard: GroupShard) -> None:
        """Puts the group into the state, or removes it."""
        if self.group is None:
            shard.remove(self.group_id)
        elif shard.change_id:
            shard.put(self.group)
        else:  # Kafka replays these records only when it loads them
            shard.add(self.group)


def group_metadata_record(group_id: str, value: bytes | None) -> GroupMetadataRecord:
    """The record of a group and a value in any version.

    Raises:
        CorruptError: the value is malformed, or of an unknown version.
    """
    decoded = decode_group_value(GROUP_METADATA_TYPE, value)
    group = None if decoded is None else _group_of(group_id, decoded.fields)
    return GroupMetadataRecord(group_id=group_id, group=group)


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


def group_metadata(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupMetadataRecord:
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


def new_group_metadata(group: ClassicGroup) -> GroupMetadataRecord:
    """A group that is about to be joined for the first time."""
    return _group(
        group,
        {"protocolType": "", "generation": 0, "protocol": None, "leader": None, "members": []},
    )


def group_tombstone(group_id: str) -> GroupMetadataRecord:
    """The tombstone of a group."""
    return GroupMetadataRecord(group_id=group_id, group=None)


def _group(group: ClassicGroup, fields: Mapping[str, object]) -> GroupMetadataRecord:
    timestamp = group.state_timestamp_ms
    return GroupMetadataRecord(
        group_id=group.group_id,
        group=group,
        fields={**fields, "currentStateTimestamp": -1 if timestamp is None else timestamp},
    )
