"""DescribeProducers (61), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeProducersRequest key=61 versions=0 flexible=0+
  topics []TopicRequest
    name string
    partitionIndexes []int32

message DescribeProducersResponse key=61 versions=0 flexible=0+
  throttleTimeMs int32
  topics []TopicResponse
    name string
    partitions []PartitionResponse
      partitionIndex int32
      errorCode int16
      errorMessage string? default=null
      activeProducers []ProducerState
        producerId int64
        producerEpoch int32
        lastSequence int32 default=-1
        lastTimestamp int64 default=-1
        coordinatorEpoch int32
        currentTxnStartOffset int64 default=-1
"""


class DescribeProducersRequest(Message):
    """The request in every version."""

    topics: list[TopicRequest]


class TopicRequest(Message):
    """An element of `topics` of DescribeProducersRequest."""

    name: str
    partition_indexes: list[int]


class DescribeProducersResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    topics: list[TopicResponse]


class TopicResponse(Message):
    """An element of `topics` of DescribeProducersResponse."""

    name: str
    partitions: list[PartitionResponse]


class PartitionResponse(Message):
    """An element of `partitions` of TopicResponse."""

    partition_index: int
    error_code: int
    error_message: str | None
    active_producers: list[ProducerState]


class ProducerState(Message):
    """An element of `active_producers` of PartitionResponse."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int
