"""The events of the classic protocol: its requests, timers of classic groups, failed writes."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.coordinator.effects import ReplyTo
from cordwood.coordinator.group.classic.member import (
    JoinReply,
    JoinRequest,
    LeaveReply,
    LeavingMember,
    SyncReply,
    SyncRequest,
)
from cordwood.coordinator.group.events import GroupEvent
from cordwood.model.kafka_errors import KafkaError


@dataclass(frozen=True, slots=True, kw_only=True)
class Join(GroupEvent):
    """A JoinGroup request."""

    request: JoinRequest
    reply_to: JoinReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync(GroupEvent):
    """A SyncGroup request."""

    request: SyncRequest
    reply_to: SyncReply


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(GroupEvent):
    """A Heartbeat request; the answer is an error code."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    reply_to: ReplyTo[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave(GroupEvent):
    """A LeaveGroup request."""

    group_id: str
    members: tuple[LeavingMember, ...]
    reply_to: ReplyTo[LeaveReply]


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
