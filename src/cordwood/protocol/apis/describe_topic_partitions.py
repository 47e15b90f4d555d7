"""DescribeTopicPartitions (75), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeTopicPartitionsRequest key=75 versions=0 flexible=0+
  topics []TopicRequest
    name string
  responsePartitionLimit int32 default=2000
  cursor Cursor? default=null
    topicName string
    partitionIndex int32

message DescribeTopicPartitionsResponse key=75 versions=0 flexible=0+
  throttleTimeMs int32
  topics []DescribeTopicPartitionsResponseTopic
    errorCode int16
    name string?
    topicId uuid
    isInternal bool
    partitions []DescribeTopicPartitionsResponsePartition
      errorCode int16
      partitionIndex int32
      leaderId int32
      leaderEpoch int32 default=-1
      replicaNodes []int32
      isrNodes []int32
      eligibleLeaderReplicas []int32? default=null
      lastKnownElr []int32? default=null
      offlineReplicas []int32
    topicAuthorizedOperations int32 default=-2147483648
  nextCursor Cursor? default=null
    topicName string
    partitionIndex int32
"""


class DescribeTopicPartitionsRequest(Message):
    """The request in every version."""

    topics: list[TopicRequest]
    response_partition_limit: int
    cursor: Cursor | None


class TopicRequest(Message):
    """An element of `topics` of DescribeTopicPartitionsRequest."""

    name: str


class Cursor(Message):
    """The struct `cursor` of DescribeTopicPartitionsRequest."""

    topic_name: str
    partition_index: int


class DescribeTopicPartitionsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None


class DescribeTopicPartitionsResponseTopic(Message):
    """An element of `topics` of DescribeTopicPartitionsResponse."""

    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int


class DescribeTopicPartitionsResponsePartition(Message):
    """An element of `partitions` of DescribeTopicPartitionsResponseTopic."""

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    eligible_leader_replicas: list[int] | None
    last_known_elr: list[int] | None
    offline_replicas: list[int]
