"""UnregisterBroker (64), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message UnregisterBrokerRequest key=64 versions=0 flexible=0+
  brokerId int32

message UnregisterBrokerResponse key=64 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string?
"""


class UnregisterBrokerRequest(Message):
    """The request in every version."""

    broker_id: int


class UnregisterBrokerResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
