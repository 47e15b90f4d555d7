"""Checks of a ConsumerGroupHeartbeat that need no group."""

from __future__ import annotations

from cordwood.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from cordwood.coordinator.group.settings import ConsumerGroupSettings
from cordwood.model.error_codes import ErrorCode


def heartbeat_error(
    request: HeartbeatRequest, settings: ConsumerGroupSettings, *, needs_member_id: bool
) -> HeartbeatAnswer | None:
    """The answer to a ConsumerGroupHeartbeat whose fields contradict each other.

    Source: GroupCoordinatorService.throwIfConsumerGroupHeartbeatRequestIsInvalid.
    """
    epoch = request.member_epoch
    needs_member_id |= epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH
    why = None
    for is_checked, value, name in (
        (needs_member_id, request.member_id, "MemberId"),
        (True, request.group_id, "GroupId"),
        (True, request.instance_id, "InstanceId"),
        (True, request.rack_id, "RackId"),
    ):
        if why is None and is_checked and value is not None and not value.strip():
            why = f"{name} can't be empty."
    if why is None and epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            why = "RebalanceTimeoutMs must be provided in first request."
        elif request.owned != ():
            why = "TopicPartitions must be empty when (re-)joining."
        elif request.topics is None and request.regex is None:
            why = (
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif why is None and epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        why = "InstanceId can't be null."
    elif why is None and epoch < LEAVE_STATIC_EPOCH:
        why = "MemberEpoch is invalid."
    if why is not None:
        return HeartbeatAnswer(ErrorCode.INVALID_REQUEST, why)
    assignors = settings.assignors
    if request.assignor is not None and request.assignor not in assignors:
        return HeartbeatAnswer(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )
    return None
