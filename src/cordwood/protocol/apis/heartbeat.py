"""Heartbeat (12), versions 0 to 4.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message HeartbeatRequest key=12 versions=0-4 flexible=4+
  groupId string
  generationId int32
  memberId string
  groupInstanceId string? 3+ default=null

message HeartbeatResponse key=12 versions=0-4 flexible=4+
  throttleTimeMs int32 1+
  errorCode int16
"""


class HeartbeatRequest(Message):
    """The request in every version."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None


class HeartbeatResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
