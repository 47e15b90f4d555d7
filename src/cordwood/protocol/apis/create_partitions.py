"""CreatePartitions (37), versions 0 to 3.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message CreatePartitionsRequest key=37 versions=0-3 flexible=2+
  topics []CreatePartitionsTopic
    name string
    count int32
    assignments []CreatePartitionsAssignment?
      brokerIds []int32
  timeoutMs int32
  validateOnly bool

message CreatePartitionsResponse key=37 versions=0-3 flexible=2+
  throttleTimeMs int32
  results []CreatePartitionsTopicResult
    name string
    errorCode int16
    errorMessage string? default=null
"""


class CreatePartitionsRequest(Message):
    """The request in every version."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: int
    validate_only: bool


class CreatePartitionsTopic(Message):
    """An element of `topics` of CreatePartitionsRequest."""

    name: str
    count: int
    assignments: list[CreatePartitionsAssignment] | None


class CreatePartitionsAssignment(Message):
    """An element of `assignments` of CreatePartitionsTopic."""

    broker_ids: list[int]


class CreatePartitionsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    results: list[CreatePartitionsTopicResult]


class CreatePartitionsTopicResult(Message):
    """An element of `results` of CreatePartitionsResponse."""

    name: str
    error_code: int
    error_message: str | None
