"""The features of a cluster: those that a node supports, their levels, and changes of these.

Source: org.apache.kafka.clients.admin.KafkaAdminClient.describeFeatures, updateFeatures (4.4.0);
KIP-584, KIP-778.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cordwood import __version__
from cordwood.client.admin import Admin
from cordwood.client.cluster_client import ClusterClient
from cordwood.client.errors import RefusedError, require
from cordwood.protocol.data import ApiVersionsRequest, UpdateFeaturesRequest


class FeatureFacts(NamedTuple):
    """The levels of each feature: (lowest, highest) that a node supports, and the finalized one.

    `epoch` is that of the finalized levels, None if there is none.
    """

    supported: Mapping[str, tuple[int, int]]
    finalized: Mapping[str, int]
    epoch: int | None


class FeatureChange(NamedTuple):
    """A level to be set; `upgrade_type` is the request's: 1 upgrade, 2 and 3 downgrade."""

    feature: str
    level: int
    upgrade_type: int


def describe_features(
    cluster: ClusterClient, *, node_id: int | None = None, of_controllers: bool = False
) -> FeatureFacts:
    """The features of a node, of any if none is given.

    Args:
        cluster: the brokers, or the controllers.
        node_id: one of them.
        of_controllers: whether they are controllers.

    Raises:
        ClientError: it is not known, does not answer, or with an error.
    """
    if node_id is not None:
        Admin(cluster).describe_cluster(of_controllers=of_controllers)
    request = ApiVersionsRequest(
        client_software_name="cordwood", client_software_version=__version__
    )
    answer = cluster.call(request, node_id=node_id)
    require(answer.error_code)
    return FeatureFacts(
        supported={
            each.name: (each.min_version, each.max_version) for each in answer.supported_features
        },
        finalized={each.name: each.max_version_level for each in answer.finalized_features},
        epoch=answer.finalized_features_epoch if answer.finalized_features_epoch >= 0 else None,
    )


def update_features(
    cluster: ClusterClient, changes: Iterable[FeatureChange], *, validate_only: bool = False
) -> dict[str, RefusedError | None]:
    """Sets levels of features; the error of each, by name, None where there is none.

    Args:
        cluster: the brokers, which ask the active controller, or the controllers.
        changes: of a feature each.
        validate_only: whether they are only checked.

    Raises:
        ClientError: the cluster does not answer.
    """
    keys = [
        UpdateFeaturesRequest.FeatureUpdateKey(
            feature=each.feature, max_version_level=each.level, upgrade_type=each.upgrade_type
        )
        for each in changes
    ]
    request = UpdateFeaturesRequest(feature_updates=keys, validate_only=validate_only)
    answer = cluster.call(request)
    if answer.error_code:
        error = RefusedError(answer.error_code, answer.error_message)
        return {each.feature: error for each in keys}
    found: dict[str, RefusedError | None] = {each.feature: None for each in keys}
    for result in answer.results:
        if result.error_code:
            found[result.feature] = RefusedError(result.error_code, result.error_message)
    return found
