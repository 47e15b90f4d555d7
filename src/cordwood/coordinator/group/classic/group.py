"""A classic group: its members, state and generation, and the requests that wait in it.

The transitions are in `joining` and `rebalance` of this package. A group in the coordinator's state
is immutable: an event changes a copy and replaces the group with it, so that the change can
be reverted. Copies share the members, which are immutable.

Source: org.apache.kafka.coordinator.group.classic.ClassicGroup, ClassicGroupState.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

from cordwood.coordinator.effects import Answer
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.classic.member import (
    JoinAnswer,
    JoinedMember,
    JoinReply,
    Member,
    Protocols,
    SyncAnswer,
    SyncReply,
)
from cordwood.coordinator.group.group import BY_COMMIT, ExpiryBase, Group
from cordwood.coordinator.group.offset_requests import CommitRequest
from cordwood.format.group_metadata import subscribed_topics
from cordwood.format.java_map import JavaHashMap
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError, UnsupportedVersionError

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(enum.Enum):
    """The state of a group between one generation and the next."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


_MAY_FOLLOW = {
    GroupState.EMPTY: {GroupState.PREPARING_REBALANCE},
    GroupState.PREPARING_REBALANCE: {
        GroupState.STABLE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.EMPTY,
    },
    GroupState.COMPLETING_REBALANCE: {GroupState.PREPARING_REBALANCE},
    GroupState.STABLE: {GroupState.COMPLETING_REBALANCE},
    GroupState.DEAD: set(GroupState),
}


