"""ListPartitionReassignments (46), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message ListPartitionReassignmentsRequest key=46 versions=0 flexible=0+
  timeoutMs int32 default=60000
  topics []ListPartitionReassignmentsTopics? default=null
    name string
    partitionIndexes []int32

message ListPartitionReassignmentsResponse key=46 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string?
  topics []OngoingTopicReassignment
    name string
    partitions []OngoingPartitionReassignment
      partitionIndex int32
      replicas []int32
      addingReplicas []int32
      removingReplicas []int32
"""


class ListPartitionReassignmentsRequest(Message):
    """The request in every version."""

    timeout_ms: int
    topics: list[ListPartitionReassignmentsTopics] | None


class ListPartitionReassignmentsTopics(Message):
    """An element of `topics` of ListPartitionReassignmentsRequest."""

    name: str
    partition_indexes: list[int]


class ListPartitionReassignmentsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    topics: list[OngoingTopicReassignment]


class OngoingTopicReassignment(Message):
    """An element of `topics` of ListPartitionReassignmentsResponse."""

    name: str
    partitions: list[OngoingPartitionReassignment]


class OngoingPartitionReassignment(Message):
    """An element of `partitions` of OngoingTopicReassignment."""

    partition_index: int
    replicas: list[int]
    adding_replicas: list[int]
    removing_replicas: list[int]
