"""Envelope (58), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message EnvelopeRequest key=58 versions=0 flexible=0+
  requestData bytes
  requestPrincipal bytes?
  clientHostAddress bytes

message EnvelopeResponse key=58 versions=0 flexible=0+
  responseData bytes? default=null
  errorCode int16
"""


class EnvelopeRequest(Message):
    """The request in every version."""

    request_data: bytes
    request_principal: bytes | None
    client_host_address: bytes


class EnvelopeResponse(Message):
    """The response in every version."""

    response_data: bytes | None
    error_code: int
