"""LeaveGroup (13), versions 0 to 5.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message LeaveGroupRequest key=13 versions=0-5 flexible=4+
  groupId string
  memberId string 0-2
  members []MemberIdentity 3+
    memberId string
    groupInstanceId string? default=null
    reason string? 5+ default=null

message LeaveGroupResponse key=13 versions=0-5 flexible=4+
  throttleTimeMs int32 1+
  errorCode int16
  members []MemberResponse 3+
    memberId string
    groupInstanceId string?
    errorCode int16
"""


class LeaveGroupRequest(Message):
    """The request in every version."""

    group_id: str
    member_id: str
    members: list[MemberIdentity]


class MemberIdentity(Message):
    """An element of `members` of LeaveGroupRequest."""

    member_id: str
    group_instance_id: str | None
    reason: str | None


class LeaveGroupResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    members: list[MemberResponse]


class MemberResponse(Message):
    """An element of `members` of LeaveGroupResponse."""

    member_id: str
    group_instance_id: str | None
    error_code: int
