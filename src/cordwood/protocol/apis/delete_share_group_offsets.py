"""DeleteShareGroupOffsets (92), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message DeleteShareGroupOffsetsRequest key=92 versions=0 flexible=0+
  groupId string
  topics []DeleteShareGroupOffsetsRequestTopic
    topicName string

message DeleteShareGroupOffsetsResponse key=92 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string? default=null
  responses []DeleteShareGroupOffsetsResponseTopic
    topicName string
    topicId uuid
    errorCode int16
    errorMessage string? default=null
"""


class DeleteShareGroupOffsetsRequest(Message):
    """The request in every version."""

    group_id: str
    topics: list[DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsRequestTopic(Message):
    """An element of `topics` of DeleteShareGroupOffsetsRequest."""

    topic_name: str


class DeleteShareGroupOffsetsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    responses: list[DeleteShareGroupOffsetsResponseTopic]


class DeleteShareGroupOffsetsResponseTopic(Message):
    """An element of `responses` of DeleteShareGroupOffsetsResponse."""

    topic_name: str
    topic_id: UUID
    error_code: int
    error_message: str | None
