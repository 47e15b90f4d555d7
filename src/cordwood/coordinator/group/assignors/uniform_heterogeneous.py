"""The uniform assignor where members subscribe to different topics.

1. Each member gives up the topics that it does not subscribe to.
2. Partitions that no member has are given, topic by topic, to the subscribers with the fewest
   partitions.
3. Topic by topic, and again until nothing changes or `_ROUNDS_MAX` is reached, partitions move from
   the subscribers with the most partitions to those with the fewest.

The sizes that count are those over all topics. The subscribers of one topic then differ by at most
one partition, unless those with more have none of this topic to give up; the members of the group
may differ by more.

Differs: a present assignment with a partition that its topic does not have is a
PartitionAssignorError with the text of Java's ArrayIndexOutOfBoundsException, which Kafka does not
catch. A client gets UNKNOWN_SERVER_ERROR for both.

Source: org.apache.kafka.coordinator.group.assignor.UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from uuid import UUID

from cordwood.coordinator.group.assignors.balancing import NO_MEMBER, LeastLoaded, MostLoaded
from cordwood.coordinator.group.assignors.spec import (
    GroupAssignment,
    GroupSpec,
    PartitionAssignorError,
    PartitionCount,
    require_partition_count,
)
from cordwood.coordinator.group.assignors.targets import TargetAssignments
from cordwood.format.java_map import capacity_for

_ROUNDS_MAX = 16
# Java compares the halves of a Uuid as signed numbers.
_SIGNS = 1 << 127 | 1 << 63


def assign_heterogeneous(spec: GroupSpec, partition_count: PartitionCount) -> GroupAssignment:
    """The assignment of a group.

    Raises:
        PartitionAssignorError: a topic id is unknown, or a member has a partition that its topic
            does not have.
    """
    heterogeneous = _Heterogeneous(spec, partition_count)
    return heterogeneous.assign() if heterogeneous.has_topics else {}


class _Heterogeneous:
    """One computation. Members are numbers here: their positions in the group."""

    def __init__(self, spec: GroupSpec, partition_count: PartitionCount) -> None:
        self._spec = spec
        self._member_ids = list(spec.members)
        self._sizes = [0] * len(self._member_ids)
        self._targets = TargetAssignments(spec)
        self._subscribers: dict[UUID, list[int]] = {}
        # The member that has a partition, or `NO_MEMBER`.
        self._owners: dict[UUID, list[int]] = {}
        for member, member_spec in enumerate(spec.members.values()):
            for topic_id in member_spec.subscribed_topic_ids:
                if topic_id not in self._owners:
                    count = require_partition_count(topic_id, partition_count)
                    self._owners[topic_id] = [NO_MEMBER] * count
                    self._subscribers[topic_id] = []
                self._subscribers[topic_id].append(member)

    @property
    def has_topics(self) -> bool:
        """Whether any member subscribes to a topic that exists."""
        return bool(self._owners)

    def assign(self) -> GroupAssignment:
        """Applies the three steps."""
        self._retain()
        self._assign_rest()
        self._balance()
        return self._targets.result()

    def _retain(self) -> None:
        for member, (member_id, member_spec) in enumerate(self._spec.members.items()):
            subscribed = set(member_spec.subscribed_topic_ids)
            for topic_id, partitions in member_spec.assignment.items():
                if topic_id in subscribed:
                    self._sizes[member] += len(partitions)
                    self._take_up(topic_id, partitions, member)
                else:
                    self._targets.remove_topic(member_id, topic_id)

    def _take_up(self, topic_id: UUID, partitions: Iterable[int], member: int) -> None:
        owners = self._owners[topic_id]
        for partition in partitions:
            if not 0 <= partition < len(owners):
                raise PartitionAssignorError(
                    f"Index {partition} out of bounds for length {len(owners)}"
                )
            owners[partition] = member

    def _assign_rest(self) -> None:
        unassigned = {
            topic_id: [p for p, owner in enumerate(owners) if owner == NO_MEMBER]
            for topic_id, owners in self._owners.items()
        }
        for topic_id in self._sorted(topic_id for topic_id, rest in unassigned.items() if rest):
            least = LeastLoaded(self._by_size(topic_id), self._sizes)
            for partition in unassigned[topic_id]:
                self._give(topic_id, partition, least.next())

    def _sorted(self, topic_ids: Iterable[UUID]) -> list[UUID]:
        """Topics with the most partitions per subscriber first, then those with few subscribers."""

        def rank(topic_id: UUID) -> tuple[float, int, int]:
            subscriber_count = len(self._subscribers[topic_id])
            partitions_each = len(self._owners[topic_id]) / subscriber_count
            return -partitions_each, subscriber_count, topic_id.int ^ _SIGNS

        return sorted(topic_ids, key=rank)

    def _by_size(self, topic_id: UUID) -> list[int]:
        """The subscribers of a topic, those with the fewest partitions first."""
        return sorted(self._subscribers[topic_id], key=self._sizes.__getitem__)

    def _give(self, topic_id: UUID, partition: int, member: int) -> None:
        """Gives a partition to a member; the member that had it loses it."""
        owners = self._owners[topic_id]
        former = owners[partition]
        if former != NO_MEMBER:
            self._targets.remove(self._member_ids[former], topic_id, partition)
            self._sizes[former] -= 1
        each = -(-len(owners) // len(self._subscribers[topic_id]))
        self._targets.add(
            self._member_ids[member], topic_id, partition, initial_capacity=capacity_for(each)
        )
        owners[partition] = member
        self._sizes[member] += 1

    def _balance(self) -> None:
        """Balances each topic until a whole round has moved nothing since the last change."""
        topic_ids = self._sorted(
            topic_id for topic_id, members in self._subscribers.items() if len(members) > 1
        )
        last_changed = None
        for _ in range(_ROUNDS_MAX):
            for topic_id in topic_ids:
                if topic_id == last_changed:
                    return
                if self._balance_topic(topic_id) or last_changed is None:
                    last_changed = topic_id

    def _balance_topic(self, topic_id: UUID) -> bool:
        """Balances a topic; returns whether a partition of it was moved."""
        members = self._by_size(topic_id)
        if self._sizes[members[-1]] - self._sizes[members[0]] <= 1:
            return False
        owned: defaultdict[int, list[int]] = defaultdict(list)
        for partition, owner in enumerate(self._owners[topic_id]):
            owned[owner].append(partition)
        is_moved = False
        least = LeastLoaded(members, self._sizes)
        most = MostLoaded(members, self._sizes)
        while True:
            giver = most.next()
            while giver != NO_MEMBER and not owned[giver]:
                most.exclude()
                giver = most.next()
            if giver == NO_MEMBER:
                return is_moved
            taker = least.next()
            if most.level - least.level <= 1:
                return is_moved
            self._give(topic_id, owned[giver].pop(), taker)
            is_moved = True
