"""Envelope (58), version 0: a client's request that its broker forwards (KIP-590).

Source: kafka.server.ControllerApis.handleEnvelopeRequest, EnvelopeUtils.handleEnvelopeRequest.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, Final

from cordwood.controller.controller_context import ControllerContext
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import EnvelopeRequest, EnvelopeResponse
from cordwood.protocol.headers import parse_start
from cordwood.protocol.messages import MalformedMessageError
from cordwood.serving.api import Api, Parked, Part, Response
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.forwarding import FORWARDED
from cordwood.serving.principal import read_principal
from cordwood.serving.request_errors import UnansweredRequestError, UnservedRequestError
from cordwood.serving.session import Session

_log = logging.getLogger(__name__)

_SIZE_BYTES: Final = 4
#: Requests that a broker answers in part itself.
_CHANGED_BY_BROKER: Final = frozenset({33, 44})


def handle(context: ControllerContext, request: EnvelopeRequest) -> Response:
    """The answer to the request within, as its own client would get it."""
    principal = read_principal(request.request_principal)
    if principal is None:
        return _refused(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE)
    try:
        address = str(ipaddress.ip_address(bytes(request.client_host_address)))
    except ValueError:
        return _refused(ErrorCode.INVALID_REQUEST)
    frame = memoryview(bytes(request.request_data))
    try:
        header = parse_start(frame)
    except MalformedMessageError:
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    if header.api_key not in FORWARDED | _CHANGED_BY_BROKER:
        return _refused(ErrorCode.INVALID_REQUEST)
    client = Session(address, context.session.name, context.listener)
    client.authenticate(principal)
    try:
        answer = context.controller.forwarded(frame, client)
    except (UnservedRequestError, MalformedMessageError) as error:
        _log.info("A forwarded request is not served: %s", error)
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    return _wrapped(answer)


def _refused(error: ErrorCode) -> EnvelopeResponse:
    return EnvelopeResponse(response_data=None, error_code=error)


async def _wrapped(
    answer: Sequence[Part] | Awaitable[Any] | Parked | None,
) -> EnvelopeResponse:
    found: Any = answer.answer if isinstance(answer, Parked) else answer
    try:
        while found is not None and not isinstance(found, list):
            found = await (found.answer if isinstance(found, Parked) else found)
    except (UnansweredRequestError, MalformedMessageError) as error:
        _log.info("A forwarded request is not served: %s", error)
        return _refused(ErrorCode.UNSUPPORTED_VERSION)
    assert found is not None, "no forwarded request goes without an answer"
    return EnvelopeResponse(response_data=b"".join(found)[_SIZE_BYTES:], error_code=ErrorCode.NONE)


API = Api(58, "Envelope", 0, 0, handle, needs=(on_cluster(AclOperation.CLUSTER_ACTION),))
