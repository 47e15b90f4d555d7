"""SyncGroup (14), versions 0 to 5.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message SyncGroupRequest key=14 versions=0-5 flexible=4+
  groupId string
  generationId int32
  memberId string
  groupInstanceId string? 3+ default=null
  protocolType string? 5+ default=null
  protocolName string? 5+ default=null
  assignments []SyncGroupRequestAssignment
    memberId string
    assignment bytes

message SyncGroupResponse key=14 versions=0-5 flexible=4+
  throttleTimeMs int32 1+
  errorCode int16
  protocolType string? 5+ default=null
  protocolName string? 5+ default=null
  assignment bytes
"""


class SyncGroupRequest(Message):
    """The request in every version."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None
    protocol_type: str | None
    protocol_name: str | None
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupRequestAssignment(Message):
    """An element of `assignments` of SyncGroupRequest."""

    member_id: str
    assignment: bytes


class SyncGroupResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes
