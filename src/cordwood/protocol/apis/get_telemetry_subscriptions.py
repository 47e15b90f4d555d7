"""GetTelemetrySubscriptions (71), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message GetTelemetrySubscriptionsRequest key=71 versions=0 flexible=0+
  clientInstanceId uuid

message GetTelemetrySubscriptionsResponse key=71 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  clientInstanceId uuid
  subscriptionId int32
  acceptedCompressionTypes []int8
  pushIntervalMs int32
  telemetryMaxBytes int32
  deltaTemporality bool
  requestedMetrics []string
"""


class GetTelemetrySubscriptionsRequest(Message):
    """The request in every version."""

    client_instance_id: UUID


class GetTelemetrySubscriptionsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    client_instance_id: UUID
    subscription_id: int
    accepted_compression_types: list[int]
    push_interval_ms: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: list[str]
