"""DescribeShareGroupOffsets (90), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeShareGroupOffsetsRequest key=90 versions=0-1 flexible=0+
  groups []DescribeShareGroupOffsetsRequestGroup
    groupId string
    topics []DescribeShareGroupOffsetsRequestTopic?
      topicName string
      partitions []int32

message DescribeShareGroupOffsetsResponse key=90 versions=0-1 flexible=0+
  throttleTimeMs int32
  groups []DescribeShareGroupOffsetsResponseGroup
    groupId string
    topics []DescribeShareGroupOffsetsResponseTopic
      topicName string
      topicId uuid
      partitions []DescribeShareGroupOffsetsResponsePartition
        partitionIndex int32
        startOffset int64
        leaderEpoch int32
        lag int64 1+ default=-1
        errorCode int16
        errorMessage string? default=null
    errorCode int16
    errorMessage string? default=null
"""


class DescribeShareGroupOffsetsRequest(Message):
    """The request in every version."""

    groups: list[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsRequestGroup(Message):
    """An element of `groups` of DescribeShareGroupOffsetsRequest."""

    group_id: str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


class DescribeShareGroupOffsetsRequestTopic(Message):
    """An element of `topics` of DescribeShareGroupOffsetsRequestGroup."""

    topic_name: str
    partitions: list[int]


class DescribeShareGroupOffsetsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    groups: list[DescribeShareGroupOffsetsResponseGroup]


class DescribeShareGroupOffsetsResponseGroup(Message):
    """An element of `groups` of DescribeShareGroupOffsetsResponse."""

    group_id: str
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: int
    error_message: str | None


class DescribeShareGroupOffsetsResponseTopic(Message):
    """An element of `topics` of DescribeShareGroupOffsetsResponseGroup."""

    topic_name: str
    topic_id: UUID
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponsePartition(Message):
    """An element of `partitions` of DescribeShareGroupOffsetsResponseTopic."""

    partition_index: int
    start_offset: int
    leader_epoch: int
    lag: int
    error_code: int
    error_message: str | None