class ClassicGroup(Group):
    """A group whose leader, one of its members, assigns.

    Invariant: `_awaiting_join` counts the members that have a `join_reply`.
    """

    kind = "classic"

    def __init__(
        self,
        group_id: str,
        *,
        state: GroupState = GroupState.EMPTY,
        generation_id: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
        state_timestamp_ms: int | None = None,
    ) -> None:
        """A group as it was stored, or a new one.

        Args:
            group_id: its name.
            state: Empty, or Stable if members follow.
            generation_id: how many rebalances it has seen.
            protocol_type: such as "consumer"; None for one that only has offsets.
            protocol_name: what its members agreed on.
            leader_id: the member that assigns.
            state_timestamp_ms: since when it is in its state; None if that is not known.
        """
        self.group_id = group_id
        self.state = state
        self.previous_state = GroupState.DEAD
        self.state_timestamp_ms = state_timestamp_ms
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.subscribed_topics: frozenset[str] | None = None
        self.is_new_member_added = False
        self.pending_joins: set[str] = set()
        self.pending_syncs: set[str] = set()
        self._members: JavaHashMap[str, Member] = JavaHashMap()
        self._static: dict[str, str] = {}
        self._supported: JavaHashMap[str, int] = JavaHashMap()
        self._awaiting_join = 0

    def copy(self) -> ClassicGroup:
        """A group that can be changed without changing this one."""
        other = copy(self)
        other.pending_joins = set(self.pending_joins)
        other.pending_syncs = set(self.pending_syncs)
        other._members = self._members.copy()
        other._static = self._static.copy()
        other._supported = self._supported.copy()
        return other

    def check_invariants(self) -> None:
        """Checks what must hold after each event."""
        waiting = sum(member.join_reply is not None for member in self.members())
        assert waiting == self._awaiting_join, (self.group_id, waiting, self._awaiting_join)
        static = {m.group_instance_id: m.member_id for m in self.members() if m.is_static}
        assert static == self._static, (self.group_id, static, self._static)
        assert self.leader_id is None or self.leader_id in self._members, self.leader_id
        assert self.pending_joins.isdisjoint(self._members), self.pending_joins

    # ---- queries

    def is_in(self, *states: GroupState) -> bool:
        """Whether the group is in one of these states."""
        return self.state in states

    @property
    def state_name(self) -> str:
        """The name of its state."""
        return self.state.value

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and none is joining."""
        return self.state is GroupState.EMPTY

    @property
    def is_simple(self) -> bool:
        """True for one that has no members ever, only offsets.

        Source: ClassicGroup.isSimpleGroup.
        """
        return (
            self.protocol_type is None and self.state is GroupState.EMPTY and not self.pending_joins
        )

    @property
    def gives_way(self) -> bool:
        """Whether it has offsets only, and becomes a group of the kind of the next record."""
        return self.is_simple

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether the members are consumers, whose metadata lists the topics they subscribe to."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to a topic; true for all topics if the topics are unknown."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin."""
        return self.state in _MAY_FOLLOW[GroupState.PREPARING_REBALANCE]

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Changes its state to one that may follow."""
        assert self.state in _MAY_FOLLOW[state], (self.group_id, self.state, state)
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now_ms

    # ---- its members

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def members(self) -> Iterator[Member]:
        """The members, in Kafka's order; the group may change during the iteration."""
        return iter([self._members[member_id] for member_id in self._members])

    def member(self, member_id: str) -> Member:
        """The member with that id."""
        return self._members[member_id]

    def is_leader(self, member_id: str) -> bool:
        """Whether that member is the leader, which computes the assignment."""
        return self.leader_id is not None and self.leader_id == member_id

    def static_member_id(self, group_instance_id: str) -> str | None:
        """The id that a static member has at present, None if there is no such member."""
        return self._static.get(group_instance_id)

    @property
    def awaiting_join(self) -> int:
        """The number of members that have (re)joined and wait for the others."""
        return self._awaiting_join

    @property
    def has_all_joined(self) -> bool:
        """Whether all members have joined, so that the rebalance can be completed."""
        return len(self._members) == self._awaiting_join and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time that members have to rejoin: the longest rebalance timeout of all members."""
        return max((member.rebalance_timeout_ms for member in self.members()), default=0)

    def add(self, member: Member) -> None:
        """Adds a member that supports a protocol which all members support."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static, member.group_instance_id
            self._static[member.group_instance_id] = member.member_id
        if not self._members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._members.put(member.member_id, member)
        self._count_protocols(member, 1)
        self._awaiting_join += member.join_reply is not None
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Removes a member, or one that was given an id and has not come back with it."""
        member = self._members.remove(member_id)
        if member is not None:
            self._count_protocols(member, -1)
            self._awaiting_join -= member.join_reply is not None
            if member.group_instance_id is not None:
                self._static.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self._members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def update(self, member_id: str, **changes: Any) -> Member:
        """Changes fields of a member other than its ids; the member as it is then."""
        before = self._members[member_id]
        member = replace(before, **changes)
        assert (member.member_id, member.group_instance_id) == (
            before.member_id,
            before.group_instance_id,
        )
        self._members.put(member_id, member)
        if member.protocols is not before.protocols:
            self._count_protocols(before, -1)
            self._count_protocols(member, 1)
        self._awaiting_join += (member.join_reply is not None) - (before.join_reply is not None)
        return member

    def replace_static(self, group_instance_id: str, old_id: str, new_id: str) -> Member:
        """Gives a static member another id. No request may wait under the old one."""
        removed = self._members[old_id]
        assert removed.join_reply is None, old_id
        assert removed.sync_reply is None, old_id
        self._members.remove(old_id)
        member = replace(removed, member_id=new_id, is_new=False)
        self._members.put(new_id, member)
        if self.is_leader(old_id):
            self.leader_id = new_id
        self._static[group_instance_id] = new_id
        return member

    def require_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Checks that a request comes from a current member, and not from a replaced static member.

        Raises:
            CoordinatorRequestError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if group_instance_id is not None:
            existing = self._static.get(group_instance_id)
            if existing is None:
                raise CoordinatorRequestError(ErrorCode.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise CoordinatorRequestError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self._members:
            raise CoordinatorRequestError(ErrorCode.UNKNOWN_MEMBER_ID)

    def elect_joined_leader(self) -> bool:
        """Makes sure that the leader has rejoined, or elects another member that has.

        Source: ClassicGroup.maybeElectNewJoinedLeader.
        """
        leader = None if self.leader_id is None else self._members.get(self.leader_id)
        if leader is None:
            return False
        if leader.join_reply is not None:
            return True
        for member in self.members():
            if member.join_reply is not None:
                self.leader_id = member.member_id
                return True
        return False

    # ---- offsets

    @property
    def expiry_base(self) -> ExpiryBase | None:
        """The time from which offsets age; None while no offset may expire.

        With members, offsets of subscribed topics do not expire. The retention of an empty group
        begins when it became empty; of a group that never had members, at each commit.

        Source: ClassicGroup.offsetExpirationCondition.
        """
        if self.protocol_type is None:
            return BY_COMMIT
        if self.state is GroupState.EMPTY:
            return ExpiryBase(self.state_timestamp_ms)
        has_known_topics = self.uses_consumer_protocol and self.subscribed_topics is not None
        return BY_COMMIT if has_known_topics and self.state is GroupState.STABLE else None

    def require_commit(self, request: CommitRequest, *, metadata_bytes_max: int) -> None:
        """Checks that offsets may be committed: by a member, or to a group without members.

        Raises:
            CoordinatorRequestError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
                REBALANCE_IN_PROGRESS.

        Source: ClassicGroup.validateOffsetCommit.
        """
        if request.generation_id < 0 and self.state is GroupState.EMPTY:
            return
        if request.generation_id >= 0 or request.member_id or request.group_instance_id is not None:
            self.require_member(request.member_id, request.group_instance_id)
            if request.generation_id != self.generation_id:
                raise CoordinatorRequestError(ErrorCode.ILLEGAL_GENERATION)
        elif request.producer is not None:
            return  # clients of old versions do not name the member
        elif self.state is not GroupState.EMPTY:
            # Who commits on their own must not disturb a group with members.
            raise CoordinatorRequestError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is GroupState.COMPLETING_REBALANCE and request.producer is None:
            raise CoordinatorRequestError(ErrorCode.REBALANCE_IN_PROGRESS)

    def require_offset_delete(self) -> None:
        """Checks that the group is empty, or that its members are consumers.

        Raises:
            CoordinatorRequestError: NON_EMPTY_GROUP.
        """
        if not self.is_empty and not self.uses_consumer_protocol:
            raise CoordinatorRequestError(ErrorCode.NON_EMPTY_GROUP)

    # ---- requests that wait

    def take_join_reply(self, member_id: str) -> JoinReply | None:
        """Removes and returns the pending JoinGroup of a member; None if there is none."""
        reply = self._members[member_id].join_reply
        if reply is not None:
            self.update(member_id, join_reply=None)
        return reply

    def take_sync_reply(self, member_id: str) -> SyncReply | None:
        """Removes and returns the pending SyncGroup of a member; None if there is none."""
        reply = self._members[member_id].sync_reply
        if reply is not None:
            self.update(member_id, sync_reply=None)
        return reply

    def answers_at_unload(self) -> list[Answer]:
        """The error answers for requests that wait in a group that moves to another coordinator.

        Source: GroupMetadataManager.onUnloaded.
        """
        error = ErrorCode.NOT_COORDINATOR
        answers = []
        for member in self.members():
            if member.join_reply is not None:
                join = JoinAnswer(error_code=error, member_id=member.member_id)
                answers.append(Answer(member.join_reply, join))
            if member.sync_reply is not None:
                answers.append(Answer(member.sync_reply, SyncAnswer(error_code=error)))
        return answers

    # ---- protocols

    def _count_protocols(self, member: Member, by: int) -> None:
        # A member may name a protocol twice, and is one member all the same.
        for name in dict.fromkeys(each.name for each in member.protocols):
            self._supported.put(name, self._supported.get(name, 0) + by)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether all members support one of these protocols."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        count = len(self._members)
        return any(self._supported.get(each.name, 0) == count for each in protocols)

    def select_protocol(self) -> str:
        """The protocol with most votes among those that all members support."""
        count = len(self._members)
        candidates = {name for name in self._supported if self._supported[name] == count}
        votes: JavaHashMap[str, int] = JavaHashMap()
        for member in self.members():
            name = member.vote(candidates)
            votes.put(name, votes.get(name, 0) + 1)
        return max(votes, key=lambda name: votes[name])

    def begin_generation(self, now_ms: int) -> None:
        """Begins the next generation: CompletingRebalance, or Empty without members.

        Source: ClassicGroup.initNextGeneration.
        """
        self.generation_id += 1
        has_members = len(self._members) > 0
        self.protocol_name = self.select_protocol() if has_members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(
            GroupState.COMPLETING_REBALANCE if has_members else GroupState.EMPTY, now_ms
        )
        self.pending_syncs.clear()

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the consumers subscribe to; None if unknown or not consumers."""
        if not self.uses_consumer_protocol:
            return None
        if not self._members:
            return frozenset()
        if self.protocol_name is None:
            return None
        try:
            return frozenset(
                topic
                for member in self.members()
                for topic in subscribed_topics(member.metadata(self.protocol_name))
            )
        except (CorruptError, UnsupportedVersionError):
            return None

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """Its members as the JoinGroup answer of the leader has them."""
        return tuple(
            JoinedMember(
                member.member_id,
                member.group_instance_id,
                member.metadata(self.protocol_name),
            )
            for member in self.members()
        )
