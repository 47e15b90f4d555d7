"""Fetch (1), versions 4 to 18.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message FetchRequest key=1 versions=4-18 flexible=12+
  clusterId string? 12+ tag=0 default=null
  replicaId int32 4-14 default=-1
  replicaState ReplicaState 15+ tag=1
    replicaId int32 default=-1
    replicaEpoch int64 default=-1
  maxWaitMs int32
  minBytes int32
  maxBytes int32 default=2147483647
  isolationLevel int8
  sessionId int32 7+
  sessionEpoch int32 7+ default=-1
  topics []FetchTopic
    topic string 4-12
    topicId uuid 13+
    partitions []FetchPartition
      partition int32
      currentLeaderEpoch int32 9+ default=-1
      fetchOffset int64
      lastFetchedEpoch int32 12+ default=-1
      logStartOffset int64 5+ default=-1
      partitionMaxBytes int32
      replicaDirectoryId uuid 17+ tag=0
      highWatermark int64 18+ tag=1 default=9223372036854775807
  forgottenTopicsData []ForgottenTopic 7+
    topic string 7-12
    topicId uuid 13+
    partitions []int32
  rackId string 11+

message FetchResponse key=1 versions=4-18 flexible=12+
  throttleTimeMs int32
  errorCode int16 7+
  sessionId int32 7+
  responses []FetchableTopicResponse
    topic string 4-12
    topicId uuid 13+
    partitions []PartitionData
      partitionIndex int32
      errorCode int16
      highWatermark int64
      lastStableOffset int64 default=-1
      logStartOffset int64 5+ default=-1
      divergingEpoch EpochEndOffset 12+ tag=0
        epoch int32 default=-1
        endOffset int64 default=-1
      currentLeader LeaderIdAndEpoch 12+ tag=1
        leaderId int32 default=-1
        leaderEpoch int32 default=-1
      snapshotId SnapshotId 12+ tag=2
        endOffset int64 default=-1
        epoch int32 default=-1
      abortedTransactions []AbortedTransaction?
        producerId int64
        firstOffset int64
      preferredReadReplica int32 11+ default=-1
      records records?
  nodeEndpoints []NodeEndpoint 16+ tag=0
    nodeId int32
    host string
    port int32
    rack string? default=null
"""


class FetchRequest(Message):
    """The request in every version."""

    cluster_id: str | None
    replica_id: int
    replica_state: ReplicaState
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]
    rack_id: str


class ReplicaState(Message):
    """The struct `replica_state` of FetchRequest."""

    replica_id: int
    replica_epoch: int


class FetchTopic(Message):
    """An element of `topics` of FetchRequest."""

    topic: str
    topic_id: UUID
    partitions: list[FetchPartition]


class FetchPartition(Message):
    """An element of `partitions` of FetchTopic."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: UUID
    high_watermark: int


class ForgottenTopic(Message):
    """An element of `forgotten_topics_data` of FetchRequest."""

    topic: str
    topic_id: UUID
    partitions: list[int]


class FetchResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    session_id: int
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


class FetchableTopicResponse(Message):
    """An element of `responses` of FetchResponse."""

    topic: str
    topic_id: UUID
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of FetchableTopicResponse."""

    partition_index: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: EpochEndOffset
    current_leader: LeaderIdAndEpoch
    snapshot_id: SnapshotId
    aborted_transactions: list[AbortedTransaction] | None
    preferred_read_replica: int
    records: memoryview | None


class EpochEndOffset(Message):
    """The struct `diverging_epoch` of PartitionData."""

    epoch: int
    end_offset: int


class LeaderIdAndEpoch(Message):
    """The struct `current_leader` of PartitionData."""

    leader_id: int
    leader_epoch: int


class SnapshotId(Message):
    """The struct `snapshot_id` of PartitionData."""

    end_offset: int
    epoch: int


class AbortedTransaction(Message):
    """An element of `aborted_transactions` of PartitionData."""

    producer_id: int
    first_offset: int


class NodeEndpoint(Message):
    """An element of `node_endpoints` of FetchResponse."""

    node_id: int
    host: str
    port: int
    rack: str | None
