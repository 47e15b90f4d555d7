"""ExpireDelegationToken (40), versions 1 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message ExpireDelegationTokenRequest key=40 versions=1-2 flexible=2+
  hmac bytes
  expiryTimePeriodMs int64

message ExpireDelegationTokenResponse key=40 versions=1-2 flexible=2+
  errorCode int16
  expiryTimestampMs int64
  throttleTimeMs int32
"""


class ExpireDelegationTokenRequest(Message):
    """The request in every version."""

    hmac: bytes
    expiry_time_period_ms: int


class ExpireDelegationTokenResponse(Message):
    """The response in every version."""

    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
