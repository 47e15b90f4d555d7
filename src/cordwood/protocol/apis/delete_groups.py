"""DeleteGroups (42), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DeleteGroupsRequest key=42 versions=0-2 flexible=2+
  groupsNames []string

message DeleteGroupsResponse key=42 versions=0-2 flexible=2+
  throttleTimeMs int32
  results []DeletableGroupResult
    groupId string
    errorCode int16
"""


class DeleteGroupsRequest(Message):
    """The request in every version."""

    groups_names: list[str]


class DeleteGroupsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    results: list[DeletableGroupResult]


class DeletableGroupResult(Message):
    """An element of `results` of DeleteGroupsResponse."""

    group_id: str
    error_code: int
