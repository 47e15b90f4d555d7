"""ApiVersions (18), versions 0 to 5: the supported APIs, and the features of the cluster.

Versions: 3 flexible, client software (KIP-511), features (KIP-584); 4 features whose lowest level
is 0 (KIP-1022); 5 the cluster and the node that the client means (KIP-1242). A version that is not
known is answered in version 0, by the dispatcher.

Source: kafka.server.KafkaApis.handleApiVersionsRequest, ControllerApis, ApiVersionsRequest.isValid,
DefaultApiVersionManager (4.4.0).
"""

from __future__ import annotations

import re

from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import ApiVersionsRequest, ApiVersionsResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.node_services import Role
from cordwood.serving.request_context import RequestContext

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
_ZERO_LEVELS_SINCE = 4
_PRODUCE = 0
_NO_NODE = -1


def handle(context: RequestContext, request: ApiVersionsRequest) -> Response:
    """Answers from the table of handlers, unless the client means another broker."""
    if (request.cluster_id is None) != (request.node_id == _NO_NODE):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    if context.api_version >= _SOFTWARE_SINCE:
        software = request.client_software_name, request.client_software_version
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.session.software = software
    if _means_another_broker(context, request):
        return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    versions = context.node.api_versions
    if context.node.forwarding is not None:
        versions = context.node.forwarding.advertised(versions)
    supported = context.node.metadata.supported_features
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=key,
                # librdkafka of before 2.4 looks for version 0 to learn that batches are compressed
                min_version=0 if key == _PRODUCE else low,
                max_version=high,
            )
            for key, (low, high) in sorted(versions.items())
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in supported.items()
            if low > 0 or context.api_version >= _ZERO_LEVELS_SINCE
        ],
        finalized_features_epoch=context.node.metadata.image.next_offset - 1,
        finalized_features=[
            ApiVersionsResponse.FinalizedFeatureKey(
                name=name, max_version_level=level, min_version_level=level
            )
            for name, level in context.node.metadata.finalized_features().items()
        ],
    )


def _means_another_broker(context: RequestContext, request: ApiVersionsRequest) -> bool:
    """Whether a client of a broker names another; a controller answers those, too."""
    node = context.node
    if request.cluster_id is None or node.role is Role.CONTROLLER:
        return False
    return (request.cluster_id, request.node_id) != (node.cluster_id, node.node_id)


API = Api(18, "ApiVersions", 0, 5, handle)
