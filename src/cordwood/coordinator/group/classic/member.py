"""A member of a classic group, and the requests and answers of members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.coordinator.effects import ReplyTo
from cordwood.model.error_codes import ErrorCode

EMPTY_ASSIGNMENT = b""
NO_LEADER = ""
UNKNOWN_MEMBER_ID = ""


class Protocol(NamedTuple):
    """A protocol that a member supports, and its metadata for it."""

    name: str
    metadata: bytes


Protocols = tuple[Protocol, ...]
"""In the order in which the member prefers them."""


class MemberIds(NamedTuple):
    """Makes the ids of members that have none.

    A classic one is a Java UUID behind the client id, one of the consumer protocol a Kafka Uuid.
    """

    of_classic: Callable[[], str]
    of_consumer: Callable[[], str]


class Client(NamedTuple):
    """The client of a member, as DescribeGroups shows it."""

    client_id: str
    client_host: str


class JoinedMember(NamedTuple):
    """A member as the JoinGroup answer of the leader has it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    """An answer to JoinGroup."""

    error_code: int = ErrorCode.NONE
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class SyncAnswer(NamedTuple):
    """An answer to SyncGroup."""

    error_code: int = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = EMPTY_ASSIGNMENT


JoinReply = ReplyTo[JoinAnswer]
SyncReply = ReplyTo[SyncAnswer]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup request.

    `needs_member_id` is true if the client can join again with the member id that the answer
    gives it (KIP-394), `may_skip_assignment` if a leader understands that it must skip the
    assignment (KIP-814).
    """

    group_id: str
    member_id: str
    group_instance_id: str | None
    client: Client
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    needs_member_id: bool = True
    may_skip_assignment: bool = True
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup request; the leader sends all assignments, other members none."""

    group_id: str
    member_id: str
    group_instance_id: str | None
    generation_id: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()


class LeavingMember(NamedTuple):
    """A member named in a LeaveGroup request."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


class LeaveAnswer(NamedTuple):
    """The result for one of these members."""

    member_id: str
    group_instance_id: str | None
    error_code: int = ErrorCode.NONE


class LeaveReply(NamedTuple):
    """An answer to LeaveGroup: why nobody was removed, or what became of each member."""

    error_code: int = ErrorCode.NONE
    members: tuple[LeaveAnswer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member: its ids, its protocols, and its pending requests.

    Source: org.apache.kafka.coordinator.group.classic.ClassicGroupMember.
    """

    member_id: str
    group_instance_id: str | None
    client: Client
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = EMPTY_ASSIGNMENT
    is_new: bool = False
    join_reply: JoinReply | None = None
    sync_reply: SyncReply | None = None

    @property
    def is_static(self) -> bool:
        """True if its place is kept while it is away (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_alive_while_waiting(self) -> bool:
        """Whether it waits for an answer, so that its session must not expire."""
        return not self.is_new and (self.join_reply is not None or self.sync_reply is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for a protocol; empty if it does not support the protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol_name), b"")

    def vote(self, candidates: set[str]) -> str:
        """Its preferred protocol among the candidates, of which it supports at least one."""
        return next(each.name for each in self.protocols if each.name in candidates)
