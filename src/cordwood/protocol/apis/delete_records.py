"""DeleteRecords (21), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DeleteRecordsRequest key=21 versions=0-2 flexible=2+
  topics []DeleteRecordsTopic
    name string
    partitions []DeleteRecordsPartition
      partitionIndex int32
      offset int64
  timeoutMs int32

message DeleteRecordsResponse key=21 versions=0-2 flexible=2+
  throttleTimeMs int32
  topics []DeleteRecordsTopicResult
    name string
    partitions []DeleteRecordsPartitionResult
      partitionIndex int32
      lowWatermark int64
      errorCode int16
"""


class DeleteRecordsRequest(Message):
    """The request in every version."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: int


class DeleteRecordsTopic(Message):
    """An element of `topics` of DeleteRecordsRequest."""

    name: str
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsPartition(Message):
    """An element of `partitions` of DeleteRecordsTopic."""

    partition_index: int
    offset: int


class DeleteRecordsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    topics: list[DeleteRecordsTopicResult]


class DeleteRecordsTopicResult(Message):
    """An element of `topics` of DeleteRecordsResponse."""

    name: str
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsPartitionResult(Message):
    """An element of `partitions` of DeleteRecordsTopicResult."""

    partition_index: int
    low_watermark: int
    error_code: int
