"""DescribeQuorum (55), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeQuorumRequest key=55 versions=0-2 flexible=0+
  topics []TopicData
    topicName string
    partitions []PartitionData
      partitionIndex int32

message DescribeQuorumResponse key=55 versions=0-2 flexible=0+
  errorCode int16
  errorMessage string? 2+
  topics []DescribeQuorumResponseTopicData
    topicName string
    partitions []DescribeQuorumResponsePartitionData
      partitionIndex int32
      errorCode int16
      errorMessage string? 2+
      leaderId int32
      leaderEpoch int32
      highWatermark int64
      currentVoters []ReplicaState
        replicaId int32
        replicaDirectoryId uuid 2+
        logEndOffset int64
        lastFetchTimestamp int64 1+ default=-1
        lastCaughtUpTimestamp int64 1+ default=-1
      observers []ReplicaState
        replicaId int32
        replicaDirectoryId uuid 2+
        logEndOffset int64
        lastFetchTimestamp int64 1+ default=-1
        lastCaughtUpTimestamp int64 1+ default=-1
  nodes []Node 2+
    nodeId int32
    listeners []Listener
      name string
      host string
      port uint16
"""


class DescribeQuorumRequest(Message):
    """The request in every version."""

    topics: list[TopicData]


class TopicData(Message):
    """An element of `topics` of DescribeQuorumRequest."""

    topic_name: str
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of TopicData."""

    partition_index: int


class DescribeQuorumResponse(Message):
    """The response in every version."""

    error_code: int
    error_message: str | None
    topics: list[DescribeQuorumResponseTopicData]
    nodes: list[Node]


class DescribeQuorumResponseTopicData(Message):
    """An element of `topics` of DescribeQuorumResponse."""

    topic_name: str
    partitions: list[DescribeQuorumResponsePartitionData]


class DescribeQuorumResponsePartitionData(Message):
    """An element of `partitions` of DescribeQuorumResponseTopicData."""

    partition_index: int
    error_code: int
    error_message: str | None
    leader_id: int
    leader_epoch: int
    high_watermark: int
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class ReplicaState(Message):
    """An element of `current_voters` of DescribeQuorumResponsePartitionData."""

    replica_id: int
    replica_directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


class Node(Message):
    """An element of `nodes` of DescribeQuorumResponse."""

    node_id: int
    listeners: list[Listener]


class Listener(Message):
    """An element of `listeners` of Node."""

    name: str
    host: str
    port: int
