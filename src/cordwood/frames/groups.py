"""Groups of all kinds: the current state of `__consumer_offsets`, as a coordinator replays it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final
from uuid import UUID

import pyarrow as pa

from cordwood.broker.coordinators.group_log import GroupReplay
from cordwood.coordinator.group.classic.group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from cordwood.coordinator.group.classic.member import Member
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import ConsumerMember
from cordwood.coordinator.group.group import Group
from cordwood.coordinator.group.shard import GroupShard
from cordwood.coordinator.group.unserved import UnservedGroup
from cordwood.coordinator.timeline import Timeline
from cordwood.format.group_metadata import (
    parse_consumer_assignment,
    parse_consumer_subscription,
)
from cordwood.frames.internal_logs import InternalLog, internal_logs
from cordwood.frames.options import FrameOptions
from cordwood.frames.rows import TIMESTAMP, Row, batches_of, timestamp
from cordwood.frames.table import Table
from cordwood.frames.unserved_groups import UnservedRecords
from cordwood.frames.wanted import Wanted
from cordwood.model.errors import CorruptError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.model.uuids import uuid_text

#: What a member has of a topic, or of a subtopology; without what its kind does not write.
_ASSIGNMENT = pa.struct(
    {
        "topic": pa.string(),
        "topicId": pa.string(),
        "subtopologyId": pa.string(),
        "role": pa.string(),
        "partitions": pa.list_(pa.int32()),
    }
)
_MEMBER = pa.struct(
    {
        "memberId": pa.string(),
        "instanceId": pa.string(),
        "clientId": pa.string(),
        "clientHost": pa.string(),
        "rackId": pa.string(),
        "rebalanceTimeoutMs": pa.int32(),
        "sessionTimeoutMs": pa.int32(),
        "epoch": pa.int32(),
        "subscribedTopics": pa.list_(pa.string()),
        "subscribedTopicRegex": pa.string(),
        "assignor": pa.string(),
        "assignment": pa.list_(_ASSIGNMENT),
    }
)
_SCHEMA: Final = pa.schema(
    {
        "groupId": pa.string(),
        "type": pa.string(),
        "state": pa.string(),
        "protocolType": pa.string(),
        "protocol": pa.string(),
        "generation": pa.int32(),
        "leader": pa.string(),
        "stateTimestamp": TIMESTAMP,
        "epoch": pa.int32(),
        "assignmentEpoch": pa.int32(),
        "members": pa.list_(_MEMBER),
        "recordPartition": pa.int32(),
    }
)


def _parts(options: FrameOptions, _wanted: Wanted) -> list[InternalLog]:
    return internal_logs(GROUP_METADATA_TOPIC, options)


def _read(part: InternalLog, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return batches_of(_Groups(part).rows(), _SCHEMA, columns)


class _Groups:
    """The groups of a partition of `__consumer_offsets`."""

    def __init__(self, part: InternalLog) -> None:
        self._part = part
        self._shard = GroupShard(part.partition, Timeline())
        part.replay(GroupReplay(self._shard))

    def rows(self) -> Iterator[Row]:
        for group in self._shard.groups.values():
            yield {
                "groupId": group.group_id,
                "type": group.kind,
                "state": group.state_name,
                "protocolType": group.protocol_type,
                "recordPartition": self._part.partition,
                **self._of_kind(group),
            }

    def _of_kind(self, group: Group) -> Row:
        if isinstance(group, ClassicGroup):
            return _classic(group)
        if isinstance(group, ConsumerGroup):
            return _consumer(group)
        assert isinstance(group, UnservedGroup), group
        return self._unserved.row(group)

    @cached_property
    def _unserved(self) -> UnservedRecords:
        # Most logs have no such groups, and are read once.
        return UnservedRecords(self._part.batches())


def _classic(group: ClassicGroup) -> Row:
    return {
        "protocol": group.protocol_name,
        "generation": group.generation_id,
        "leader": group.leader_id,
        "stateTimestamp": timestamp(group.state_timestamp_ms),
        "members": [_classic_member(group, member) for member in group.members()],
    }


def _classic_member(group: ClassicGroup, member: Member) -> Row:
    topics, assignment = None, None
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        topics = _subscribed(member.metadata(group.protocol_name))
        assignment = _assigned(member.assignment)
    return {
        "memberId": member.member_id,
        "instanceId": member.group_instance_id,
        "clientId": member.client.client_id,
        "clientHost": member.client.client_host,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "sessionTimeoutMs": member.session_timeout_ms,
        "subscribedTopics": topics,
        "assignment": assignment,
    }


def _subscribed(metadata: bytes) -> list[str] | None:
    """The topics of a subscription; null if it is malformed: its client wrote it."""
    try:
        return list(parse_consumer_subscription(metadata).topics)
    except CorruptError:
        return None


def _assigned(assignment: bytes) -> list[Row] | None:
    """The partitions of an assignment, null as above."""
    try:
        topics = parse_consumer_assignment(assignment).partitions
    except CorruptError:
        return None
    return [{"topic": topic, "partitions": list(numbers)} for topic, numbers in topics]


def _consumer(group: ConsumerGroup) -> Row:
    return {
        "protocol": group.preferred_assignor,
        "epoch": group.epoch,
        "assignmentEpoch": group.assignment_epoch,
        "members": [_consumer_member(member) for member in group.members()],
    }


def _consumer_member(member: ConsumerMember) -> Row:
    classic = member.classic
    return {
        "memberId": member.member_id,
        "instanceId": member.instance_id,
        "clientId": member.client.client_id,
        "clientHost": member.client.client_host,
        "rackId": member.rack_id,
        "rebalanceTimeoutMs": member.rebalance_timeout_ms,
        "sessionTimeoutMs": None if classic is None else classic.session_timeout_ms,
        "epoch": member.member_epoch,
        "subscribedTopics": sorted(member.topics),
        "subscribedTopicRegex": member.regex or None,
        "assignor": member.assignor,
        "assignment": [_of_topic(*each) for each in member.assigned.items()],
    }


def _of_topic(topic_id: UUID, partitions: Iterable[int]) -> Row:
    return {"topicId": uuid_text(topic_id), "partitions": list(partitions)}


GROUPS: Final = Table(
    name="groups",
    schema=_SCHEMA,
    default_columns=tuple(_SCHEMA.names),
    options=("isolation",),
    parts=_parts,
    read=_read,
)
