"""OffsetForLeaderEpoch (23), versions 2 to 4.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message OffsetForLeaderEpochRequest key=23 versions=2-4 flexible=4+
  replicaId int32 3+ default=-2
  topics []OffsetForLeaderTopic
    topic string
    partitions []OffsetForLeaderPartition
      partition int32
      currentLeaderEpoch int32 default=-1
      leaderEpoch int32

message OffsetForLeaderEpochResponse key=23 versions=2-4 flexible=4+
  throttleTimeMs int32
  topics []OffsetForLeaderTopicResult
    topic string
    partitions []EpochEndOffset
      errorCode int16
      partition int32
      leaderEpoch int32 default=-1
      endOffset int64 default=-1
"""


class OffsetForLeaderEpochRequest(Message):
    """The request in every version."""

    replica_id: int
    topics: list[OffsetForLeaderTopic]


class OffsetForLeaderTopic(Message):
    """An element of `topics` of OffsetForLeaderEpochRequest."""

    topic: str
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderPartition(Message):
    """An element of `partitions` of OffsetForLeaderTopic."""

    partition: int
    current_leader_epoch: int
    leader_epoch: int


class OffsetForLeaderEpochResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    topics: list[OffsetForLeaderTopicResult]


class OffsetForLeaderTopicResult(Message):
    """An element of `topics` of OffsetForLeaderEpochResponse."""

    topic: str
    partitions: list[EpochEndOffset]


class EpochEndOffset(Message):
    """An element of `partitions` of OffsetForLeaderTopicResult."""

    error_code: int
    partition: int
    leader_epoch: int
    end_offset: int
