"""BeginQuorumEpoch (53), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message BeginQuorumEpochRequest key=53 versions=0-1 flexible=1+
  clusterId string? default=null
  voterId int32 1+ default=-1
  topics []TopicData
    topicName string
    partitions []PartitionData
      partitionIndex int32
      voterDirectoryId uuid 1+
      leaderId int32
      leaderEpoch int32
  leaderEndpoints []LeaderEndpoint 1+
    name string
    host string
    port uint16

message BeginQuorumEpochResponse key=53 versions=0-1 flexible=1+
  errorCode int16
  topics []BeginQuorumEpochResponseTopicData
    topicName string
    partitions []BeginQuorumEpochResponsePartitionData
      partitionIndex int32
      errorCode int16
      leaderId int32
      leaderEpoch int32
  nodeEndpoints []NodeEndpoint 1+ tag=0
    nodeId int32
    host string
    port uint16
"""


class BeginQuorumEpochRequest(Message):
    """The request in every version."""

    cluster_id: str | None
    voter_id: int
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint]


class TopicData(Message):
    """An element of `topics` of BeginQuorumEpochRequest."""

    topic_name: str
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of TopicData."""

    partition_index: int
    voter_directory_id: UUID
    leader_id: int
    leader_epoch: int


class LeaderEndpoint(Message):
    """An element of `leader_endpoints` of BeginQuorumEpochRequest."""

    name: str
    host: str
    port: int


class BeginQuorumEpochResponse(Message):
    """The response in every version."""

    error_code: int
    topics: list[BeginQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint]


class BeginQuorumEpochResponseTopicData(Message):
    """An element of `topics` of BeginQuorumEpochResponse."""

    topic_name: str
    partitions: list[BeginQuorumEpochResponsePartitionData]


class BeginQuorumEpochResponsePartitionData(Message):
    """An element of `partitions` of BeginQuorumEpochResponseTopicData."""

    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int


class NodeEndpoint(Message):
    """An element of `node_endpoints` of BeginQuorumEpochResponse."""

    node_id: int
    host: str
    port: int
