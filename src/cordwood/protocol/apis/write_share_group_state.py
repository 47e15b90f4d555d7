"""WriteShareGroupState (85), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message WriteShareGroupStateRequest key=85 versions=0-1 flexible=0+
  groupId string
  topics []WriteStateData
    topicId uuid
    partitions []PartitionData
      partition int32
      stateEpoch int32
      leaderEpoch int32
      startOffset int64
      deliveryCompleteCount int32 1+ default=-1
      stateBatches []StateBatch
        firstOffset int64
        lastOffset int64
        deliveryState int8
        deliveryCount int16

message WriteShareGroupStateResponse key=85 versions=0-1 flexible=0+
  results []WriteStateResult
    topicId uuid
    partitions []PartitionResult
      partition int32
      errorCode int16
      errorMessage string? default=null
"""


class WriteShareGroupStateRequest(Message):
    """The request in every version."""

    group_id: str
    topics: list[WriteStateData]


class WriteStateData(Message):
    """An element of `topics` of WriteShareGroupStateRequest."""

    topic_id: UUID
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of WriteStateData."""

    partition: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    state_batches: list[StateBatch]


class StateBatch(Message):
    """An element of `state_batches` of PartitionData."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class WriteShareGroupStateResponse(Message):
    """The response in every version."""

    results: list[WriteStateResult]


class WriteStateResult(Message):
    """An element of `results` of WriteShareGroupStateResponse."""

    topic_id: UUID
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """An element of `partitions` of WriteStateResult."""

    partition: int
    error_code: int
    error_message: str | None
