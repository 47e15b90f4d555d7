"""CreateAcls (30), versions 1 to 3.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message CreateAclsRequest key=30 versions=1-3 flexible=2+
  creations []AclCreation
    resourceType int8
    resourceName string
    resourcePatternType int8 default=3
    principal string
    host string
    operation int8
    permissionType int8

message CreateAclsResponse key=30 versions=1-3 flexible=2+
  throttleTimeMs int32
  results []AclCreationResult
    errorCode int16
    errorMessage string?
"""


class CreateAclsRequest(Message):
    """The request in every version."""

    creations: list[AclCreation]


class AclCreation(Message):
    """An element of `creations` of CreateAclsRequest."""

    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


class CreateAclsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    results: list[AclCreationResult]


class AclCreationResult(Message):
    """An element of `results` of CreateAclsResponse."""

    error_code: int
    error_message: str | None
