"""The target assignment of a group at a new epoch.

Source: org.apache.kafka.coordinator.group.modern.TargetAssignmentBuilder.
"""

from __future__ import annotations

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.assignors.registry import ASSIGNORS
from cordwood.coordinator.group.assignors.spec import (
    GroupSpec,
    MemberSpec,
    PartitionAssignorError,
    are_equal,
)
from cordwood.coordinator.group.consumer.group import ConsumerGroup, Target
from cordwood.coordinator.group.consumer.member import ConsumerMember
from cordwood.coordinator.group.consumer.records import (
    ConsumerRecord,
    target_epoch_record,
    target_record,
)
from cordwood.coordinator.group.consumer.topics import Topics
from cordwood.format.java_map import JavaHashMap, JavaHashSet
from cordwood.model.error_codes import ErrorCode


def new_target(
    group: ConsumerGroup,
    updated: ConsumerMember,
    *,
    epoch: int,
    assignor: str,
    are_alike: bool,
    topics: Topics,
    now_ms: int,
) -> tuple[list[ConsumerRecord], Target]:
    """Assigns the partitions of all topics to the members.

    Args:
        group: as it is.
        updated: the member whose heartbeat is handled; a static one may be in another's place.
        epoch: of the new target assignment.
        assignor: its name.
        are_alike: whether all members subscribe to the same topics.
        topics: those of the cluster.
        now_ms: the time of the assignment.

    Returns:
        The records of what changes, and the target assignment of `updated`.

    Raises:
        CoordinatorRequestError: UNKNOWN_SERVER_ERROR, the assignor failed.
    """
    members = _specs(group, updated, topics)
    spec = GroupSpec(members=members, is_homogeneous=are_alike, assigned=group.target_owners)

    def partition_count(topic_id: object) -> int | None:
        topic = topics.by_id(topic_id)  # type: ignore[arg-type]
        return None if topic is None else topic.partition_count

    try:
        assigned = ASSIGNORS[assignor](spec, partition_count)
    except PartitionAssignorError as error:
        raise CoordinatorRequestError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Failed to compute a new target assignment for epoch {epoch}: {error}",
        ) from error
    replaced = group.static_member_id(updated.instance_id)
    targets = dict(group.targets)
    if replaced in targets:
        # The member in its place has got its target assignment already.
        targets[updated.member_id] = targets[replaced]
    records = []
    for member_id in members:
        before = targets.get(member_id)
        target = assigned.get(member_id, {})
        if before is None or not are_equal(before, target):
            records.append(target_record(group.group_id, member_id, target))
    records.append(target_epoch_record(group.group_id, epoch, now_ms))
    return records, assigned.get(updated.member_id, {})


def _specs(
    group: ConsumerGroup, updated: ConsumerMember, topics: Topics
) -> JavaHashMap[str, MemberSpec]:
    """The subscription of each member, for the assignor; a new member comes last.

    Source: TargetAssignmentBuilder.build, UpdatedMembersAndTargetAssignmentView, OverlayMap.
    """
    replaced = group.static_member_id(updated.instance_id) or updated.member_id
    spec = _spec_of(group, updated, group.target(replaced), topics)
    members: JavaHashMap[str, MemberSpec] = JavaHashMap()
    for member in group.members():
        if member.member_id == updated.member_id:
            members.put(updated.member_id, spec)
        elif member.member_id != replaced:
            present = group.target(member.member_id)
            members.put(member.member_id, _spec_of(group, member, present, topics))
    members.put(updated.member_id, spec)
    return members


def _spec_of(
    group: ConsumerGroup, member: ConsumerMember, present: Target, topics: Topics
) -> MemberSpec:
    names = _names_in_order(group, member)
    found = (topics.by_name(name) for name in names)
    return MemberSpec(
        subscribed_topic_ids=tuple(topic.topic_id for topic in found if topic is not None),
        subscribed_name_count=len(names),
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        assignment=present,
    )


def _names_in_order(group: ConsumerGroup, member: ConsumerMember) -> list[str]:
    """The names of a member's topics in Kafka's order: those of the larger of two sets first.

    The records of both sets have them sorted; a member that is being changed has its names in the
    order of its request.

    Source: TargetAssignmentBuilder.newMemberSubscriptionAndAssignment, UnionSet.
    """
    names = sorted(member.topics) if member.named is None else member.named
    named = JavaHashSet.of(names, len(names))
    resolved = group.resolved.get(member.regex) if member.regex else None
    if resolved is None:
        return list(named)
    matched = JavaHashSet.of(sorted(resolved.topics), len(resolved.topics))
    large, small = (named, matched) if len(named) > len(matched) else (matched, named)
    return [*large, *(name for name in small if name not in large)]
