"""ConsumerGroupHeartbeat (68), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message ConsumerGroupHeartbeatRequest key=68 versions=0-1 flexible=0+
  groupId string
  memberId string
  memberEpoch int32
  instanceId string? default=null
  rackId string? default=null
  rebalanceTimeoutMs int32 default=-1
  subscribedTopicNames []string? default=null
  subscribedTopicRegex string? 1+ default=null
  serverAssignor string? default=null
  topicPartitions []TopicPartitions? default=null
    topicId uuid
    partitions []int32

message ConsumerGroupHeartbeatResponse key=68 versions=0-1 flexible=0+
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


class ConsumerGroupHeartbeatRequest(Message):
    """The request in every version."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    subscribed_topic_names: list[str] | None
    subscribed_topic_regex: str | None
    server_assignor: str | None
    topic_partitions: list[TopicPartitions] | None


class TopicPartitions(Message):
    """An element of `topic_partitions` of ConsumerGroupHeartbeatRequest."""

    topic_id: UUID
    partitions: list[int]


class ConsumerGroupHeartbeatResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None


class Assignment(Message):
    """The struct `assignment` of ConsumerGroupHeartbeatResponse."""

    topic_partitions: list[TopicPartitions]
