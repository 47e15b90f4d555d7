"""AlterConfigs (33), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message AlterConfigsRequest key=33 versions=0-2 flexible=2+
  resources []AlterConfigsResource
    resourceType int8
    resourceName string
    configs []AlterableConfig
      name string
      value string?
  validateOnly bool

message AlterConfigsResponse key=33 versions=0-2 flexible=2+
  throttleTimeMs int32
  responses []AlterConfigsResourceResponse
    errorCode int16
    errorMessage string?
    resourceType int8
    resourceName string
"""


class AlterConfigsRequest(Message):
    """The request in every version."""

    resources: list[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResource(Message):
    """An element of `resources` of AlterConfigsRequest."""

    resource_type: int
    resource_name: str
    configs: list[AlterableConfig]


class AlterableConfig(Message):
    """An element of `configs` of AlterConfigsResource."""

    name: str
    value: str | None


class AlterConfigsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]


class AlterConfigsResourceResponse(Message):
    """An element of `responses` of AlterConfigsResponse."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
