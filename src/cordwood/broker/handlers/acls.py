"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31), versions 1 to 3: refused.

There is no authorizer, and a Kafka without one refuses them in the same words.

Source: kafka.server.AclApis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordwood.broker.api import Api, Call, Response

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker

_REFUSAL = {"error_code": 54, "error_message": "No Authorizer is configured."}
"""SECURITY_DISABLED."""


def describe(_broker: Broker, _request: Any, _call: Call) -> Response:
    """Refuses."""
    return _REFUSAL | {"error_message": "No Authorizer is configured on the broker"}


def create(_broker: Broker, request: Any, _call: Call) -> Response:
    """Refuses each."""
    return {"results": [_REFUSAL for _ in request.creations]}


def delete(_broker: Broker, request: Any, _call: Call) -> Response:
    """Refuses each."""
    return {"filter_results": [_REFUSAL for _ in request.filters]}


APIS = (
    Api(29, "DescribeAcls", 1, 3, describe),
    Api(30, "CreateAcls", 1, 3, create),
    Api(31, "DeleteAcls", 1, 3, delete),
)
