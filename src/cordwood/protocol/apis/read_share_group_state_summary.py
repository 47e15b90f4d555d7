"""ReadShareGroupStateSummary (87), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message ReadShareGroupStateSummaryRequest key=87 versions=0-1 flexible=0+
  groupId string
  topics []ReadStateSummaryData
    topicId uuid
    partitions []PartitionData
      partition int32
      leaderEpoch int32

message ReadShareGroupStateSummaryResponse key=87 versions=0-1 flexible=0+
  results []ReadStateSummaryResult
    topicId uuid
    partitions []PartitionResult
      partition int32
      errorCode int16
      errorMessage string? default=null
      stateEpoch int32
      leaderEpoch int32
      startOffset int64
      deliveryCompleteCount int32 1+ default=-1
"""


class ReadShareGroupStateSummaryRequest(Message):
    """The request in every version."""

    group_id: str
    topics: list[ReadStateSummaryData]


class ReadStateSummaryData(Message):
    """An element of `topics` of ReadShareGroupStateSummaryRequest."""

    topic_id: UUID
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of ReadStateSummaryData."""

    partition: int
    leader_epoch: int


class ReadShareGroupStateSummaryResponse(Message):
    """The response in every version."""

    results: list[ReadStateSummaryResult]


class ReadStateSummaryResult(Message):
    """An element of `results` of ReadShareGroupStateSummaryResponse."""

    topic_id: UUID
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """An element of `partitions` of ReadStateSummaryResult."""

    partition: int
    error_code: int
    error_message: str | None
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
