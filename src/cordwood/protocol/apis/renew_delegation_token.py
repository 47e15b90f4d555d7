"""RenewDelegationToken (39), versions 1 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message RenewDelegationTokenRequest key=39 versions=1-2 flexible=2+
  hmac bytes
  renewPeriodMs int64

message RenewDelegationTokenResponse key=39 versions=1-2 flexible=2+
  errorCode int16
  expiryTimestampMs int64
  throttleTimeMs int32
"""


class RenewDelegationTokenRequest(Message):
    """The request in every version."""

    hmac: bytes
    renew_period_ms: int


class RenewDelegationTokenResponse(Message):
    """The response in every version."""

    error_code: int
    expiry_timestamp_ms: int
    throttle_time_ms: int
