"""The events of groups: requests, timers, periodic tasks, and failed writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from cordwood.coordinator.effects import ReplyTo
from cordwood.coordinator.events import CoordinatorEvent
from cordwood.coordinator.group.classic.member import (
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from cordwood.coordinator.group.consumer.group import ResolvedRegex
from cordwood.coordinator.group.consumer.member import HeartbeatAnswer, HeartbeatRequest
from cordwood.coordinator.group.offset_requests import (
    CommitRequest,
)
from cordwood.coordinator.group.records import OffsetRecord
from cordwood.model.audit import Requester
from cordwood.model.kafka_errors import KafkaError


class DeletedOffsets(NamedTuple):
    """An answer to OffsetDelete: an error for all, or a code for each partition in order."""

    error_code: int
    partitions: tuple[int, ...] = ()


class GroupEvent(CoordinatorEvent):
    """An event of a group."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(GroupEvent):
    """JoinGroup."""

    request: JoinRequest
    reply_to: JoinReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(GroupEvent):
    """SyncGroup."""

    request: SyncRequest
    reply_to: SyncReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(GroupEvent):
    """Heartbeat; the answer is an error code."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    reply_to: ReplyTo[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(GroupEvent):
    """LeaveGroup."""

    group_id: str
    members: tuple[LeavingMember, ...]
    reply_to: ReplyTo[LeaveReply]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat(GroupEvent):
    """ConsumerGroupHeartbeat."""

    request: HeartbeatRequest
    reply_to: ReplyTo[HeartbeatAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit(GroupEvent):
    """OffsetCommit; the answer is an error code. `records` are of offsets that may be committed."""

    is_long = True
    request: CommitRequest
    records: Sequence[OffsetRecord]
    reply_to: ReplyTo[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsets(GroupEvent):
    """OffsetDelete."""

    is_long = True
    group_id: str
    partitions: tuple[tuple[str, int], ...]
    requester: Requester
    reply_to: ReplyTo[DeletedOffsets]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroup(GroupEvent):
    """DeleteGroups, of one group; the answer is an error code."""

    is_long = True
    group_id: str
    requester: Requester
    reply_to: ReplyTo[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsDeleted(GroupEvent):
    """Topics were deleted; `recreated` has the ids of new topics of the same names."""

    is_long = True
    names: frozenset[str]
    recreated: Mapping[str, UUID]
    reply_to: ReplyTo[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBackOffsets(GroupEvent):
    """A topic is restored: its offsets count again, unless the group has committed since.

    The answer is how many do.
    """

    is_long = True
    records: Sequence[OffsetRecord]
    reply_to: ReplyTo[int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireOffsets(GroupEvent):
    """It is time to look for offsets of these groups that have expired."""

    group_ids: tuple[str, ...]
    reply_to: ReplyTo[None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsLoaded(GroupEvent):
    """The groups were read from the log: the sessions of their members begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialDelayEnded(GroupEvent):
    """The delay before the first rebalance of a group is over; `remaining_ms` it may be longer."""

    group_id: str
    delay_ms: int
    remaining_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinsExpired(GroupEvent):
    """The rebalance timeout has passed; members that have not joined are removed."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncsExpired(GroupEvent):
    """The time for members of a generation to send SyncGroup has passed."""

    group_id: str
    generation_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionExpired(GroupEvent):
    """A member has sent nothing for as long as its session lasts."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSessionExpired(GroupEvent):
    """A member of a consumer group has not sent in time what it had to."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationExpired(GroupEvent):
    """A member has not given up partitions in time; unless its epoch is another by now."""

    group_id: str
    member_id: str
    member_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegexesResolved(GroupEvent):
    """The regular expressions of a group were matched with the topics that a client may know."""

    group_id: str
    found: Mapping[str, ResolvedRegex]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentNotWritten(GroupEvent):
    """The assignments that a leader has brought are not in the log."""

    group_id: str
    member_id: str
    error: KafkaError
    reply_to: SyncReply


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberNotWritten(GroupEvent):
    """The new id of a static member is not in the log; `member_id` is the old one."""

    group_id: str
    member_id: str
    error: KafkaError
    reply_to: JoinReply


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitNotWritten(GroupEvent):
    """The offsets of a commit are not in the log."""

    request: CommitRequest
    error: KafkaError
    reply_to: ReplyTo[int]
