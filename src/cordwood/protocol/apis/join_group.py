"""JoinGroup (11), versions 0 to 9.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message JoinGroupRequest key=11 versions=0-9 flexible=6+
  groupId string
  sessionTimeoutMs int32
  rebalanceTimeoutMs int32 1+ default=-1
  memberId string
  groupInstanceId string? 5+ default=null
  protocolType string
  protocols []JoinGroupRequestProtocol
    name string
    metadata bytes
  reason string? 8+ default=null

message JoinGroupResponse key=11 versions=0-9 flexible=6+
  throttleTimeMs int32 2+
  errorCode int16
  generationId int32 default=-1
  protocolType string? 7+ default=null
  protocolName string?7+
  leader string
  skipAssignment bool 9+
  memberId string
  members []JoinGroupResponseMember
    memberId string
    groupInstanceId string? 5+ default=null
    metadata bytes
"""


class JoinGroupRequest(Message):
    """The request in every version."""

    group_id: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str
    protocols: list[JoinGroupRequestProtocol]
    reason: str | None


class JoinGroupRequestProtocol(Message):
    """An element of `protocols` of JoinGroupRequest."""

    name: str
    metadata: bytes


class JoinGroupResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    skip_assignment: bool
    member_id: str
    members: list[JoinGroupResponseMember]


class JoinGroupResponseMember(Message):
    """An element of `members` of JoinGroupResponse."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes
