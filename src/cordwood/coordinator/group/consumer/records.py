"""Records of consumer groups in `__consumer_offsets`, and the state that they replay into.

Source: org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers,
GroupMetadataManager.replay (4.3.0).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from cordwood.coordinator.group.assignors.spec import stored_assignment
from cordwood.coordinator.group.classic.member import Client, Protocol
from cordwood.coordinator.group.consumer.group import NO_EPOCH, ConsumerGroup, Target
from cordwood.coordinator.group.consumer.member import (
    LEAVE_EPOCH,
    ClassicMetadata,
    ConsumerMember,
    Epochs,
    MemberState,
)
from cordwood.coordinator.group.consumer.subscriptions import ResolvedRegex
from cordwood.coordinator.group.shard import GroupShard
from cordwood.format.group_metadata import GROUP_RECORDS
from cordwood.format.java_map import JavaHashMap
from cordwood.model.errors import CorruptError

_VERSION: Final = 0


class RecordType(enum.IntEnum):
    """The types of a consumer group's records."""

    EPOCH = 3
    PARTITION_METADATA = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    REGEX = 16


CONSUMER_RECORD_TYPES: Final = frozenset(RecordType)
_NAME_FIELDS: Final[Mapping[RecordType, str]] = {
    RecordType.MEMBER: "memberId",
    RecordType.TARGET: "memberId",
    RecordType.CURRENT: "memberId",
    RecordType.REGEX: "regularExpression",
}


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerRecord:
    """A record of a group; `name` is a member's id or a regular expression, `value` its fields.

    No value makes it a tombstone.
    """

    record_type: RecordType
    group_id: str
    name: str = ""
    value: Mapping[str, Any] | None = None

    def encoded(self) -> tuple[bytes, bytes | None]:
        """Its key and value; raises EncodingError for one that does not fit."""
        fields = {"groupId": self.group_id}
        name_field = _NAME_FIELDS.get(self.record_type)
        if name_field is not None:
            fields[name_field] = self.name
        key = GROUP_RECORDS.encode_readable_key(self.record_type, fields)
        if self.value is None:
            return key, None
        value = GROUP_RECORDS.encode_readable_value(self.record_type, _VERSION, self.value)
        return key, value

    @classmethod
    def of(
        cls, record_type: int, key: Mapping[str, Any], value: Mapping[str, Any] | None
    ) -> ConsumerRecord:
        """The record of decoded fields."""
        known = RecordType(record_type)
        name = key[_NAME_FIELDS[known]] if known in _NAME_FIELDS else ""
        return cls(known, key["groupId"], name, value)

    def replay(self, shard: GroupShard) -> None:
        """Applies the record to its group.

        Raises:
            CorruptError: it contradicts the records before it.
        """
        group = self._group_in(shard)
        if group is None:
            return
        if self.record_type is RecordType.EPOCH and self.value is None:
            _require_removable(group)
            shard.remove(self.group_id)
        else:
            _REPLAYS[self.record_type](group, self)

    def _group_in(self, shard: GroupShard) -> ConsumerGroup | None:
        """The group, to be changed; None if a tombstone has none.

        A group is copied once in a change of the state: readers of what is committed have the old
        one.

        Source: GroupMetadataManager.getOrMaybeCreatePersistedConsumerGroup.
        """
        group = shard.consumer_group(self.group_id)
        if group is not None:
            if group.change_id != shard.change_id:
                group = group.copy(shard.change_id)
                shard.put(group)
            return group
        if self.value is None:
            # The group is gone, or one of another kind has taken its place.
            return None
        known = shard.groups.get(self.group_id)
        if known is not None and not known.gives_way:
            raise CorruptError(
                f"a record of a consumer group is of the {known.kind} group {self.group_id}"
            )
        group = ConsumerGroup(self.group_id, shard.change_id)
        shard.add(group)
        return group


# ---- what is written


def member_record(group_id: str, member: ConsumerMember) -> ConsumerRecord:
    """A member's subscription."""
    classic = member.classic
    value = {
        "instanceId": member.instance_id,
        "rackId": member.rack_id,
        "clientId": member.client.client_id,
        "clientHost": member.client.client_host,
        "subscribedTopicNames": sorted(member.topics),
        "subscribedTopicRegex": member.regex,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "serverAssignor": member.assignor,
        "classicMemberMetadata": None
        if classic is None
        else {
            "sessionTimeoutMs": classic.session_timeout_ms,
            "supportedProtocols": [
                {"name": each.name, "metadata": each.metadata} for each in classic.protocols
            ],
        },
    }
    return ConsumerRecord(RecordType.MEMBER, group_id, member.member_id, value)


