"""Target assignments while an assignor changes them: a member's is copied at its first change.

Source: org.apache.kafka.coordinator.group.assignor.AssignorHelpers.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.coordinator.group.assignors.spec import Assignment, GroupAssignment, GroupSpec
from cordwood.format.java_map import JavaHashMap, JavaHashSet

Copy = JavaHashMap[UUID, JavaHashSet[int]]


class TargetAssignments:
    """The assignment of each member: the present one until it is changed."""

    def __init__(self, spec: GroupSpec) -> None:
        self._members = spec.members
        self._changed: dict[str, Copy] = {}

    def copy_for(self, member_id: str) -> Copy:
        """The assignment of a member, to be changed.

        The copy may have another order than the original, even if nothing is changed.

        Source: AssignorHelpers.deepCopyAssignment.
        """
        copy = self._changed.get(member_id)
        if copy is None:
            present = self._members[member_id].assignment
            copy = JavaHashMap(len(present))
            for topic_id, partitions in present.items():
                copy.put(topic_id, JavaHashSet.of(partitions, len(partitions)))
            self._changed[member_id] = copy
        return copy

    def add(
        self, member_id: str, topic_id: UUID, partition: int, *, initial_capacity: int = 16
    ) -> None:
        """Gives a partition to a member.

        `initial_capacity` is that of the set of its partitions if it has none of the topic.
        """
        partitions = self.copy_for(member_id).compute_if_absent(
            topic_id, lambda: JavaHashSet(initial_capacity)
        )
        partitions.add(partition)

    def remove(self, member_id: str, topic_id: UUID, partition: int) -> None:
        """Takes a partition from a member that has it, and the topic if it has no other of it."""
        copy = self.copy_for(member_id)
        copy[topic_id].discard(partition)
        if not copy[topic_id]:
            copy.remove(topic_id)

    def remove_topic(self, member_id: str, topic_id: UUID) -> None:
        """Takes all partitions of a topic from a member."""
        self.copy_for(member_id).remove(topic_id)

    def result(self) -> GroupAssignment:
        """The assignment of every member."""
        return {member_id: self._result_of(member_id) for member_id in self._members}

    def _result_of(self, member_id: str) -> Assignment:
        copy = self._changed.get(member_id)
        if copy is None:
            return self._members[member_id].assignment
        return {topic_id: tuple(partitions) for topic_id, partitions in copy.items()}
