"""PushTelemetry (72), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message PushTelemetryRequest key=72 versions=0 flexible=0+
  clientInstanceId uuid
  subscriptionId int32
  terminating bool
  compressionType int8
  metrics bytes

message PushTelemetryResponse key=72 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
"""


class PushTelemetryRequest(Message):
    """The request in every version."""

    client_instance_id: UUID
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes


class PushTelemetryResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
