"""DeleteAcls (31), versions 1 to 3.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message DeleteAclsRequest key=31 versions=1-3 flexible=2+
  filters []DeleteAclsFilter
    resourceTypeFilter int8
    resourceNameFilter string?
    patternTypeFilter int8 default=3
    principalFilter string?
    hostFilter string?
    operation int8
    permissionType int8

message DeleteAclsResponse key=31 versions=1-3 flexible=2+
  throttleTimeMs int32
  filterResults []DeleteAclsFilterResult
    errorCode int16
    errorMessage string?
    matchingAcls []DeleteAclsMatchingAcl
      errorCode int16
      errorMessage string?
      resourceType int8
      resourceName string
      patternType int8 default=3
      principal string
      host string
      operation int8
      permissionType int8
"""


class DeleteAclsRequest(Message):
    """The request in every version."""

    filters: list[DeleteAclsFilter]


class DeleteAclsFilter(Message):
    """An element of `filters` of DeleteAclsRequest."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class DeleteAclsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    filter_results: list[DeleteAclsFilterResult]


class DeleteAclsFilterResult(Message):
    """An element of `filter_results` of DeleteAclsResponse."""

    error_code: int
    error_message: str | None
    matching_acls: list[DeleteAclsMatchingAcl]


class DeleteAclsMatchingAcl(Message):
    """An element of `matching_acls` of DeleteAclsFilterResult."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
