"""Create-, Renew-, Expire- and DescribeDelegationToken (38 to 41), up to version 3: refused.

A Kafka that is asked over a connection which authenticates nobody refuses them all alike:
DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

Source: kafka.server.KafkaApis.handleCreateTokenRequest and its neighbours.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message
from cordwood.model.error_codes import ErrorCode
from cordwood.serving.api import Api, Response
from cordwood.serving.request_context import RequestContext

_NONE = -1


def refuse(_context: RequestContext, _request: Message) -> Response:
    """Refuses."""
    times = dict.fromkeys(("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms"), _NONE)
    anonymous = {"principal_type": "User", "principal_name": "ANONYMOUS"}
    requester = {f"token_requester_{name}": value for name, value in anonymous.items()}
    return {
        "error_code": ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        **times,
        **anonymous,
        **requester,
    }


APIS = (
    Api(38, "CreateDelegationToken", 1, 3, refuse),
    Api(39, "RenewDelegationToken", 1, 2, refuse),
    Api(40, "ExpireDelegationToken", 1, 2, refuse),
    Api(41, "DescribeDelegationToken", 1, 3, refuse),
)
