"""DescribeAcls (29), CreateAcls (30), DeleteAcls (31), versions 1 to 3: refused.

There is no authorizer, and a Kafka without one refuses them in the same words.

Source: kafka.server.AclApis.
"""

from __future__ import annotations

from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.request_context import RequestContext

_CODE = ErrorCode.SECURITY_DISABLED
_TEXT = "No Authorizer is configured."


def describe(context: RequestContext, _request: DescribeAclsRequest) -> Response:
    """Answers that there is no authorizer."""
    text = "No Authorizer is configured on the broker"
    return DescribeAclsResponse(error_code=_CODE, error_message=text)


def create(context: RequestContext, request: CreateAclsRequest) -> Response:
    """Answers for each ACL that there is no authorizer."""
    refusal = CreateAclsResponse.AclCreationResult(error_code=_CODE, error_message=_TEXT)
    return CreateAclsResponse(results=[refusal for _ in request.creations])


def delete(context: RequestContext, request: DeleteAclsRequest) -> Response:
    """Answers for each ACL that there is no authorizer."""
    refusal = DeleteAclsResponse.DeleteAclsFilterResult(error_code=_CODE, error_message=_TEXT)
    return DeleteAclsResponse(filter_results=[refusal for _ in request.filters])


APIS = (
    Api(29, "DescribeAcls", 1, 3, describe, needs=(on_cluster(AclOperation.DESCRIBE),)),
    Api(30, "CreateAcls", 1, 3, create, needs=(on_cluster(AclOperation.ALTER),)),
    Api(31, "DeleteAcls", 1, 3, delete, needs=(on_cluster(AclOperation.ALTER),)),
)
