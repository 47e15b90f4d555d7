"""ApiVersions (18), versions 0 to 4: the supported APIs, and the features of the cluster.

Versions: 3 flexible, client software (KIP-511), features (KIP-584); 4 features whose lowest level
is 0 (KIP-1022). A version that is not known is answered in version 0, by the dispatcher.

Source: kafka.server.KafkaApis.handleApiVersionsRequest, DefaultApiVersionManager.
"""

from __future__ import annotations

import re

from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import ApiVersionsRequest, ApiVersionsResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.request_context import RequestContext

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
_ZERO_LEVELS_SINCE = 4
_PRODUCE = 0


def handle(context: RequestContext, request: ApiVersionsRequest) -> Response:
    """Answers from the table of handlers."""
    if context.api_version >= _SOFTWARE_SINCE:
        software = request.client_software_name, request.client_software_version
        if not all(_SOFTWARE.fullmatch(text) for text in software):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.session.software = software
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


API = Api(18, "ApiVersions", 0, 4, handle)
