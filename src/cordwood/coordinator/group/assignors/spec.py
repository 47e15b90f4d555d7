"""The input and the output of an assignor.

Collections here iterate in the order in which Kafka's collections would, because the record of a
member's target assignment lists topics and partitions in that order: the caller has members and
subscribed topics in it, and an assignor returns topics and partitions in it.

Source: org.apache.kafka.coordinator.group.api.assignor (GroupSpec, MemberSubscription,
SubscribedTopicDescriber, PartitionAssignorException), org.apache.kafka.coordinator.group.modern
(GroupSpecImpl, MemberSubscriptionAndAssignmentImpl, Assignment, TopicIds).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from cordwood.format.java_map import JavaHashMap, JavaHashSet
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.uuids import uuid_text

Assignment = Mapping[UUID, Collection[int]]
"""The partitions of a member by topic id, both in Kafka's order."""

GroupAssignment = Mapping[str, Assignment]
"""The assignment of each member by its id; a member without an entry has no partitions."""

PartitionCount = Callable[[UUID], int | None]
"""The number of partitions of a topic; None or -1 if there is no such topic."""


class PartitionAssignorError(KafkaError):
    """An assignor cannot compute an assignment; the text is Kafka's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """A member: what it subscribes to, and the target assignment that it has at present.

    `subscribed_topic_ids` are in the order of the set of topic names, without the names that no
    topic has. `subscribed_name_count` counts those names too: Kafka sizes its tables by it. None
    means that each name is that of a topic. A static member that replaces another has the target
    assignment of the other.
    """

    subscribed_topic_ids: Collection[UUID]
    subscribed_name_count: int | None = None
    instance_id: str | None = None
    rack_id: str | None = None
    assignment: Assignment = field(default_factory=dict)

    @property
    def subscription_size(self) -> int:
        """The number of topics it subscribes to, whether or not they exist.

        Source: TopicIds.size.
        """
        if self.subscribed_name_count is None:
            return len(self.subscribed_topic_ids)
        return self.subscribed_name_count


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSpec:
    """A group for which an assignment is computed.

    `members` are in the order of Kafka's HashMap. `is_homogeneous` is true if all of them subscribe
    to the same topics. `assigned` has the partitions that the present target assignment gives to
    any member, by topic id.
    """

    members: Mapping[str, MemberSpec]
    is_homogeneous: bool
    assigned: Mapping[UUID, Container[int]] = field(default_factory=dict)

    def is_partition_assigned(self, topic_id: UUID, partition: int) -> bool:
        """Whether the present target assignment of any member has the partition."""
        return topic_id in self.assigned and partition in self.assigned[topic_id]


Assignor = Callable[[GroupSpec, PartitionCount], GroupAssignment]
"""A pure function: it changes neither the group nor the present assignments.

Raises:
    PartitionAssignorError: a member subscribes to a topic id that no topic has.
"""


def require_partition_count(
    topic_id: UUID, partition_count: PartitionCount, text: str | None = None
) -> int:
    """The partition count of a topic.

    Raises:
        PartitionAssignorError: there is no such topic; with `text`, or that of "uniform".
    """
    count = partition_count(topic_id)
    if count is None or count < 0:
        raise PartitionAssignorError(
            text
            or f"Members are subscribed to topic {uuid_text(topic_id)} which doesn't exist in the "
            "topic metadata."
        )
    return count


def stored_assignment(topic_partitions: Iterable[tuple[UUID, Collection[int]]]) -> Assignment:
    """The assignment of a record's topics and partitions, in the order that it has once stored.

    This is the order of the tables that Kafka creates when it replays the record. It may differ
    from the order in the record.

    Source: Assignment.fromRecord.
    """
    found: JavaHashMap[UUID, Collection[int]] = JavaHashMap()
    for topic_id, partitions in topic_partitions:
        found.put(topic_id, tuple(JavaHashSet.of(partitions, len(partitions))))
    return dict(found.items())


def are_equal(one: Assignment, other: Assignment) -> bool:
    """Whether two assignments have the same partitions, in any order.

    Source: Assignment.equals.
    """
    return one.keys() == other.keys() and all(
        set(partitions) == set(other[topic_id]) for topic_id, partitions in one.items()
    )
