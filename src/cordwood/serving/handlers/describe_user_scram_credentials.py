"""DescribeUserScramCredentials (50), version 0: users with SCRAM credentials.

Nobody is authenticated here; the credentials are those that a Kafka left in the directory.

Source: org.apache.kafka.image.ScramImage.describe; KIP-554.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.request_context import RequestContext

_Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
_Credential = DescribeUserScramCredentialsResponse.CredentialInfo


def handle(context: RequestContext, request: DescribeUserScramCredentialsRequest) -> Response:
    """Lists mechanisms and iterations, never a digest."""
    found: dict[str, list[_Credential]] = defaultdict(list)
    for (mechanism, user), record in context.node.metadata.image.scram_credentials.items():
        found[user].append(_Credential(mechanism=mechanism, iterations=record["iterations"]))
    if not request.users:
        return DescribeUserScramCredentialsResponse(
            error_message="",
            results=[_Result(user=user, credential_infos=found[user]) for user in sorted(found)],
        )
    asked = Counter(user.name for user in request.users)
    results = [_describe(user, count, found) for user, count in asked.items()]
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _describe(user: str, count: int, found: dict[str, list[_Credential]]) -> _Result:
    if count > 1:
        return _Result(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message="Cannot describe SCRAM credentials for the same user twice in a "
            f"single request: {user}",
        )
    if user not in found:
        return _Result(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return _Result(user=user, credential_infos=found[user])


API = Api(
    50,
    "DescribeUserScramCredentials",
    0,
    0,
    handle,
    needs=(on_cluster(AclOperation.DESCRIBE),),
    is_long=always,
)
