"""ShareGroupHeartbeat (76), version 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message ShareGroupHeartbeatRequest key=76 versions=1 flexible=0+
  groupId string
  memberId string
  memberEpoch int32
  rackId string? default=null
  subscribedTopicNames []string? default=null

message ShareGroupHeartbeatResponse key=76 versions=1 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string? default=null
  memberId string? default=null
  memberEpoch int32
  heartbeatIntervalMs int32
  assignment Assignment? default=null
    topicPartitions []TopicPartitions
      topicId uuid
      partitions []int32
"""


class ShareGroupHeartbeatRequest(Message):
    """The request in every version."""

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: list[str] | None


class ShareGroupHeartbeatResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None


class Assignment(Message):
    """The struct `assignment` of ShareGroupHeartbeatResponse."""

    topic_partitions: list[TopicPartitions]


class TopicPartitions(Message):
    """An element of `topic_partitions` of Assignment."""

    topic_id: UUID
    partitions: list[int]
