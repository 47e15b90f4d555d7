"""SaslHandshake (17), versions 0 to 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message SaslHandshakeRequest key=17 versions=0-1 flexible=none
  mechanism string

message SaslHandshakeResponse key=17 versions=0-1 flexible=none
  errorCode int16
  mechanisms []string
"""


class SaslHandshakeRequest(Message):
    """The request in every version."""

    mechanism: str


class SaslHandshakeResponse(Message):
    """The response in every version."""

    error_code: int
    mechanisms: list[str]
