"""OffsetDelete (47), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message OffsetDeleteRequest key=47 versions=0 flexible=none
  groupId string
  topics []OffsetDeleteRequestTopic
    name string
    partitions []OffsetDeleteRequestPartition
      partitionIndex int32

message OffsetDeleteResponse key=47 versions=0 flexible=none
  errorCode int16
  throttleTimeMs int32
  topics []OffsetDeleteResponseTopic
    name string
    partitions []OffsetDeleteResponsePartition
      partitionIndex int32
      errorCode int16
"""


class OffsetDeleteRequest(Message):
    """The request in every version."""

    group_id: str
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteRequestTopic(Message):
    """An element of `topics` of OffsetDeleteRequest."""

    name: str
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequestPartition(Message):
    """An element of `partitions` of OffsetDeleteRequestTopic."""

    partition_index: int


class OffsetDeleteResponse(Message):
    """The response in every version."""

    error_code: int
    throttle_time_ms: int
    topics: list[OffsetDeleteResponseTopic]


class OffsetDeleteResponseTopic(Message):
    """An element of `topics` of OffsetDeleteResponse."""

    name: str
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponsePartition(Message):
    """An element of `partitions` of OffsetDeleteResponseTopic."""

    partition_index: int
    error_code: int
