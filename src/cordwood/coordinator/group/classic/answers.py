"""Answers and names that the events of a classic group share."""

from __future__ import annotations

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.group.classic.group import ClassicGroup, GroupState
from cordwood.coordinator.group.classic.member import (
    JoinAnswer,
    JoinRequest,
    SyncRequest,
)
from cordwood.model.error_codes import ErrorCode


def refused(request: JoinRequest, error: int) -> JoinAnswer:
    """A JoinGroup answer with an error."""
    return JoinAnswer(error_code=error, member_id=request.member_id)


def client_reason(request: JoinRequest) -> str:
    """Why a client joins, for the log."""
    return request.reason or "not provided"


def joined(group: ClassicGroup, member_id: str, *, with_members: bool) -> JoinAnswer:
    """An answer to JoinGroup that gives a member the group's generation."""
    return JoinAnswer(
        member_id=member_id,
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        members=group.joined_members() if with_members else (),
    )


def sync_error(group: ClassicGroup, request: SyncRequest) -> int:
    """Why a SyncGroup is refused, or 0.

    Source: GroupMetadataManager.validateSyncGroup.
    """
    if group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    try:
        group.require_member(request.member_id, request.group_instance_id)
    except CoordinatorRequestError as error:
        return error.code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if _is_other(request.protocol_type, group.protocol_type) or _is_other(
        request.protocol_name, group.protocol_name
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _is_other(asked: str | None, actual: str | None) -> bool:
    return asked is not None and actual is not None and asked != actual


def assignments(group: ClassicGroup) -> dict[str, bytes]:
    """The assignments of all members, by member id."""
    return {member.member_id: member.assignment for member in group.members()}


def join_key(group: ClassicGroup) -> tuple[str, str]:
    """The timer that ends the wait for members to join."""
    return "join", group.group_id


def sync_key(group: ClassicGroup) -> tuple[str, str]:
    """The timer that ends the wait for members to send SyncGroup."""
    return "sync", group.group_id


def heartbeat_key(group: ClassicGroup, member_id: str) -> tuple[str, str, str]:
    """The timer of a member's session."""
    return "heartbeat", group.group_id, member_id
