"""The releases of Kafka that a cluster can be formatted for, and their levels of features.

Source: org.apache.kafka.server.common.MetadataVersion, Feature, and the classes of the features
(Kafka 4.4); org.apache.kafka.metadata.storage.Formatter; KIP-584, KIP-1022.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from cordwood.metadata.feature_levels import KNOWN_FEATURES
from cordwood.model.errors import CordwoodError

_METADATA, _KRAFT = "metadata.version", "kraft.version"

RELEASES: Final = (
    *("3.3-IV3", "3.4-IV0", "3.5-IV0", "3.5-IV1", "3.5-IV2", "3.6-IV0", "3.6-IV1", "3.6-IV2"),
    *("3.7-IV0", "3.7-IV1", "3.7-IV2", "3.7-IV3", "3.7-IV4", "3.8-IV0", "3.9-IV0", "4.0-IV0"),
    *("4.0-IV1", "4.0-IV2", "4.0-IV3", "4.1-IV0", "4.1-IV1", "4.2-IV0", "4.2-IV1", "4.3-IV0"),
    *("4.4-IV0", "4.4-IV1", "4.4-IV2"),
)
"""Every level of metadata.version by its name, from the lowest on."""

LATEST_RELEASE: Final = RELEASES[-1]
UNSTABLE_RELEASE: Final = "4.5-IV0"
"""The level above, which Kafka 4.4 knows by name, and with which no cluster is formatted."""
DEFAULT_RELEASE: Final = "4.3-IV0"
"""The release of a cluster for which none is asked for: a Kafka 4.3 and a 4.4 can open it."""

_FIRST_LEVEL: Final = KNOWN_FEATURES[_METADATA][0]
_UNSTABLE_LEVEL: Final = KNOWN_FEATURES[_METADATA][1] + 1

#: All features but metadata.version, in Kafka's order.
_FEATURES: Final = (
    *(_KRAFT, "transaction.version", "group.version", "eligible.leader.replicas.version"),
    *("share.version", "streams.version"),
)

#: From which level of metadata.version on a cluster begins with that level of a feature.
_BEGINNINGS: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    "eligible.leader.replicas.version": ((26, 1),),
    "group.version": ((22, 1),),
    "kraft.version": ((21, 1),),
    "share.version": ((28, 1), (31, 2)),
    "streams.version": ((29, 1),),
    "transaction.version": ((24, 2),),
}
#: What a level of a feature needs of metadata.version, at least.
_NEEDS: Final[Mapping[tuple[str, int], int]] = {("eligible.leader.replicas.version", 1): 23}


class FeatureLevelError(CordwoodError):
    """Levels that a cluster cannot begin with; `java_class` is that of Kafka's exception, if any.

    Kafka's tool shows a FormatterException without its class.
    """

    def __init__(self, text: str, java_class: str = "") -> None:
        super().__init__(text)
        self.java_class = java_class


class UnsupportedLevelError(FeatureLevelError):
    """A level that a feature other than metadata.version does not have."""


def release_of(text: str) -> str | None:
    """The release that `text` names: `4.3-IV0`, or the last of `4.3` or `4.3.1`; None: unknown.

    Source: MetadataVersion.fromVersionString.
    """
    if text in RELEASES:
        return text
    match = re.fullmatch(r"(\d+\.\d+)(?:\.\d+)*", text, re.ASCII)
    named = [each for each in RELEASES if match and each.startswith(f"{match[1]}-")]
    return named[-1] if named else None


def release_name(level: int) -> str:
    """The name of a level of metadata.version, which is known."""
    return (*RELEASES, UNSTABLE_RELEASE)[level - _FIRST_LEVEL]


def release_levels(release: str) -> dict[str, int]:
    """The level of each feature that a release brings, in Kafka's order.

    Source: StorageTool.runVersionMappingCommand, Feature.defaultLevel.
    """
    level = (*RELEASES, UNSTABLE_RELEASE).index(release) + _FIRST_LEVEL
    return {_METADATA: level, **{name: _level_at(name, level) for name in _FEATURES}}


def needed_levels(name: str, level: int) -> dict[str, int]:
    """The levels of other features that a level of a feature needs, at least.

    Raises:
        FeatureLevelError: the feature, or the level of metadata.version, is not known.
        UnsupportedLevelError: another feature does not have the level.

    Source: StorageTool.runFeatureDependenciesCommand.
    """
    if name == _METADATA:
        if not _FIRST_LEVEL <= level <= _UNSTABLE_LEVEL:
            raise FeatureLevelError(f"Unknown {_METADATA} {level}")
        return {}
    if name not in KNOWN_FEATURES:
        raise FeatureLevelError(f"Unknown feature: {name}")
    lowest, highest = KNOWN_FEATURES[name]
    if not lowest <= level <= highest:
        raise UnsupportedLevelError(f"Feature level {level} is not supported for feature {name}")
    needed = _NEEDS.get((name, level))
    return {} if needed is None else {_METADATA: needed}


def feature_levels(
    release: str | None, wanted: Mapping[str, int], *, is_dynamic: bool
) -> dict[str, int]:
    """The levels above 0 that a new cluster begins with, metadata.version first; then by name.

    kraft.version is not among them: it is written where the voters are.

    Args:
        release: one of `RELEASES`, None for `DEFAULT_RELEASE`.
        wanted: levels by feature that go before the release's.
        is_dynamic: whether the quorum's voters are dynamic.

    Raises:
        FeatureLevelError: a feature or a level is unknown, or does not go with the others.

    Source: Formatter.calculateEffectiveFeatureLevels.
    """
    level = _metadata_level(release, wanted)
    for name in wanted:
        if name not in KNOWN_FEATURES:
            known = ", ".join(sorted(each for each in KNOWN_FEATURES if each != _METADATA))
            raise FeatureLevelError(f"Unsupported feature: {name}. Supported features are: {known}")
    _require_fitting_quorum(wanted.get(_KRAFT), is_dynamic=is_dynamic)
    levels = {
        name: wanted.get(name, _level_at(name, level))
        for name in sorted(KNOWN_FEATURES)
        if name != _METADATA
    }
    for name, each in levels.items():
        low, high = KNOWN_FEATURES[name]
        if not low <= each <= high:
            raise FeatureLevelError(
                f"No feature:{name} with feature level {each}",
                "java.lang.IllegalArgumentException",
            )
        needed = _NEEDS.get((name, each), 0)
        if level < needed:
            raise FeatureLevelError(
                f"{name} could not be set to {each} because it depends on {_METADATA} level "
                f"{needed}",
                "java.lang.IllegalArgumentException",
            )
    del levels[_KRAFT]
    return {_METADATA: level} | {name: each for name, each in levels.items() if each}


def _metadata_level(release: str | None, wanted: Mapping[str, int]) -> int:
    if _METADATA in wanted:
        if release is not None:
            raise FeatureLevelError(
                f"Use --release-version instead of --feature {_METADATA}=X to avoid ambiguity."
            )
        level = wanted[_METADATA]
        if level == _UNSTABLE_LEVEL:
            raise FeatureLevelError(f"{_METADATA} {UNSTABLE_RELEASE} is not yet stable.")
        if not _FIRST_LEVEL <= level < _UNSTABLE_LEVEL:
            raise FeatureLevelError(
                f"No MetadataVersion with feature level {level}. Valid feature levels are from "
                f"{_FIRST_LEVEL} to {_UNSTABLE_LEVEL}.",
                "java.lang.IllegalArgumentException",
            )
        return level
    return RELEASES.index(release or DEFAULT_RELEASE) + _FIRST_LEVEL


def _level_at(name: str, metadata_level: int) -> int:
    return max(
        (level for since, level in _BEGINNINGS.get(name, ()) if metadata_level >= since), default=0
    )


def _require_fitting_quorum(kraft_version: int | None, *, is_dynamic: bool) -> None:
    """Source: Formatter.effectiveKRaftFeatureLevel."""
    flags = (
        "controller.quorum.voters is empty and one of the flags --standalone, "
        "--initial-controllers, or --no-initial-controllers is used."
    )
    if kraft_version == 0 and is_dynamic:
        raise FeatureLevelError(
            f"Cannot set kraft.version to 0 if {flags} For dynamic controllers support, try "
            "removing the --feature flag for kraft.version."
        )
    if kraft_version and not is_dynamic:
        raise FeatureLevelError(
            f"Cannot set kraft.version to {kraft_version} unless {flags} For dynamic controllers "
            "support, try using one of --standalone, --initial-controllers, or "
            "--no-initial-controllers and removing controller.quorum.voters."
        )
