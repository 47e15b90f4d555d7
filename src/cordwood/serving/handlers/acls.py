"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31), versions 1 to 3: refused.

There is no authorizer, and a Kafka without one refuses them in the same words.

Source: kafka.server.AclApis.
"""

from __future__ import annotations

from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import Operation, on_cluster
from cordwood.serving.request_context import RequestContext

_REFUSAL = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "No Authorizer is configured.",
}
"""SECURITY_DISABLED."""


def describe(context: RequestContext, _request: DescribeAclsRequest) -> Response:
    """Refuses."""
    return _REFUSAL | {"error_message": "No Authorizer is configured on the broker"}


def create(context: RequestContext, request: CreateAclsRequest) -> Response:
    """Refuses each."""
    return {"results": [_REFUSAL for _ in request.creations]}


def delete(context: RequestContext, request: DeleteAclsRequest) -> Response:
    """Refuses each."""
    return {"filter_results": [_REFUSAL for _ in request.filters]}


APIS = (
    Api(29, "DescribeAcls", 1, 3, describe, needs=(on_cluster(Operation.DESCRIBE),)),
    Api(30, "CreateAcls", 1, 3, create, needs=(on_cluster(Operation.ALTER),)),
    Api(31, "DeleteAcls", 1, 3, delete, needs=(on_cluster(Operation.ALTER),)),
)
