"""InitializeShareGroupState (83), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message InitializeShareGroupStateRequest key=83 versions=0 flexible=0+
  groupId string
  topics []InitializeStateData
    topicId uuid
    partitions []PartitionData
      partition int32
      stateEpoch int32
      startOffset int64

message InitializeShareGroupStateResponse key=83 versions=0 flexible=0+
  results []InitializeStateResult
    topicId uuid
    partitions []PartitionResult
      partition int32
      errorCode int16
      errorMessage string? default=null
"""


class InitializeShareGroupStateRequest(Message):
    """The request in every version."""

    group_id: str
    topics: list[InitializeStateData]


class InitializeStateData(Message):
    """An element of `topics` of InitializeShareGroupStateRequest."""

    topic_id: UUID
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of InitializeStateData."""

    partition: int
    state_epoch: int
    start_offset: int


class InitializeShareGroupStateResponse(Message):
    """The response in every version."""

    results: list[InitializeStateResult]


class InitializeStateResult(Message):
    """An element of `results` of InitializeShareGroupStateResponse."""

    topic_id: UUID
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """An element of `partitions` of InitializeStateResult."""

    partition: int
    error_code: int
    error_message: str | None
