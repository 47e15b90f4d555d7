"""DescribeGroups (15), versions 0 to 6.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeGroupsRequest key=15 versions=0-6 flexible=5+
  groups []string
  includeAuthorizedOperations bool 3+

message DescribeGroupsResponse key=15 versions=0-6 flexible=5+
  throttleTimeMs int32 1+
  groups []DescribedGroup
    errorCode int16
    errorMessage string? 6+ default=null
    groupId string
    groupState string
    protocolType string
    protocolData string
    members []DescribedGroupMember
      memberId string
      groupInstanceId string? 4+ default=null
      clientId string
      clientHost string
      memberMetadata bytes
      memberAssignment bytes
    authorizedOperations int32 3+ default=-2147483648
"""


class DescribeGroupsRequest(Message):
    """The request in every version."""

    groups: list[str]
    include_authorized_operations: bool


class DescribeGroupsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    groups: list[DescribedGroup]


class DescribedGroup(Message):
    """An element of `groups` of DescribeGroupsResponse."""

    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    protocol_type: str
    protocol_data: str
    members: list[DescribedGroupMember]
    authorized_operations: int


class DescribedGroupMember(Message):
    """An element of `members` of DescribedGroup."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    member_metadata: bytes
    member_assignment: bytes
