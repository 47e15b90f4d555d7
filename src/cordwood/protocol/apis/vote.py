"""Vote (52), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message VoteRequest key=52 versions=0-2 flexible=0+
  clusterId string? default=null
  voterId int32 1+ default=-1
  topics []TopicData
    topicName string
    partitions []PartitionData
      partitionIndex int32
      replicaEpoch int32
      replicaId int32
      replicaDirectoryId uuid 1+
      voterDirectoryId uuid 1+
      lastOffsetEpoch int32
      lastOffset int64
      preVote bool 2+

message VoteResponse key=52 versions=0-2 flexible=0+
  errorCode int16
  topics []VoteResponseTopicData
    topicName string
    partitions []VoteResponsePartitionData
      partitionIndex int32
      errorCode int16
      leaderId int32
      leaderEpoch int32
      voteGranted bool
  nodeEndpoints []NodeEndpoint 1+ tag=0
    nodeId int32
    host string
    port uint16
"""


class VoteRequest(Message):
    """The request in every version."""

    cluster_id: str | None
    voter_id: int
    topics: list[TopicData]


class TopicData(Message):
    """An element of `topics` of VoteRequest."""

    topic_name: str
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of TopicData."""

    partition_index: int
    replica_epoch: int
    replica_id: int
    replica_directory_id: UUID
    voter_directory_id: UUID
    last_offset_epoch: int
    last_offset: int
    pre_vote: bool


class VoteResponse(Message):
    """The response in every version."""

    error_code: int
    topics: list[VoteResponseTopicData]
    node_endpoints: list[NodeEndpoint]


class VoteResponseTopicData(Message):
    """An element of `topics` of VoteResponse."""

    topic_name: str
    partitions: list[VoteResponsePartitionData]


class VoteResponsePartitionData(Message):
    """An element of `partitions` of VoteResponseTopicData."""

    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    vote_granted: bool


class NodeEndpoint(Message):
    """An element of `node_endpoints` of VoteResponse."""

    node_id: int
    host: str
    port: int
