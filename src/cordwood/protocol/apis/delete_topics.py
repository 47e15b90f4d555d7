"""DeleteTopics (20), versions 1 to 6.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message DeleteTopicsRequest key=20 versions=1-6 flexible=4+
  topics []DeleteTopicState 6+
    name string? default=null
    topicId uuid
  topicNames []string 1-5
  timeoutMs int32

message DeleteTopicsResponse key=20 versions=1-6 flexible=4+
  throttleTimeMs int32
  responses []DeletableTopicResult
    name string?6+
    topicId uuid 6+
    errorCode int16
    errorMessage string? 5+ default=null
"""


class DeleteTopicsRequest(Message):
    """The request in every version."""

    topics: list[DeleteTopicState]
    topic_names: list[str]
    timeout_ms: int


class DeleteTopicState(Message):
    """An element of `topics` of DeleteTopicsRequest."""

    name: str | None
    topic_id: UUID


class DeleteTopicsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    responses: list[DeletableTopicResult]


class DeletableTopicResult(Message):
    """An element of `responses` of DeleteTopicsResponse."""

    name: str | None
    topic_id: UUID
    error_code: int
    error_message: str | None
