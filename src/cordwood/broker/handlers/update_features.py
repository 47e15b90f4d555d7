"""UpdateFeatures (57), versions 0 to 2: levels of features are raised, or lowered.

Versions: 1 upgrades and downgrades are told apart, validate_only; 2 no results of each feature.

Source: org.apache.kafka.controller.QuorumController.updateFeatures; KIP-584, KIP-778, KIP-1022.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordwood.broker.api import Api, Call, Response
from cordwood.broker.controller.features import SAFE_DOWNGRADE, UPGRADE
from cordwood.broker.controller.model import FeatureUpdate
from cordwood.broker.handlers.error_fields import error_fields
from cordwood.model.kafka_errors import KafkaError
from cordwood.protocol.messages import field

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker


def handle(broker: Broker, request: Any, _call: Call) -> Response:
    """All levels are set, or none."""
    updates = [
        FeatureUpdate(each.feature, each.max_version_level, _upgrade_type(each))
        for each in request.feature_updates
    ]
    try:
        broker.controller.update_features(
            updates, validate_only=field(request, "validate_only", False)
        )
    except KafkaError as error:
        return {**error_fields(error), "results": []}
    return {
        **error_fields(None),
        "results": [{"feature": each.name, **error_fields(None)} for each in updates],
    }


def _upgrade_type(update: Any) -> int:
    if field(update, "allow_downgrade", False):
        return SAFE_DOWNGRADE
    upgrade_type: int = field(update, "upgrade_type", UPGRADE)
    return upgrade_type


API = Api(57, "UpdateFeatures", 0, 2, handle)
