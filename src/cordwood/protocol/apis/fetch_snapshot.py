"""FetchSnapshot (59), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message FetchSnapshotRequest key=59 versions=0-1 flexible=0+
  clusterId string? tag=0 default=null
  replicaId int32 default=-1
  maxBytes int32 default=2147483647
  topics []TopicSnapshot
    name string
    partitions []PartitionSnapshot
      partition int32
      currentLeaderEpoch int32
      snapshotId SnapshotId
        endOffset int64
        epoch int32
      position int64
      replicaDirectoryId uuid 1+ tag=0

message FetchSnapshotResponse key=59 versions=0-1 flexible=0+
  throttleTimeMs int32
  errorCode int16
  topics []FetchSnapshotResponseTopicSnapshot
    name string
    partitions []FetchSnapshotResponsePartitionSnapshot
      index int32
      errorCode int16
      snapshotId SnapshotId
        endOffset int64
        epoch int32
      currentLeader LeaderIdAndEpoch tag=0
        leaderId int32
        leaderEpoch int32
      size int64
      position int64
      unalignedRecords records
  nodeEndpoints []NodeEndpoint 1+ tag=0
    nodeId int32
    host string
    port uint16
"""


class FetchSnapshotRequest(Message):
    """The request in every version."""

    cluster_id: str | None
    replica_id: int
    max_bytes: int
    topics: list[TopicSnapshot]


class TopicSnapshot(Message):
    """An element of `topics` of FetchSnapshotRequest."""

    name: str
    partitions: list[PartitionSnapshot]


class PartitionSnapshot(Message):
    """An element of `partitions` of TopicSnapshot."""

    partition: int
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int
    replica_directory_id: UUID


class SnapshotId(Message):
    """The struct `snapshot_id` of PartitionSnapshot."""

    end_offset: int
    epoch: int


class FetchSnapshotResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    topics: list[FetchSnapshotResponseTopicSnapshot]
    node_endpoints: list[NodeEndpoint]


class FetchSnapshotResponseTopicSnapshot(Message):
    """An element of `topics` of FetchSnapshotResponse."""

    name: str
    partitions: list[FetchSnapshotResponsePartitionSnapshot]


class FetchSnapshotResponsePartitionSnapshot(Message):
    """An element of `partitions` of FetchSnapshotResponseTopicSnapshot."""

    index: int
    error_code: int
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch
    size: int
    position: int
    unaligned_records: memoryview


class LeaderIdAndEpoch(Message):
    """The struct `current_leader` of FetchSnapshotResponsePartitionSnapshot."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(Message):
    """An element of `node_endpoints` of FetchSnapshotResponse."""

    node_id: int
    host: str
    port: int
