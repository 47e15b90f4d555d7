"""A member on its way from the partitions it has to those it is to have.

Source: org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder; KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar
from uuid import UUID

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.consumer.group import NO_EPOCH, Target
from cordwood.coordinator.group.consumer.member import (
    ConsumerMember,
    Epochs,
    MemberState,
    Owned,
)
from cordwood.format.java_map import JavaHashMap, JavaHashSet, capacity_for
from cordwood.model.error_codes import ErrorCode

K = TypeVar("K", int, UUID)
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciliation:
    """A member's target, and what is known of it and of the partitions of others.

    `subscribed` are the ids of those topics it subscribes to that exist, `has_topics` whether it
    subscribes to any; `owned` are the partitions that it says it has, None if it did not say;
    `partition_epoch` is -1 for a partition nobody has.
    """

    target_epoch: int
    target: Target
    subscribed: frozenset[UUID]
    has_topics: bool
    has_subscription_changed: bool
    owned: Owned | None
    partition_epoch: Callable[[UUID, int], int]

    def of(self, member: ConsumerMember) -> ConsumerMember:
        """The member after its next step.

        Raises:
            CoordinatorRequestError: FENCED_MEMBER_EPOCH, its state is of a later release.
        """
        state = member.state
        if state is MemberState.UNKNOWN:
            if self.owned != ():
                raise CoordinatorRequestError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. The member must abandon all "
                    "its partitions and rejoin.",
                )
            return self._next(member, self.target_epoch)
        if state is MemberState.STABLE and member.member_epoch == self.target_epoch:
            return self._shrunk(member) if self.has_subscription_changed else member
        if state is MemberState.UNREVOKED_PARTITIONS and self._still_has(member.revoking):
            return self._shrunk(member) if self.has_subscription_changed else member
        return self._next(member, member.member_epoch)

    def _still_has(self, partitions: Epochs) -> bool:
        """Whether the member has any of these partitions, or has not said."""
        if self.owned is None:
            return True
        return any(
            partition in partitions.get(topic_id, {})
            for topic_id, owned in self.owned
            for partition in owned
        )

    def _shrunk(self, member: ConsumerMember) -> ConsumerMember:
        """A copy without the topics that the member does not subscribe to any more.

        Source: updateCurrentAssignment.
        """
        kept, revoking = _copy_of(member.assigned), _copy_of(member.revoking)
        for topic_id, partitions in member.assigned.items():
            if topic_id not in self.subscribed:
                kept.remove(topic_id)
                if topic_id in revoking:
                    both = _copy_of(revoking[topic_id])
                    for partition, epoch in partitions.items():
                        both.put(partition, epoch)
                    revoking.put(topic_id, both)
                else:
                    # HashMap.merge adds a key as computeIfAbsent does: first in its bucket, and
                    # the table grows with the key after the one that fills it.
                    revoking.compute_if_absent(topic_id, partial(_same, partitions))
        if len(kept) == len(member.assigned) and (self.has_topics or member.revoking):
            return member
        if revoking and self._still_has(revoking):
            # A member of no topic at all hands over the very map that it has.
            moved = revoking if self.has_topics or member.revoking else member.assigned
            return _moved(
                member, member.member_epoch, MemberState.UNREVOKED_PARTITIONS, kept, moved
            )
        return _moved(member, member.member_epoch, member.state, kept, member.revoking)

    def _next(self, member: ConsumerMember, epoch: int) -> ConsumerMember:
        """Gives up what it is not to have; when that is done, takes what is free.

        Source: computeNextAssignment.
        """
        assigned: JavaHashMap[UUID, JavaHashMap[int, int]] = JavaHashMap()
        revoking: JavaHashMap[UUID, JavaHashMap[int, int]] = JavaHashMap()
        taken: JavaHashMap[UUID, list[int]] = JavaHashMap()
        is_waiting = False
        topic_ids = JavaHashSet.of(self.target, len(self.target))
        for topic_id in member.assigned:
            topic_ids.add(topic_id)
        for topic_id in topic_ids:
            target = self.target.get(topic_id, ()) if topic_id in self.subscribed else ()
            present: Mapping[int, int] = member.assigned.get(topic_id, {})
            kept, lost = _copy_of(present), _copy_of(present)
            for partition in present:
                (lost if partition in target else kept).remove(partition)
            missing = [p for p in target if p not in kept]
            free = [p for p in missing if self._is_free(member, topic_id, p)]
            is_waiting |= len(free) < len(missing)
            if kept:
                assigned.put(topic_id, kept)
            if lost:
                revoking.put(topic_id, lost)
            if free:
                taken.put(topic_id, free)
        if revoking and self._still_has(revoking):
            return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
        for topic_id, free in taken.items():
            epochs = assigned.compute_if_absent(topic_id, JavaHashMap)
            for partition in free:
                epochs.put(partition, self.target_epoch)
        state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
        return _moved(member, self.target_epoch, state, assigned, {})

    def _is_free(self, member: ConsumerMember, topic_id: UUID, partition: int) -> bool:
        return self.partition_epoch(
            topic_id, partition
        ) == NO_EPOCH or partition in member.revoking.get(topic_id, {})


def _same(value: V) -> V:
    return value


def _copy_of(values: Mapping[K, V]) -> JavaHashMap[K, V]:
    """A copy in the order that a `new HashMap(map)` has; that of nothing has no table yet."""
    found: JavaHashMap[K, V] = JavaHashMap(capacity_for(len(values)) if values else None)
    for key, value in values.items():
        found.put(key, value)
    return found


def _moved(
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Epochs, revoking: Epochs
) -> ConsumerMember:
    """The member at an epoch; the epoch that it had becomes the previous one."""
    return replace(
        member,
        member_epoch=epoch,
        previous_epoch=member.member_epoch,
        state=state,
        assigned={topic_id: dict(epochs.items()) for topic_id, epochs in assigned.items()},
        revoking={topic_id: dict(epochs.items()) for topic_id, epochs in revoking.items()},
    )
