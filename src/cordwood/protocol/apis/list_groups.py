"""ListGroups (16), versions 0 to 5.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message ListGroupsRequest key=16 versions=0-5 flexible=3+
  statesFilter []string 4+
  typesFilter []string 5+

message ListGroupsResponse key=16 versions=0-5 flexible=3+
  throttleTimeMs int32 1+
  errorCode int16
  groups []ListedGroup
    groupId string
    protocolType string
    groupState string 4+
    groupType string 5+
"""


class ListGroupsRequest(Message):
    """The request in every version."""

    states_filter: list[str]
    types_filter: list[str]


class ListGroupsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    groups: list[ListedGroup]


class ListedGroup(Message):
    """An element of `groups` of ListGroupsResponse."""

    group_id: str
    protocol_type: str
    group_state: str
    group_type: str
