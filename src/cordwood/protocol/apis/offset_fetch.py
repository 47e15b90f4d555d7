"""OffsetFetch (9), versions 1 to 10.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message OffsetFetchRequest key=9 versions=1-10 flexible=6+
  groupId string 1-7
  topics []OffsetFetchRequestTopic?2-7 1-7
    name string
    partitionIndexes []int32
  groups []OffsetFetchRequestGroup 8+
    groupId string
    memberId string? 9+ default=null
    memberEpoch int32 9+ default=-1
    topics []OffsetFetchRequestTopics?
      name string 8-9
      topicId uuid 10+
      partitionIndexes []int32
  requireStable bool 7+

message OffsetFetchResponse key=9 versions=1-10 flexible=6+
  throttleTimeMs int32 3+
  topics []OffsetFetchResponseTopic 1-7
    name string
    partitions []OffsetFetchResponsePartition
      partitionIndex int32
      committedOffset int64
      committedLeaderEpoch int32 5+ default=-1
      metadata string?
      errorCode int16
  errorCode int16 2-7
  groups []OffsetFetchResponseGroup 8+
    groupId string
    topics []OffsetFetchResponseTopics
      name string 8-9
      topicId uuid 10+
      partitions []OffsetFetchResponsePartitions
        partitionIndex int32
        committedOffset int64
        committedLeaderEpoch int32 default=-1
        metadata string?
        errorCode int16
    errorCode int16
"""


class OffsetFetchRequest(Message):
    """The request in every version."""

    group_id: str
    topics: list[OffsetFetchRequestTopic] | None
    groups: list[OffsetFetchRequestGroup]
    require_stable: bool


class OffsetFetchRequestTopic(Message):
    """An element of `topics` of OffsetFetchRequest."""

    name: str
    partition_indexes: list[int]


class OffsetFetchRequestGroup(Message):
    """An element of `groups` of OffsetFetchRequest."""

    group_id: str
    member_id: str | None
    member_epoch: int
    topics: list[OffsetFetchRequestTopics] | None


class OffsetFetchRequestTopics(Message):
    """An element of `topics` of OffsetFetchRequestGroup."""

    name: str
    topic_id: UUID
    partition_indexes: list[int]


class OffsetFetchResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    topics: list[OffsetFetchResponseTopic]
    error_code: int
    groups: list[OffsetFetchResponseGroup]


class OffsetFetchResponseTopic(Message):
    """An element of `topics` of OffsetFetchResponse."""

    name: str
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponsePartition(Message):
    """An element of `partitions` of OffsetFetchResponseTopic."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int


class OffsetFetchResponseGroup(Message):
    """An element of `groups` of OffsetFetchResponse."""

    group_id: str
    topics: list[OffsetFetchResponseTopics]
    error_code: int


class OffsetFetchResponseTopics(Message):
    """An element of `topics` of OffsetFetchResponseGroup."""

    name: str
    topic_id: UUID
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponsePartitions(Message):
    """An element of `partitions` of OffsetFetchResponseTopics."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    metadata: str | None
    error_code: int
