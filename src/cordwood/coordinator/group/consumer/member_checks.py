"""Checks of a member's request against its group."""

from __future__ import annotations

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    ConsumerMember,
    HeartbeatRequest,
    Owned,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import InvalidRegularExpressionError
from cordwood.model.regular_expressions import compile_regular_expression


def require_member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    """The member of an id; raises CoordinatorRequestError: UNKNOWN_MEMBER_ID."""
    member = group.member(member_id)
    if member is None:
        raise CoordinatorRequestError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {member_id} is not a member of group {group.group_id}.",
        )
    return member


def require_static(group: ConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The member of an instance id, if it has this member id.

    Raises:
        CoordinatorRequestError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    member = group.static_member(instance_id)
    if member is None:
        raise CoordinatorRequestError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown."
        )
    if member.member_id != member_id:
        raise CoordinatorRequestError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def require_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    """Checks that a heartbeat is of the epoch of its member, or its answer was lost.

    Raises:
        CoordinatorRequestError: FENCED_MEMBER_EPOCH.

    Source: throwIfConsumerGroupMemberEpochIsInvalid.
    """
    epoch = request.member_epoch
    if epoch in {JOIN_EPOCH, member.member_epoch}:
        return
    is_greater = epoch > member.member_epoch
    if not is_greater and epoch == member.previous_epoch and _is_within(request.owned, member):
        # The answer with the new epoch was lost.
        return
    which = "greater" if is_greater else "smaller"
    raise CoordinatorRequestError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by "
        f"the group coordinator ({member.member_epoch}). The member must abandon all its "
        "partitions and rejoin.",
    )


def _is_within(owned: Owned | None, member: ConsumerMember) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in member.assigned and member.assigned[topic_id].keys() >= set(partitions)
        for topic_id, partitions in owned
    )


def require_regex(regex: str) -> None:
    """Checks a regular expression; raises CoordinatorRequestError: INVALID_REGULAR_EXPRESSION."""
    try:
        compile_regular_expression(regex)
    except InvalidRegularExpressionError as error:
        reason = str(error).rpartition(": ")[2]
        raise CoordinatorRequestError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
        ) from error
