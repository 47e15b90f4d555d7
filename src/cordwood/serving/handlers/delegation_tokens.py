"""Create-, Renew-, Expire- and DescribeDelegationToken (38 to 41), up to version 3: refused.

A Kafka that is asked over a connection which authenticates nobody refuses them all alike:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Source: kafka.server.KafkaApis.handleCreateTokenRequest and its neighbours.
"""

from __future__ import annotations

from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from cordwood.serving.api import Api, Response
from cordwood.serving.request_context import RequestContext

_CODE = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_ANONYMOUS = "User", "ANONYMOUS"


def create(_context: RequestContext, _request: CreateDelegationTokenRequest) -> Response:
    """Answers that the request is not allowed without authentication."""
    kind, name = _ANONYMOUS
    return CreateDelegationTokenResponse(
        error_code=_CODE,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def renew(_context: RequestContext, _request: RenewDelegationTokenRequest) -> Response:
    """Answers that the request is not allowed without authentication."""
    return RenewDelegationTokenResponse(error_code=_CODE, expiry_timestamp_ms=-1)


def expire(_context: RequestContext, _request: ExpireDelegationTokenRequest) -> Response:
    """Answers that the request is not allowed without authentication."""
    return ExpireDelegationTokenResponse(error_code=_CODE, expiry_timestamp_ms=-1)


def describe(_context: RequestContext, _request: DescribeDelegationTokenRequest) -> Response:
    """Answers that the request is not allowed without authentication."""
    return DescribeDelegationTokenResponse(error_code=_CODE)


APIS = (
    Api(38, "CreateDelegationToken", 1, 3, create),
    Api(39, "RenewDelegationToken", 1, 2, renew),
    Api(40, "ExpireDelegationToken", 1, 2, expire),
    Api(41, "DescribeDelegationToken", 1, 3, describe),
)
