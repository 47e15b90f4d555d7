"""ReadShareGroupState (84), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message ReadShareGroupStateRequest key=84 versions=0 flexible=0+
  groupId string
  topics []ReadStateData
    topicId uuid
    partitions []PartitionData
      partition int32
      leaderEpoch int32

message ReadShareGroupStateResponse key=84 versions=0 flexible=0+
  results []ReadStateResult
    topicId uuid
    partitions []PartitionResult
      partition int32
      errorCode int16
      errorMessage string? default=null
      stateEpoch int32
      startOffset int64
      stateBatches []StateBatch
        firstOffset int64
        lastOffset int64
        deliveryState int8
        deliveryCount int16
"""


class ReadShareGroupStateRequest(Message):
    """The request in every version."""

    group_id: str
    topics: list[ReadStateData]


class ReadStateData(Message):
    """An element of `topics` of ReadShareGroupStateRequest."""

    topic_id: UUID
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of ReadStateData."""

    partition: int
    leader_epoch: int


class ReadShareGroupStateResponse(Message):
    """The response in every version."""

    results: list[ReadStateResult]


class ReadStateResult(Message):
    """An element of `results` of ReadShareGroupStateResponse."""

    topic_id: UUID
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """An element of `partitions` of ReadStateResult."""

    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    start_offset: int
    state_batches: list[StateBatch]


class StateBatch(Message):
    """An element of `state_batches` of PartitionResult."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int
