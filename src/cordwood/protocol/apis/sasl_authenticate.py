"""SaslAuthenticate (36), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message SaslAuthenticateRequest key=36 versions=0-2 flexible=2+
  authBytes bytes

message SaslAuthenticateResponse key=36 versions=0-2 flexible=2+
  errorCode int16
  errorMessage string?
  authBytes bytes
  sessionLifetimeMs int64 1+
"""


class SaslAuthenticateRequest(Message):
    """The request in every version."""

    auth_bytes: bytes


class SaslAuthenticateResponse(Message):
    """The response in every version."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes
    session_lifetime_ms: int
