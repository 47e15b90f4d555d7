"""DescribeCluster (60), versions 1 and 2, at a controller: the controllers (KIP-919).

Versions: 2 fenced brokers, of which a controller says nothing.

Source: kafka.server.ControllerApis.handleDescribeCluster,
ControllerRegistrationsPublisher.describeClusterControllers.
"""

from __future__ import annotations

from typing import Final

from cordwood.broker.handlers.cluster_facts import cluster_operations
from cordwood.controller_apis.context import ControllerContext
from cordwood.metadata.records import has_controller_registration
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import UnsupportedRequestError
from cordwood.protocol.apis.describe_cluster import DescribeClusterRequest
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import Operation

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(context: ControllerContext, request: DescribeClusterRequest) -> Response:
    """Answers from the image: the controllers with a listener of the client's name."""
    image = context.node.metadata.image
    if not has_controller_registration(image.metadata_version):
        raise UnsupportedRequestError(
            "Direct-to-controller communication is not supported with the current MetadataVersion."
        )
    context.require_cluster(Operation.ALTER)
    if request.endpoint_type == _BROKERS:
        return {
            "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "error_message": "The request was sent to an endpoint of type CONTROLLER, but we "
            "wanted an endpoint of type BROKER",
        }
    if request.endpoint_type != _CONTROLLERS:
        return {
            "error_code": ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": f"Unsupported endpoint type {request.endpoint_type}",
        }
    return {
        "endpoint_type": _CONTROLLERS,
        "cluster_id": context.node.cluster_id,
        "controller_id": context.node.node_id,
        "brokers": [
            {"broker_id": controller.controller_id, "host": each.host, "port": each.port}
            for controller in image.controllers.values()
            for each in controller.endpoints
            if each.name == context.listener
        ],
        "cluster_authorized_operations": cluster_operations(
            context, is_asked=request.include_cluster_authorized_operations
        ),
    }


API = Api(60, "DescribeCluster", 0, 2, handle)
