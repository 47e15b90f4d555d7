"""UpdateFeatures (57), versions 0 to 2: raises or lowers feature levels.

Versions: 0 upgrades only, whatever is asked for; 1 downgrades, validate_only; 2 no results of each
feature.

Source: org.apache.kafka.controller.QuorumController.updateFeatures; KIP-584, KIP-778, KIP-1022.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from cordwood.metadata.controller_requests import FeatureUpdate
from cordwood.protocol.data import UpdateFeaturesRequest, UpdateFeaturesResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster
from cordwood.serving.handlers.controller_answers import result_or_error
from cordwood.serving.request_context import RequestContext


def handle(context: RequestContext, request: UpdateFeaturesRequest) -> Response:
    """All levels are set, or none."""
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, each.upgrade_type)
        for each in request.feature_updates
    ]
    asked = context.admin.update_features(updates, validate_only=request.validate_only)
    return _response(updates, asked)


async def _response(
    updates: Sequence[FeatureUpdate], asked: Awaitable[None]
) -> UpdateFeaturesResponse:
    error = await result_or_error(asked)
    if error is not None:
        text = (
            f"The update failed for all features since the following feature had an error: {error}"
        )
        return UpdateFeaturesResponse(error_code=error.code, error_message=text, results=[])
    return UpdateFeaturesResponse(
        results=[
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=each.name, error_message="NONE")
            for each in updates
        ],
    )


API = Api(57, "UpdateFeatures", 0, 2, handle, needs=(on_cluster(AclOperation.ALTER),))
