"""EndQuorumEpoch (54), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message EndQuorumEpochRequest key=54 versions=0-1 flexible=1+
  clusterId string? default=null
  topics []TopicData
    topicName string
    partitions []PartitionData
      partitionIndex int32
      leaderId int32
      leaderEpoch int32
      preferredSuccessors []int32 0
      preferredCandidates []ReplicaInfo 1+
        candidateId int32
        candidateDirectoryId uuid
  leaderEndpoints []LeaderEndpoint 1+
    name string
    host string
    port uint16

message EndQuorumEpochResponse key=54 versions=0-1 flexible=1+
  errorCode int16
  topics []EndQuorumEpochResponseTopicData
    topicName string
    partitions []EndQuorumEpochResponsePartitionData
      partitionIndex int32
      errorCode int16
      leaderId int32
      leaderEpoch int32
  nodeEndpoints []NodeEndpoint 1+ tag=0
    nodeId int32
    host string
    port uint16
"""


class EndQuorumEpochRequest(Message):
    """The request in every version."""

    cluster_id: str | None
    topics: list[TopicData]
    leader_endpoints: list[LeaderEndpoint]


class TopicData(Message):
    """An element of `topics` of EndQuorumEpochRequest."""

    topic_name: str
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of TopicData."""

    partition_index: int
    leader_id: int
    leader_epoch: int
    preferred_successors: list[int]
    preferred_candidates: list[ReplicaInfo]


class ReplicaInfo(Message):
    """An element of `preferred_candidates` of PartitionData."""

    candidate_id: int
    candidate_directory_id: UUID


class LeaderEndpoint(Message):
    """An element of `leader_endpoints` of EndQuorumEpochRequest."""

    name: str
    host: str
    port: int


class EndQuorumEpochResponse(Message):
    """The response in every version."""

    error_code: int
    topics: list[EndQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint]


class EndQuorumEpochResponseTopicData(Message):
    """An element of `topics` of EndQuorumEpochResponse."""

    topic_name: str
    partitions: list[EndQuorumEpochResponsePartitionData]


class EndQuorumEpochResponsePartitionData(Message):
    """An element of `partitions` of EndQuorumEpochResponseTopicData."""

    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int


class NodeEndpoint(Message):
    """An element of `node_endpoints` of EndQuorumEpochResponse."""

    node_id: int
    host: str
    port: int
