"""DescribeAcls (29), versions 1 to 3.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DescribeAclsRequest key=29 versions=1-3 flexible=2+
  resourceTypeFilter int8
  resourceNameFilter string?
  patternTypeFilter int8 default=3
  principalFilter string?
  hostFilter string?
  operation int8
  permissionType int8

message DescribeAclsResponse key=29 versions=1-3 flexible=2+
  throttleTimeMs int32
  errorCode int16
  errorMessage string?
  resources []DescribeAclsResource
    resourceType int8
    resourceName string
    patternType int8 default=3
    acls []AclDescription
      principal string
      host string
      operation int8
      permissionType int8
"""


class DescribeAclsRequest(Message):
    """The request in every version."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DescribeAclsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    resources: list[DescribeAclsResource]


class DescribeAclsResource(Message):
    """An element of `resources` of DescribeAclsResponse."""

    resource_type: int
    resource_name: str
    pattern_type: int
    acls: list[AclDescription]


class AclDescription(Message):
    """An element of `acls` of DescribeAclsResource."""

    principal: str
    host: str
    operation: int
    permission_type: int
