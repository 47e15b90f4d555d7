"""The assignor "range": consecutive partitions of each topic for each of its subscribers.

Subscribers have an order, and each gets as many partitions as the division by their number gives;
the first of them get one more while partitions remain. Topics that all members subscribe to and
that have the same number of partitions are split alike. Present assignments do not count; but
static members come first, in the order of their instance ids, so that they get the same partitions
under a new member id.

Source: org.apache.kafka.coordinator.group.assignor.RangeAssignor, RangeSet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from cordwood.coordinator.group.assignors.spec import (
    Assignment,
    GroupAssignment,
    GroupSpec,
    MemberSpec,
    PartitionCount,
    require_partition_count,
)
from cordwood.format.java_map import JavaHashMap, capacity_for


def assign_range(spec: GroupSpec, partition_count: PartitionCount) -> GroupAssignment:
    """The assignment of a group; each set of partitions is a `range`.

    Raises:
        PartitionAssignorError: a member subscribes to a topic id that no topic has.
    """
    members = sorted(spec.members.items(), key=_rank)
    if not members:
        return {}
    first = members[0][1]
    if spec.is_homogeneous:
        subscribers = dict.fromkeys(first.subscribed_topic_ids, len(members))
    else:
        subscribers = Counter(
            topic_id for _, member in members for topic_id in member.subscribed_topic_ids
        )
    splits = {
        topic_id: _Split(
            require_partition_count(
                topic_id, partition_count, "Member is subscribed to a non-existent topic"
            ),
            subscriber_count,
        )
        for topic_id, subscriber_count in subscribers.items()
    }
    found = {}
    for member_id, member in members:
        if spec.is_homogeneous:
            found[member_id] = _next_ranges(splits, splits, len(splits))
        else:
            found[member_id] = _next_ranges(
                splits, member.subscribed_topic_ids, member.subscription_size
            )
    return found


def _rank(entry: tuple[str, MemberSpec]) -> tuple[bool, bytes]:
    """Static members first, in the order of Java's strings: that of their UTF-16 code units."""
    member_id, member = entry
    text = member_id if member.instance_id is None else member.instance_id
    return member.instance_id is None, text.encode("utf-16-be", "surrogatepass")


class _Split:
    """The partitions of a topic, of which each subscriber takes the next ones."""

    __slots__ = ("_each", "_extra", "_next")

    def __init__(self, partition_count: int, subscriber_count: int) -> None:
        self._each, self._extra = divmod(partition_count, subscriber_count)
        self._next = 0

    def take(self) -> range:
        """The partitions of the next subscriber."""
        start = self._next
        self._next += self._each + (self._extra > 0)
        self._extra -= self._extra > 0
        return range(start, self._next)


def _next_ranges(splits: dict[UUID, _Split], topic_ids: Iterable[UUID], size: int) -> Assignment:
    """The partitions of the next member; `size` is the number of topics it subscribes to."""
    found: JavaHashMap[UUID, range] = JavaHashMap(capacity_for(size))
    for topic_id in topic_ids:
        partitions = splits[topic_id].take()
        if partitions:
            found.put(topic_id, partitions)
    return dict(found.items())
