"""TxnOffsetCommit (28), versions 0 to 5.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message TxnOffsetCommitRequest key=28 versions=0-5 flexible=3+
  transactionalId string
  groupId string
  producerId int64
  producerEpoch int16
  generationId int32 3+ default=-1
  memberId string 3+
  groupInstanceId string? 3+ default=null
  topics []TxnOffsetCommitRequestTopic
    name string
    partitions []TxnOffsetCommitRequestPartition
      partitionIndex int32
      committedOffset int64
      committedLeaderEpoch int32 2+ default=-1
      committedMetadata string?

message TxnOffsetCommitResponse key=28 versions=0-5 flexible=3+
  throttleTimeMs int32
  topics []TxnOffsetCommitResponseTopic
    name string
    partitions []TxnOffsetCommitResponsePartition
      partitionIndex int32
      errorCode int16
"""


class TxnOffsetCommitRequest(Message):
    """The request in every version."""

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    generation_id: int
    member_id: str
    group_instance_id: str | None
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitRequestTopic(Message):
    """An element of `topics` of TxnOffsetCommitRequest."""

    name: str
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequestPartition(Message):
    """An element of `partitions` of TxnOffsetCommitRequestTopic."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class TxnOffsetCommitResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    topics: list[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitResponseTopic(Message):
    """An element of `topics` of TxnOffsetCommitResponse."""

    name: str
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponsePartition(Message):
    """An element of `partitions` of TxnOffsetCommitResponseTopic."""

    partition_index: int
    error_code: int
