"""A classic group as a consumer group, and a consumer group as a classic one.

Source: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroup.fromClassicGroup,
classic.ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from uuid import UUID

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.classic.group import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    GroupState,
)
from cordwood.coordinator.group.classic.member import EMPTY_ASSIGNMENT, Member
from cordwood.coordinator.group.consumer.group import ConsumerGroup, Target
from cordwood.coordinator.group.consumer.member import ClassicMetadata, ConsumerMember, Epochs
from cordwood.coordinator.group.consumer.topics import Topics
from cordwood.format.group_metadata import (
    build_consumer_assignment,
    consumer_protocol_version,
    parse_consumer_assignment,
    parse_consumer_subscription,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError, UnsupportedVersionError


def with_names(target: Target | Epochs, topics: Topics) -> Iterator[tuple[str, Collection[int]]]:
    """Partitions by the names of those topics that exist."""
    for topic_id, partitions in target.items():
        topic = topics.by_id(topic_id)
        if topic is not None:
            yield topic.name, tuple(partitions)


def consumer_group_of(group: ClassicGroup, topics: Topics) -> ConsumerGroup:
    """The consumer group with a classic group's members and assignments.

    Raises:
        CorruptError: a member's metadata is malformed.
        UnsupportedVersionError: an assignor of the clients has added data of its own.

    Source: ConsumerGroup.fromClassicGroup.
    """
    found = ConsumerGroup(group.group_id)
    found.epoch = found.assignment_epoch = group.generation_id
    for each in group.members():
        assigned: dict[UUID, tuple[int, ...]] = {}
        if each.assignment != EMPTY_ASSIGNMENT:
            assignment = parse_consumer_assignment(each.assignment)
            if assignment.user_data:
                raise UnsupportedVersionError("userData from a custom assignor would be lost")
            for name, partitions in assignment.partitions:
                topic = topics.by_name(name)
                if topic is not None:
                    assigned[topic.topic_id] = partitions
        subscription = parse_consumer_subscription(each.metadata(group.protocol_name))
        member = ConsumerMember(
            member_id=each.member_id,
            member_epoch=group.generation_id,
            previous_epoch=group.generation_id,
            instance_id=each.group_instance_id,
            rack_id=subscription.rack_id or None,
            rebalance_timeout_ms=each.rebalance_timeout_ms,
            client=each.client,
            topics=frozenset(subscription.topics),
            named=tuple(subscription.topics),
            assigned={
                topic_id: dict.fromkeys(partitions, group.generation_id)
                for topic_id, partitions in assigned.items()
            },
            classic=ClassicMetadata(each.session_timeout_ms, each.protocols),
        )
        found.put_target(each.member_id, assigned)
        found.put_member(member)
    found.metadata_hash = found.hash_of(found.subscriptions, topics)
    return found


def classic_group_of(
    group: ConsumerGroup, members: Sequence[ConsumerMember], topics: Topics, now_ms: int
) -> ClassicGroup:
    """The classic group of some members of a consumer group, with their target assignments.

    Raises:
        CoordinatorRequestError: GROUP_ID_NOT_FOUND, a member's metadata is malformed.

    Source: ClassicGroup.fromConsumerGroup.
    """
    found = ClassicGroup(
        group.group_id,
        state=GroupState.STABLE,
        generation_id=group.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        state_timestamp_ms=now_ms,
    )
    for each in members:
        assert each.classic is not None, each.member_id
        found.add(
            Member(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client=each.client,
                rebalance_timeout_ms=each.rebalance_timeout_ms,
                session_timeout_ms=each.classic.session_timeout_ms,
                protocol_type=CONSUMER_PROTOCOL_TYPE,
                protocols=each.protocols,
            )
        )
    found.protocol_name = found.select_protocol()
    found.subscribed_topics = found.compute_subscribed_topics()
    for member in members:
        known = group.static_member_id(member.instance_id) or member.member_id
        metadata = found.member(member.member_id).metadata(found.protocol_name)
        try:
            version = consumer_protocol_version(metadata)
        except CorruptError as error:
            raise CoordinatorRequestError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot downgrade the classic group {group.group_id}: {error}.",
            ) from error
        assignment = build_consumer_assignment(with_names(group.target(known), topics), version)
        found.update(member.member_id, assignment=assignment)
    return found
