"""ListOffsets (2), versions 1 to 11.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message ListOffsetsRequest key=2 versions=1-11 flexible=6+
  replicaId int32
  isolationLevel int8 2+
  topics []ListOffsetsTopic
    name string
    partitions []ListOffsetsPartition
      partitionIndex int32
      currentLeaderEpoch int32 4+ default=-1
      timestamp int64
  timeoutMs int32 10+

message ListOffsetsResponse key=2 versions=1-11 flexible=6+
  throttleTimeMs int32 2+
  topics []ListOffsetsTopicResponse
    name string
    partitions []ListOffsetsPartitionResponse
      partitionIndex int32
      errorCode int16
      timestamp int64 default=-1
      offset int64 default=-1
      leaderEpoch int32 4+ default=-1
"""


class ListOffsetsRequest(Message):
    """The request in every version."""

    replica_id: int
    isolation_level: int
    topics: list[ListOffsetsTopic]
    timeout_ms: int


class ListOffsetsTopic(Message):
    """An element of `topics` of ListOffsetsRequest."""

    name: str
    partitions: list[ListOffsetsPartition]


class ListOffsetsPartition(Message):
    """An element of `partitions` of ListOffsetsTopic."""

    partition_index: int
    current_leader_epoch: int
    timestamp: int


class ListOffsetsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    topics: list[ListOffsetsTopicResponse]


class ListOffsetsTopicResponse(Message):
    """An element of `topics` of ListOffsetsResponse."""

    name: str
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsPartitionResponse(Message):
    """An element of `partitions` of ListOffsetsTopicResponse."""

    partition_index: int
    error_code: int
    timestamp: int
    offset: int
    leader_epoch: int