def current_record(group_id: str, member: ConsumerMember) -> ConsumerRecord:
    """A member's epoch, state and partitions."""
    value = {
        "memberEpoch": member.member_epoch,
        "previousMemberEpoch": member.previous_epoch,
        "state": int(member.state),
        "assignedPartitions": _partitions(member.assigned),
        "partitionsPendingRevocation": _partitions(member.revoking),
    }
    return ConsumerRecord(RecordType.CURRENT, group_id, member.member_id, value)


def target_record(group_id: str, member_id: str, target: Target) -> ConsumerRecord:
    """A member's target assignment."""
    value = {
        "topicPartitions": [
            {"topicId": topic_id, "partitions": list(partitions)}
            for topic_id, partitions in target.items()
        ]
    }
    return ConsumerRecord(RecordType.TARGET, group_id, member_id, value)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> ConsumerRecord:
    """The epoch of the group's target assignment."""
    value = {"assignmentEpoch": epoch, "assignmentTimestamp": timestamp_ms}
    return ConsumerRecord(RecordType.TARGET_EPOCH, group_id, value=value)


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> ConsumerRecord:
    """The group's epoch."""
    value = {"epoch": epoch, "metadataHash": metadata_hash}
    return ConsumerRecord(RecordType.EPOCH, group_id, value=value)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex) -> ConsumerRecord:
    """The topics that a regular expression matches."""
    value = {
        "topics": sorted(resolved.topics),
        "version": resolved.version,
        "timestamp": resolved.timestamp_ms,
    }
    return ConsumerRecord(RecordType.REGEX, group_id, regex, value)


def tombstone(record_type: RecordType, group_id: str, name: str = "") -> ConsumerRecord:
    """The tombstone of a record."""
    return ConsumerRecord(record_type, group_id, name)


def member_tombstones(group_id: str, member_id: str) -> list[ConsumerRecord]:
    """The tombstones of a member that leaves."""
    types = (RecordType.CURRENT, RecordType.TARGET, RecordType.MEMBER)
    return [tombstone(each, group_id, member_id) for each in types]


def group_tombstones(group: ConsumerGroup, member_ids: Iterable[str]) -> list[ConsumerRecord]:
    """The tombstones of a group whose members in the log have these ids.

    Source: ConsumerGroup.createGroupTombstoneRecords.
    """
    group_id, ids = group.group_id, list(member_ids)
    return [
        *(tombstone(RecordType.CURRENT, group_id, each) for each in ids),
        *(tombstone(RecordType.TARGET, group_id, each) for each in ids),
        tombstone(RecordType.TARGET_EPOCH, group_id),
        *(tombstone(RecordType.MEMBER, group_id, each) for each in ids),
        *(tombstone(RecordType.REGEX, group_id, each) for each in group.resolved),
        tombstone(RecordType.PARTITION_METADATA, group_id),
        tombstone(RecordType.EPOCH, group_id),
    ]


def group_records(group: ConsumerGroup) -> list[ConsumerRecord]:
    """All records of a group that was a classic one.

    Source: ConsumerGroup.createConsumerGroupRecords.
    """
    group_id = group.group_id
    return [
        *(member_record(group_id, each) for each in group.members()),
        epoch_record(group_id, group.epoch, group.metadata_hash),
        *(target_record(group_id, each, group.target(each)) for each in group.member_ids()),
        target_epoch_record(group_id, group.assignment_epoch, group.assignment_timestamp_ms),
        *(current_record(group_id, each) for each in group.members()),
    ]


def _partitions(assignment: Epochs) -> list[dict[str, object]]:
    return [
        {
            "topicId": topic_id,
            "partitions": list(epochs),
            "assignmentEpochs": list(epochs.values()),
        }
        for topic_id, epochs in assignment.items()
    ]


# ---- what is read


def _replay_epoch(group: ConsumerGroup, record: ConsumerRecord) -> None:
    assert record.value is not None, "the caller removes the group"
    group.epoch = record.value["epoch"]
    group.metadata_hash = record.value["metadataHash"]


def _require_removable(group: ConsumerGroup) -> None:
    """Checks that a group's other tombstones have come before that of the group.

    Raises:
        CorruptError: they have not.
    """
    if len(group) or group.targets or group.assignment_epoch != NO_EPOCH:
        raise CorruptError(
            f"a tombstone removes group {group.group_id}, which still has {len(group)} members "
            f"and {len(group.targets)} target assignments"
        )


def _replay_partition_metadata(group: ConsumerGroup, record: ConsumerRecord) -> None:
    group.has_partition_metadata = record.value is not None


def _replay_target_epoch(group: ConsumerGroup, record: ConsumerRecord) -> None:
    if record.value is None:
        if group.targets:
            raise CorruptError(
                f"a tombstone removes the target assignment of {group.group_id}, which still has "
                f"{len(group.targets)} members"
            )
        group.assignment_epoch, group.assignment_timestamp_ms = NO_EPOCH, 0
    else:
        group.assignment_epoch = record.value["assignmentEpoch"]
        group.assignment_timestamp_ms = record.value["assignmentTimestamp"]


