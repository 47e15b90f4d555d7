"""A classic group: its members, state and generation, and which of them are waited for.

What happens to it is in `cordwood.broker.groups.rebalance`.

Source: org.apache.kafka.coordinator.group.classic.ClassicGroup, ClassicGroupState.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

from cordwood.broker.groups.errors import GroupError, GroupRequestError
from cordwood.broker.groups.member import (
    JoinAnswer,
    JoinedMember,
    JoinReply,
    Member,
    Protocols,
    SyncAnswer,
)
from cordwood.format.group_metadata import subscribed_topics
from cordwood.format.java_map import JavaHashMap
from cordwood.model.clock import Clock
from cordwood.model.errors import CorruptError, UnsupportedVersionError

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(enum.Enum):
    """Where a group is on the way from one generation to the next."""

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


class ClassicGroup:
    """A group whose leader, one of its members, assigns.

    Invariant: `_awaiting_join` counts the members that have a `join_reply`.
    """

    def __init__(
        self,
        group_id: str,
        clock: Clock,
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
            clock: tells when its state changes.
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
        self._clock = clock
        self._members: JavaHashMap[str, Member] = JavaHashMap()
        self._static: dict[str, str] = {}
        self._supported: JavaHashMap[str, int] = JavaHashMap()
        self._awaiting_join = 0

    @classmethod
    def new(cls, group_id: str, clock: Clock) -> ClassicGroup:
        """An empty group that nobody has joined."""
        return cls(group_id, clock, state_timestamp_ms=clock.now_ms())

    # ---- what it is

    def is_in(self, *states: GroupState) -> bool:
        """Whether it is in one of these states."""
        return self.state in states

    @property
    def is_simple(self) -> bool:
        """True for one that has no members ever, only offsets.

        Source: ClassicGroup.isSimpleGroup.
        """
        return (
            self.protocol_type is None and self.state is GroupState.EMPTY and not self.pending_joins
        )

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members are consumers, which say what they subscribe to."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to a topic; consumers whose topics are unknown to all."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin."""
        return self.state in _MAY_FOLLOW[GroupState.PREPARING_REBALANCE]

    def transition_to(self, state: GroupState) -> None:
        """Goes on to a state that may follow its own."""
        assert self.state in _MAY_FOLLOW[state], (self.group_id, self.state, state)
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = self._clock.now_ms()

    # ---- its members

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def members(self) -> Iterator[Member]:
        """Its members, in Kafka's order; it may change meanwhile."""
        return iter([self._members[member_id] for member_id in self._members])

    def member(self, member_id: str) -> Member:
        """One of them."""
        return self._members[member_id]

    def is_leader(self, member_id: str) -> bool:
        """Whether that member assigns."""
        return self.leader_id is not None and self.leader_id == member_id

    def static_member_id(self, group_instance_id: str) -> str | None:
        """The id that a static member has at present, None if there is no such member."""
        return self._static.get(group_instance_id)

    @property
    def static_member_count(self) -> int:
        """How many of its members are static."""
        return len(self._static)

    @property
    def awaiting_join(self) -> int:
        """How many members have (re)joined, and wait for the others."""
        return self._awaiting_join

    @property
    def has_all_joined(self) -> bool:
        """Whether nobody is waited for, to complete a rebalance."""
        return len(self._members) == self._awaiting_join and not self.pending_joins

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long members may take to rejoin: the longest that one of them allows."""
        return max((member.rebalance_timeout_ms for member in self.members()), default=0)

    def add(self, member: Member, reply: JoinReply | None = None) -> None:
        """Takes in a member that speaks what the others do; `reply` waits for the rebalance."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self._static, member.group_instance_id
            self._static[member.group_instance_id] = member.member_id
        if not self._members:
            self.protocol_type = member.protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._members.put(member.member_id, member)
        self._count_protocols(member, 1)
        self._set_join_reply(member, reply)
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Takes a member out, or one that was given an id and has not come back with it."""
        member = self._members.remove(member_id)
        if member is not None:
            self._count_protocols(member, -1)
            self._set_join_reply(member, None)
            if member.group_instance_id is not None:
                self._static.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            self.leader_id = next(iter(self._members), None)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def update(
        self,
        member: Member,
        protocols: Protocols,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        reply: JoinReply | None,
    ) -> None:
        """Takes over what a member says anew as it rejoins."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        self._set_join_reply(member, reply)

    def replace_static(self, group_instance_id: str, old_id: str, new_id: str) -> Member:
        """Gives a static member another id; who waits under the old one is fenced."""
        removed = self._members[old_id]
        self.answer_join(
            removed, JoinAnswer(error_code=GroupError.FENCED_INSTANCE_ID, member_id=old_id)
        )
        self.answer_sync(removed, SyncAnswer(error_code=GroupError.FENCED_INSTANCE_ID))
        self._members.remove(old_id)
        member = Member(
            member_id=new_id,
            group_instance_id=removed.group_instance_id,
            client=removed.client,
            rebalance_timeout_ms=removed.rebalance_timeout_ms,
            session_timeout_ms=removed.session_timeout_ms,
            protocol_type=removed.protocol_type,
            protocols=removed.protocols,
            assignment=removed.assignment,
        )
        self._members.put(new_id, member)
        if self.is_leader(old_id):
            self.leader_id = new_id
        self._static[group_instance_id] = new_id
        return member

    def require_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Refuses who is no member, or no longer the one that a static member is.

        Raises:
            GroupRequestError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
        """
        if group_instance_id is not None:
            existing = self._static.get(group_instance_id)
            if existing is None:
                raise GroupRequestError(GroupError.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise GroupRequestError(GroupError.FENCED_INSTANCE_ID)
        if member_id not in self._members:
            raise GroupRequestError(GroupError.UNKNOWN_MEMBER_ID)

    def elect_joined_leader(self) -> bool:
        """Whether the leader has rejoined, or else another member that now is the leader.

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

    # ---- answers that are waited for

    def _set_join_reply(self, member: Member, reply: JoinReply | None) -> None:
        self._awaiting_join += (reply is not None) - (member.join_reply is not None)
        member.join_reply = reply

    def answer_join(self, member: Member, answer: JoinAnswer) -> None:
        """Answers a member that waits for the rebalance; another is not disturbed."""
        reply = member.join_reply
        if reply is not None:
            self._set_join_reply(member, None)
            reply(answer)

    def answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        """Answers a member that waits for its assignment; whether it did."""
        reply, member.sync_reply = member.sync_reply, None
        if reply is None:
            return False
        reply(answer)
        return True

    # ---- protocols

    def _count_protocols(self, member: Member, by: int) -> None:
        # A member may name a protocol twice, and is one member all the same.
        for name in dict.fromkeys(each.name for each in member.protocols):
            self._supported.put(name, self._supported.get(name, 0) + by)

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether one of these protocols is spoken by all members."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        count = len(self._members)
        return any(self._supported.get(each.name, 0) == count for each in protocols)

    def select_protocol(self) -> str:
        """The protocol that most members like best, of those that all speak."""
        count = len(self._members)
        candidates = {name for name in self._supported if self._supported[name] == count}
        votes: JavaHashMap[str, int] = JavaHashMap()
        for member in self.members():
            name = member.vote(candidates)
            votes.put(name, votes.get(name, 0) + 1)
        return max(votes, key=lambda name: votes[name])

    def begin_generation(self) -> None:
        """Goes on to the next generation: CompletingRebalance, or Empty without members.

        Source: ClassicGroup.initNextGeneration.
        """
        self.generation_id += 1
        has_members = len(self._members) > 0
        self.protocol_name = self.select_protocol() if has_members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(GroupState.COMPLETING_REBALANCE if has_members else GroupState.EMPTY)
        self.pending_syncs.clear()

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """What consumers subscribe to; None if that is not known, or they are no consumers."""
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
        """Its members as the leader is told of them."""
        return tuple(
            JoinedMember(
                member.member_id,
                member.group_instance_id,
                member.metadata(self.protocol_name),
            )
            for member in self.members()
        )
