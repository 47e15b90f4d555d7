"""Levels of features: Kafka's checks, and the records.

Source: org.apache.kafka.controller.FeatureControlManager, QuorumFeatures, Feature; KIP-584,
KIP-1022.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cordwood.configs.min_isr import MIN_ISR
from cordwood.configs.resource import ConfigResource
from cordwood.controller.cluster_view import ClusterView
from cordwood.metadata.controller_requests import (
    SAFE_DOWNGRADE,
    UNSAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdate,
)
from cordwood.metadata.feature_levels import (
    KNOWN_FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
)
from cordwood.metadata.image import MetadataImage
from cordwood.metadata.records import ApiRecord, Records, config_record, feature_record, has_elr
from cordwood.model.errors import UnsupportedVersionError
from cordwood.model.kafka_errors import InvalidUpdateVersionError

#: What a level of a feature needs of others, at least.
_DEPENDENCIES: Mapping[tuple[str, int], tuple[str, int]] = {
    ("eligible.leader.replicas.version", 1): (METADATA_VERSION, 23),
}
"""Source: EligibleLeaderReplicasVersion; the other features need nothing."""

#: Levels of metadata.version that brought something which a downgrade below them would lose.
_LEVELS_THAT_CHANGED_METADATA = frozenset({8, 10, 11, 12, 13, 15, 17, 23, 30, 32, 33})


def update_features(
    view: ClusterView, node_id: int, updates: Sequence[FeatureUpdate], *, kraft_version: int
) -> Records:
    """The records for the levels that change; that of kraft.version is in no record of these.

    Raises:
        InvalidUpdateVersionError: one of the levels is not possible.
    """
    proposed = {**view.image.features, **{each.name: each.level for each in updates}}
    records: Records = []
    for update in updates:
        current = (
            kraft_version
            if update.name == KRAFT_VERSION
            else view.image.features.get(update.name, 0)
        )
        _require_possible(view, node_id, update, current)
        if update.name == KRAFT_VERSION:
            if update.level < kraft_version:
                raise _invalid(update, "Can't downgrade the version of this feature.")
            records.append(ApiRecord("NoOpRecord", 0, {}))
            continue
        if update.name == METADATA_VERSION:
            _require_metadata_version(view, update)
        else:
            _require_dependencies(update, proposed)
        records.append(feature_record(update.name, update.level))
    if has_elr(proposed) and not has_elr(view.image.features):
        records += _elr_records(view)
    return records


def _elr_records(view: ClusterView) -> Records:
    """Records that make min.insync.replicas a setting of the whole cluster, for ELR.

    Source: ConfigurationControlManager.maybeGenerateElrSafetyRecords.
    """
    records: Records = []
    if MIN_ISR not in view.image.configs.get((ConfigResource.BROKER, ""), {}):
        value = str(view.settings.min_insync_replicas)
        records.append(config_record(ConfigResource.BROKER, "", MIN_ISR, value))
    for (resource_type, name), values in view.image.configs.items():
        if resource_type == ConfigResource.BROKER and name and MIN_ISR in values:
            records.append(config_record(ConfigResource.BROKER, name, MIN_ISR, None))
    return records


def _require_possible(view: ClusterView, node_id: int, update: FeatureUpdate, current: int) -> None:
    if update.upgrade_type not in {UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE}:
        raise _invalid(update, "The controller does not support the given upgrade type.")
    if update.level < 0:
        raise _invalid(update, "A feature version cannot be less than 0.")
    _require_supported(view, node_id, update)
    if update.level < current and update.upgrade_type == UPGRADE:
        raise _invalid(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        )
    if update.level > current and update.upgrade_type != UPGRADE:
        raise _invalid(update, "Can't downgrade to a newer version.")


def _require_supported(view: ClusterView, node_id: int, update: FeatureUpdate) -> None:
    checks = [(f"Local controller {node_id}", KNOWN_FEATURES.get(update.name, (0, 0)))]
    checks += [
        (f"Broker {broker.broker_id}", broker.features.get(update.name, (0, 0)))
        for broker in view.image.brokers.values()
    ]
    for who, (lowest, highest) in checks:
        if lowest <= update.level <= highest:
            continue
        if (lowest, highest) == (0, 0):
            raise _invalid(update, f"{who} does not support this feature.")
        raise _invalid(update, f"{who} only supports versions {lowest}-{highest}")
    if update.name not in KNOWN_FEATURES:
        raise _invalid(update, f"Feature {update.name} not found.")


def _require_metadata_version(view: ClusterView, update: FeatureUpdate) -> None:
    current = view.image.metadata_version
    if update.level >= current:
        return
    said = f"Unsupported metadata.version downgrade from {current} to {update.level}. "
    lost = any(update.level < each <= current for each in _LEVELS_THAT_CHANGED_METADATA)
    if not lost:
        return
    if update.upgrade_type == UNSAFE_DOWNGRADE:
        raise InvalidUpdateVersionError(
            f"{said}Unsafe metadata downgrade is not supported in this version."
        )
    raise InvalidUpdateVersionError(
        f"{said}Refusing to perform the requested downgrade because it might delete metadata "
        "information."
    )


def _require_dependencies(update: FeatureUpdate, proposed: Mapping[str, int]) -> None:
    needed = _DEPENDENCIES.get((update.name, update.level))
    if needed is None:
        return
    name, level = needed
    if proposed.get(name, 0) < level:
        raise _invalid(
            update,
            f"{update.name} could not be set to {update.level} because it depends on {name} level "
            f"{level}",
        )


def _invalid(update: FeatureUpdate, reason: str) -> InvalidUpdateVersionError:
    return InvalidUpdateVersionError(
        f"Invalid update version {update.level} for feature {update.name}. {reason}"
    )


def require_supported(image: MetadataImage) -> None:
    """Refuses a cluster with features that this broker does not know.

    Raises:
        UnsupportedVersionError: a feature is at a level outside of KNOWN_FEATURES.
    """
    for name, level in image.features.items():
        lowest, highest = KNOWN_FEATURES.get(name, (0, 0))
        if not lowest <= level <= highest:
            raise UnsupportedVersionError(
                f"the cluster has {name} at level {level}, and this broker supports {lowest} to "
                f"{highest}"
            )