def _replay_target(group: ConsumerGroup, record: ConsumerRecord) -> None:
    if record.value is None:
        group.remove_target(record.name)
        return
    topics = record.value["topicPartitions"]
    target = stored_assignment((each["topicId"], each["partitions"]) for each in topics)
    group.put_target(record.name, target)


def _replay_member(group: ConsumerGroup, record: ConsumerRecord) -> None:
    value = record.value
    if value is None:
        _remove_member(group, record.name)
        return
    classic = value["classicMemberMetadata"]
    before = group.member(record.name) or ConsumerMember(member_id=record.name)
    group.put_member(
        ConsumerMember(
            member_id=record.name,
            member_epoch=before.member_epoch,
            previous_epoch=before.previous_epoch,
            state=before.state,
            instance_id=value["instanceId"],
            rack_id=value["rackId"],
            rebalance_timeout_ms=value["rebalanceTimeoutMs"],
            client=Client(value["clientId"], value["clientHost"]),
            topics=frozenset(value["subscribedTopicNames"]),
            regex=value["subscribedTopicRegex"],
            assignor=value["serverAssignor"],
            assigned=before.assigned,
            revoking=before.revoking,
            classic=None
            if classic is None
            else ClassicMetadata(
                classic["sessionTimeoutMs"],
                tuple(
                    Protocol(each["name"], each["metadata"])
                    for each in classic["supportedProtocols"]
                ),
            ),
        )
    )


def _remove_member(group: ConsumerGroup, member_id: str) -> None:
    """Source: GroupMetadataManager.replay(ConsumerGroupMemberMetadataKey, ...)."""
    member = group.member(member_id)
    if member is None:
        return
    if member.member_epoch != LEAVE_EPOCH:
        raise CorruptError(
            f"a tombstone removes member {member_id} of {group.group_id}, whose current "
            "assignment has no tombstone"
        )
    if member_id in group.targets:
        raise CorruptError(
            f"a tombstone removes member {member_id} of {group.group_id}, whose target "
            "assignment has no tombstone"
        )
    group.remove_member(member_id)


def _replay_current(group: ConsumerGroup, record: ConsumerRecord) -> None:
    value = record.value
    before = group.member(record.name)
    if value is None:
        if before is not None:
            group.put_member(_at_epoch(before, LEAVE_EPOCH, LEAVE_EPOCH, before.state, {}, {}))
        return
    epoch = value["memberEpoch"]
    group.put_member(
        _at_epoch(
            before or ConsumerMember(member_id=record.name),
            epoch,
            value["previousMemberEpoch"],
            MemberState(value["state"]),
            _epochs(value["assignedPartitions"], epoch),
            _epochs(value["partitionsPendingRevocation"], epoch),
        )
    )


def _at_epoch(
    member: ConsumerMember,
    epoch: int,
    previous_epoch: int,
    state: MemberState,
    assigned: Epochs,
    revoking: Epochs,
) -> ConsumerMember:
    return replace(
        member,
        member_epoch=epoch,
        previous_epoch=previous_epoch,
        state=state,
        assigned=assigned,
        revoking=revoking,
    )


def _epochs(topics: Iterable[Mapping[str, Any]], epoch: int) -> Epochs:
    """Source: Utils.assignmentFromTopicPartitions."""
    found: JavaHashMap[UUID, dict[int, int]] = JavaHashMap()
    for topic in topics:
        partitions, epochs = topic["partitions"], topic["assignmentEpochs"]
        if epochs is None or len(epochs) != len(partitions):
            # Written before Kafka 4.2, which did not know since when a member has a partition.
            epochs = [max(epoch, 0)] * len(partitions)
        since: JavaHashMap[int, int] = JavaHashMap()
        for partition, each in zip(partitions, epochs, strict=True):
            since.put(partition, each)
        found.put(topic["topicId"], dict(since.items()))
    return dict(found.items())


def _replay_regex(group: ConsumerGroup, record: ConsumerRecord) -> None:
    value = record.value
    resolved = (
        None
        if value is None
        else ResolvedRegex(frozenset(value["topics"]), value["version"], value["timestamp"])
    )
    group.put_resolved(record.name, resolved)


_REPLAYS: Final = {
    RecordType.EPOCH: _replay_epoch,
    RecordType.PARTITION_METADATA: _replay_partition_metadata,
    RecordType.MEMBER: _replay_member,
    RecordType.TARGET_EPOCH: _replay_target_epoch,
    RecordType.TARGET: _replay_target,
    RecordType.CURRENT: _replay_current,
    RecordType.REGEX: _replay_regex,
}
