"""ControllerRegistration (70), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message ControllerRegistrationRequest key=70 versions=0 flexible=0+
  controllerId int32
  incarnationId uuid
  zkMigrationReady bool
  listeners []Listener
    name string
    host string
    port uint16
    securityProtocol int16
  features []Feature
    name string
    minSupportedVersion int16
    maxSupportedVersion int16

message ControllerRegistrationResponse key=70 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string?
"""


class ControllerRegistrationRequest(Message):
    """The request in every version."""

    controller_id: int
    incarnation_id: UUID
    zk_migration_ready: bool
    listeners: list[Listener]
    features: list[Feature]


class Listener(Message):
    """An element of `listeners` of ControllerRegistrationRequest."""

    name: str
    host: str
    port: int
    security_protocol: int


class Feature(Message):
    """An element of `features` of ControllerRegistrationRequest."""

    name: str
    min_supported_version: int
    max_supported_version: int


class ControllerRegistrationResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
