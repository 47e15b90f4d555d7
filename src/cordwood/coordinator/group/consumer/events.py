"""The events of consumer groups: heartbeats, timers, and regular expressions that are resolved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cordwood.coordinator.effects import ReplyTo
from cordwood.coordinator.group.consumer.member import HeartbeatAnswer, HeartbeatRequest
from cordwood.coordinator.group.consumer.subscriptions import ResolvedRegex
from cordwood.coordinator.group.events import GroupEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerHeartbeat(GroupEvent):
    """A ConsumerGroupHeartbeat request."""

    request: HeartbeatRequest
    reply_to: ReplyTo[HeartbeatAnswer]


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
