"""DescribeCluster (60), versions 0 to 2: the brokers and the controller.

Versions: 1 controllers' own listeners (KIP-919), 2 fenced brokers (KIP-1073).

Source: kafka.server.AuthHelper.computeDescribeClusterResponse.
"""

from __future__ import annotations

from cordwood.broker.handlers.cluster_facts import brokers_of, cluster_operations
from cordwood.broker.request_context import BrokerContext
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.apis.describe_cluster import DescribeClusterRequest
from cordwood.serving.api import Api, Response

_BROKERS, _CONTROLLERS = 1, 2


def handle(context: BrokerContext, request: DescribeClusterRequest) -> Response:
    """Answers from the image."""
    endpoint_type = request.endpoint_type
    if endpoint_type == _CONTROLLERS:
        return {
            "error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "error_message": "The request was sent to an endpoint of type BROKER, but we wanted "
            "an endpoint of type CONTROLLER",
        }
    if endpoint_type != _BROKERS:
        return {
            "error_code": ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": f"Unsupported endpoint type {endpoint_type}",
        }
    return {
        "cluster_id": context.broker.cluster_id,
        "controller_id": context.broker.node_id,
        "brokers": brokers_of(context, "broker_id", with_fenced=request.include_fenced_brokers),
        "cluster_authorized_operations": cluster_operations(
            context, is_asked=request.include_cluster_authorized_operations
        ),
    }


API = Api(60, "DescribeCluster", 0, 2, handle)
