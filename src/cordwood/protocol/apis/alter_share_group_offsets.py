"""AlterShareGroupOffsets (91), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message AlterShareGroupOffsetsRequest key=91 versions=0 flexible=0+
  groupId string
  topics []AlterShareGroupOffsetsRequestTopic
    topicName string
    partitions []AlterShareGroupOffsetsRequestPartition
      partitionIndex int32
      startOffset int64

message AlterShareGroupOffsetsResponse key=91 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string? default=null
  responses []AlterShareGroupOffsetsResponseTopic
    topicName string
    topicId uuid
    partitions []AlterShareGroupOffsetsResponsePartition
      partitionIndex int32
      errorCode int16
      errorMessage string? default=null
"""


class AlterShareGroupOffsetsRequest(Message):
    """The request in every version."""

    group_id: str
    topics: list[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsRequestTopic(Message):
    """An element of `topics` of AlterShareGroupOffsetsRequest."""

    topic_name: str
    partitions: list[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequestPartition(Message):
    """An element of `partitions` of AlterShareGroupOffsetsRequestTopic."""

    partition_index: int
    start_offset: int


class AlterShareGroupOffsetsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[AlterShareGroupOffsetsResponseTopic]


class AlterShareGroupOffsetsResponseTopic(Message):
    """An element of `responses` of AlterShareGroupOffsetsResponse."""

    topic_name: str
    topic_id: UUID
    partitions: list[AlterShareGroupOffsetsResponsePartition]


class AlterShareGroupOffsetsResponsePartition(Message):
    """An element of `partitions` of AlterShareGroupOffsetsResponseTopic."""

    partition_index: int
    error_code: int
    error_message: str | None
