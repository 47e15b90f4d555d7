"""DeleteShareGroupState (86), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message DeleteShareGroupStateRequest key=86 versions=0 flexible=0+
  groupId string
  topics []DeleteStateData
    topicId uuid
    partitions []PartitionData
      partition int32

message DeleteShareGroupStateResponse key=86 versions=0 flexible=0+
  results []DeleteStateResult
    topicId uuid
    partitions []PartitionResult
      partition int32
      errorCode int16
      errorMessage string? default=null
"""


class DeleteShareGroupStateRequest(Message):
    """The request in every version."""

    group_id: str
    topics: list[DeleteStateData]


class DeleteStateData(Message):
    """An element of `topics` of DeleteShareGroupStateRequest."""

    topic_id: UUID
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of DeleteStateData."""

    partition: int


class DeleteShareGroupStateResponse(Message):
    """The response in every version."""

    results: list[DeleteStateResult]


class DeleteStateResult(Message):
    """An element of `results` of DeleteShareGroupStateResponse."""

    topic_id: UUID
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """An element of `partitions` of DeleteStateResult."""

    partition: int
    error_code: int
    error_message: str | None
