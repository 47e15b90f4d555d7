"""AlterPartitionReassignments (45), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message AlterPartitionReassignmentsRequest key=45 versions=0-1 flexible=0+
  timeoutMs int32 default=60000
  allowReplicationFactorChange bool 1+ default=true
  topics []ReassignableTopic
    name string
    partitions []ReassignablePartition
      partitionIndex int32
      replicas []int32? default=null

message AlterPartitionReassignmentsResponse key=45 versions=0-1 flexible=0+
  throttleTimeMs int32
  allowReplicationFactorChange bool 1+ default=true
  errorCode int16
  errorMessage string?
  responses []ReassignableTopicResponse
    name string
    partitions []ReassignablePartitionResponse
      partitionIndex int32
      errorCode int16
      errorMessage string?
"""


class AlterPartitionReassignmentsRequest(Message):
    """The request in every version."""

    timeout_ms: int
    allow_replication_factor_change: bool
    topics: list[ReassignableTopic]


class ReassignableTopic(Message):
    """An element of `topics` of AlterPartitionReassignmentsRequest."""

    name: str
    partitions: list[ReassignablePartition]


class ReassignablePartition(Message):
    """An element of `partitions` of ReassignableTopic."""

    partition_index: int
    replicas: list[int] | None


class AlterPartitionReassignmentsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    allow_replication_factor_change: bool
    error_code: int
    error_message: str | None
    responses: list[ReassignableTopicResponse]


class ReassignableTopicResponse(Message):
    """An element of `responses` of AlterPartitionReassignmentsResponse."""

    name: str
    partitions: list[ReassignablePartitionResponse]


class ReassignablePartitionResponse(Message):
    """An element of `partitions` of ReassignableTopicResponse."""

    partition_index: int
    error_code: int
    error_message: str | None
