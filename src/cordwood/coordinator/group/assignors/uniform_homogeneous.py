"""The uniform assignor where all members subscribe to the same topics.

Each member has a quota: the number of partitions divided by the number of members, and one more for
as many members as the division leaves partitions. Three steps:

1. Partitions that no member has are listed.
2. Each member gives up the topics that it does not subscribe to, and the partitions above its
   quota; the latter are added to the list. The extra partitions remain with members that have them.
3. Members below their quota get partitions from the list, one member after the other.

Source: org.apache.kafka.coordinator.group.assignor.UniformHomogeneousAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from cordwood.coordinator.group.assignors.spec import (
    GroupAssignment,
    GroupSpec,
    PartitionAssignorError,
    PartitionCount,
    require_partition_count,
)
from cordwood.coordinator.group.assignors.targets import TargetAssignments
from cordwood.format.java_map import JavaHashSet


def assign_homogeneous(spec: GroupSpec, partition_count: PartitionCount) -> GroupAssignment:
    """The assignment of a group with at least one member, whose sizes differ by one at most.

    Raises:
        PartitionAssignorError: a topic id is unknown, or partitions are left that no quota has
            space for, because members have partitions which their topics do not have.
    """
    first = next(iter(spec.members.values()))
    topic_ids = JavaHashSet.of(first.subscribed_topic_ids, first.subscription_size)
    if not topic_ids:
        return {}
    counts = {
        topic_id: require_partition_count(topic_id, partition_count) for topic_id in topic_ids
    }
    return _Homogeneous(spec, counts).assign()


class _Homogeneous:
    """One computation; `counts` has the partition count of each subscribed topic."""

    def __init__(self, spec: GroupSpec, counts: dict[UUID, int]) -> None:
        self._spec = spec
        self._topic_ids = counts.keys()
        self._quota, self._extra_members = divmod(sum(counts.values()), len(spec.members))
        self._targets = TargetAssignments(spec)
        self._unassigned = [
            (topic_id, partition)
            for topic_id, count in counts.items()
            for partition in range(count)
            if not spec.is_partition_assigned(topic_id, partition)
        ]

    def assign(self) -> GroupAssignment:
        """Applies the three steps."""
        self._fill(self._revoke())
        return self._targets.result()

    def _revoke(self) -> list[tuple[str, int]]:
        """The members that are below their quota, and by how many partitions."""
        unfilled = []
        for index, member_id in enumerate(self._spec.members):
            may_have_extra = self._extra_members > 0
            left = self._retain(member_id, self._quota + may_have_extra)
            members_left = len(self._spec.members) - index
            if left > 0 and may_have_extra and members_left > self._extra_members:
                # There are enough members after it to take the extra partitions, and some of them
                # may have one already.
                left -= 1
                may_have_extra = False
            if left > 0:
                unfilled.append((member_id, left))
            self._extra_members -= may_have_extra
        return unfilled

    def _retain(self, member_id: str, quota: int) -> int:
        """Has a member give up what it must not have; how much of its quota it does not use."""
        for topic_id, partitions in self._spec.members[member_id].assignment.items():
            if topic_id not in self._topic_ids:
                self._targets.remove_topic(member_id, topic_id)
            elif len(partitions) <= quota:
                quota -= len(partitions)
            else:
                self._give_up(member_id, topic_id, partitions, retained=quota)
                quota = 0
        return quota

    def _give_up(
        self, member_id: str, topic_id: UUID, partitions: Collection[int], *, retained: int
    ) -> None:
        """Takes all but the first so many partitions of a topic from a member."""
        for partition in list(partitions)[retained:]:
            self._targets.remove(member_id, topic_id, partition)
            self._unassigned.append((topic_id, partition))

    def _fill(self, unfilled: list[tuple[str, int]]) -> None:
        """Gives the partitions of the list to the members below their quota.

        Raises:
            PartitionAssignorError: partitions are left.
        """
        position = 0
        for member_id, quota in unfilled:
            self._targets.copy_for(member_id)
            for topic_id, partition in self._unassigned[position : position + quota]:
                self._targets.add(member_id, topic_id, partition)
            position += quota
        if position < len(self._unassigned):
            raise PartitionAssignorError("Partitions were left unassigned")
