"""OffsetCommit (8), versions 2 to 10.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message OffsetCommitRequest key=8 versions=2-10 flexible=8+
  groupId string
  generationIdOrMemberEpoch int32 default=-1
  memberId string
  groupInstanceId string? 7+ default=null
  retentionTimeMs int64 2-4 default=-1
  topics []OffsetCommitRequestTopic
    name string 2-9
    topicId uuid 10+
    partitions []OffsetCommitRequestPartition
      partitionIndex int32
      committedOffset int64
      committedLeaderEpoch int32 6+ default=-1
      committedMetadata string?

message OffsetCommitResponse key=8 versions=2-10 flexible=8+
  throttleTimeMs int32 3+
  topics []OffsetCommitResponseTopic
    name string 2-9
    topicId uuid 10+
    partitions []OffsetCommitResponsePartition
      partitionIndex int32
      errorCode int16
"""


class OffsetCommitRequest(Message):
    """The request in every version."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitRequestTopic(Message):
    """An element of `topics` of OffsetCommitRequest."""

    name: str
    topic_id: UUID
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequestPartition(Message):
    """An element of `partitions` of OffsetCommitRequestTopic."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class OffsetCommitResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    topics: list[OffsetCommitResponseTopic]


class OffsetCommitResponseTopic(Message):
    """An element of `topics` of OffsetCommitResponse."""

    name: str
    topic_id: UUID
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponsePartition(Message):
    """An element of `partitions` of OffsetCommitResponseTopic."""

    partition_index: int
    error_code: int
