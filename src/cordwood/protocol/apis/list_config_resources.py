"""ListConfigResources (74), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message ListConfigResourcesRequest key=74 versions=0-1 flexible=0+
  resourceTypes []int8 1+

message ListConfigResourcesResponse key=74 versions=0-1 flexible=0+
  throttleTimeMs int32
  errorCode int16
  configResources []ConfigResource
    resourceName string
    resourceType int8 1+ default=16
"""


class ListConfigResourcesRequest(Message):
    """The request in every version."""

    resource_types: list[int]


class ListConfigResourcesResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    config_resources: list[ConfigResource]


class ConfigResource(Message):
    """An element of `config_resources` of ListConfigResourcesResponse."""

    resource_name: str
    resource_type: int
