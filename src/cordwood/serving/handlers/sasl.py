"""SaslHandshake (17), versions 0 to 1, and SaslAuthenticate (36), versions 0 to 2: refused.

Connections are not authenticated; a Kafka refuses them on such a listener with ILLEGAL_SASL_STATE.

Source: kafka.server.KafkaApis.handleSaslHandshakeRequest, handleSaslAuthenticateRequest.
"""

from __future__ import annotations

from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from cordwood.serving.api import Api, Response
from cordwood.serving.request_context import RequestContext


def shake(_context: RequestContext, _request: SaslHandshakeRequest) -> Response:
    """Answers that the connection has no SASL exchange to take part in."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def authenticate(_context: RequestContext, _request: SaslAuthenticateRequest) -> Response:
    """Answers that the connection has no SASL exchange to take part in."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )


APIS = (
    Api(17, "SaslHandshake", 0, 1, shake),
    Api(36, "SaslAuthenticate", 0, 2, authenticate),
)
