"""FindCoordinator (10), versions 0 to 6.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message FindCoordinatorRequest key=10 versions=0-6 flexible=3+
  key string 0-3
  keyType int8 1+
  coordinatorKeys []string 4+

message FindCoordinatorResponse key=10 versions=0-6 flexible=3+
  throttleTimeMs int32 1+
  errorCode int16 0-3
  errorMessage string? 1-3
  nodeId int32 0-3
  host string 0-3
  port int32 0-3
  coordinators []Coordinator 4+
    key string
    nodeId int32
    host string
    port int32
    errorCode int16
    errorMessage string?
"""


class FindCoordinatorRequest(Message):
    """The request in every version."""

    key: str
    key_type: int
    coordinator_keys: list[str]


class FindCoordinatorResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int
    coordinators: list[Coordinator]


class Coordinator(Message):
    """An element of `coordinators` of FindCoordinatorResponse."""

    key: str
    node_id: int
    host: str
    port: int
    error_code: int
    error_message: str | None
