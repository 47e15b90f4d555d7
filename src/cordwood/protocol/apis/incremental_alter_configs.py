"""IncrementalAlterConfigs (44), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message IncrementalAlterConfigsRequest key=44 versions=0-1 flexible=1+
  resources []AlterConfigsResource
    resourceType int8
    resourceName string
    configs []AlterableConfig
      name string
      configOperation int8
      value string?
  validateOnly bool

message IncrementalAlterConfigsResponse key=44 versions=0-1 flexible=1+
  throttleTimeMs int32
  responses []AlterConfigsResourceResponse
    errorCode int16
    errorMessage string?
    resourceType int8
    resourceName string
"""


class IncrementalAlterConfigsRequest(Message):
    """The request in every version."""

    resources: list[AlterConfigsResource]
    validate_only: bool


class AlterConfigsResource(Message):
    """An element of `resources` of IncrementalAlterConfigsRequest."""

    resource_type: int
    resource_name: str
    configs: list[AlterableConfig]


class AlterableConfig(Message):
    """An element of `configs` of AlterConfigsResource."""

    name: str
    config_operation: int
    value: str | None


class IncrementalAlterConfigsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    responses: list[AlterConfigsResourceResponse]


class AlterConfigsResourceResponse(Message):
    """An element of `responses` of IncrementalAlterConfigsResponse."""

    error_code: int
    error_message: str | None
    resource_type: int
    resource_name: str
