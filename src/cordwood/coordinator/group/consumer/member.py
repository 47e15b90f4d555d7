"""A member of a consumer group, and what it asks for in a heartbeat.

Source: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember, MemberState;
KIP-848.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from cordwood.coordinator.group.classic.member import Client, Protocols

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2

Epochs = Mapping[UUID, Mapping[int, int]]
"""Partitions by topic id; for each, the member epoch at which it was assigned."""
Owned = tuple[tuple[UUID, tuple[int, ...]], ...]
"""The partitions that a member says it owns."""


_NO_CLIENT = Client("", "")


class MemberState(enum.IntEnum):
    """State of a member's reconciliation with its target assignment."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, _value: object) -> MemberState:
        return cls.UNKNOWN


class ClassicMetadata(NamedTuple):
    """The session timeout and protocols of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: Protocols


class TopicAssignment(NamedTuple):
    """Partitions of a topic in an answer."""

    topic_id: UUID
    partitions: tuple[int, ...]


class HeartbeatAnswer(NamedTuple):
    """An answer to ConsumerGroupHeartbeat; an assignment of None means that it has not changed."""

    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: tuple[TopicAssignment, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A ConsumerGroupHeartbeat request; None, or -1 for the timeout, means: as before.

    `may_describe` says of which topics the client may know.
    """

    group_id: str
    member_id: str
    member_epoch: int
    client: Client
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Owned | None = None
    may_describe: Callable[[str], bool] | None = None

    @property
    def is_full(self) -> bool:
        """Whether it has all fields that a member sends when it joins, or after an error."""
        return (
            self.rebalance_timeout_ms != -1
            and (self.topics is not None or self.regex is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member: its subscription, its epoch, and the partitions that it may use.

    `assigned` are those that it has or may take, `revoking` those that it must give up first.
    `named` are the topics in the order of the request that has just brought them; a record has them
    sorted.
    """

    member_id: str
    member_epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client: Client = _NO_CLIENT
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    assignor: str | None = None
    assigned: Epochs = field(default_factory=dict)
    revoking: Epochs = field(default_factory=dict)
    classic: ClassicMetadata | None = None
    named: tuple[str, ...] | None = field(default=None, compare=False)

    @property
    def uses_classic_protocol(self) -> bool:
        """Whether it sends JoinGroup and SyncGroup, and no ConsumerGroupHeartbeat."""
        return self.classic is not None

    @property
    def protocols(self) -> Protocols:
        """The classic protocols that it supports; none of a member that uses the other one."""
        return () if self.classic is None else self.classic.protocols

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it has, and has given up, all that a target assignment says."""
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def assignment_epoch(self, topic_id: UUID, partition: int) -> int | None:
        """The assignment's epoch of a partition that it has or revokes; None for others."""
        found = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if found is None else found
