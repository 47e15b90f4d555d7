"""DescribeCluster (60), versions 0 to 2: the brokers, or the controllers, of the cluster.

Versions: 1 controllers' own listeners (KIP-919), 2 fenced brokers (KIP-1073).

Source: kafka.server.AuthHelper.computeDescribeClusterResponse,
ControllerApis.handleDescribeCluster, ControllerRegistrationsPublisher.describeClusterControllers.
"""

from __future__ import annotations

from typing import Final

from cordwood.metadata.records import has_controller_registration
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import UnsupportedRequestError
from cordwood.protocol.data import DescribeClusterRequest, DescribeClusterResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.handlers.cluster_facts import brokers_of, cluster_operations
from cordwood.serving.node_services import Role
from cordwood.serving.request_context import RequestContext

_ENDPOINT_TYPES: Final = {Role.BROKER: 1, Role.CONTROLLER: 2}


def handle(context: RequestContext, request: DescribeClusterRequest) -> Response:
    """Answers from the image: the nodes of this one's role with a listener of the client's name."""
    role = context.node.role
    if role is Role.CONTROLLER:
        _require_registered_controllers(context)
        context.require(on_cluster(AclOperation.ALTER), request)
    if request.endpoint_type != _ENDPOINT_TYPES[role]:
        return _wrong_endpoint(role, request.endpoint_type)
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=context.node.cluster_id,
        controller_id=context.node.node_id,
        brokers=_controllers(context) if role is Role.CONTROLLER else _brokers(context, request),
        cluster_authorized_operations=cluster_operations(
            context, is_asked=request.include_cluster_authorized_operations
        ),
    )


def _require_registered_controllers(context: RequestContext) -> None:
    if not has_controller_registration(context.node.metadata.image.metadata_version):
        raise UnsupportedRequestError(
            "Direct-to-controller communication is not supported with the current MetadataVersion."
        )


def _wrong_endpoint(role: Role, asked: int) -> DescribeClusterResponse:
    wanted = {number: each for each, number in _ENDPOINT_TYPES.items()}.get(asked)
    if wanted is None:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {asked}",
        )
    return DescribeClusterResponse(
        error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
        error_message=f"The request was sent to an endpoint of type {role.name}, but we wanted "
        f"an endpoint of type {wanted.name}",
    )


def _brokers(
    context: RequestContext, request: DescribeClusterRequest
) -> list[DescribeClusterResponse.DescribeClusterBroker]:
    return [
        DescribeClusterResponse.DescribeClusterBroker(**each._asdict())
        for each in brokers_of(context, with_fenced=request.include_fenced_brokers)
    ]


def _controllers(context: RequestContext) -> list[DescribeClusterResponse.DescribeClusterBroker]:
    return [
        DescribeClusterResponse.DescribeClusterBroker(
            broker_id=controller.controller_id, host=each.host, port=each.port
        )
        for controller in context.node.metadata.image.controllers.values()
        for each in controller.endpoints
        if each.name == context.listener
    ]


API = Api(60, "DescribeCluster", 0, 2, handle)
