"""The features of a cluster and their levels: those that Kafka knows, and those supported here.

Source: org.apache.kafka.server.common.MetadataVersion, Feature, Kafka 4.4; KIP-584.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METADATA_VERSION: Final = "metadata.version"
KRAFT_VERSION: Final = "kraft.version"

#: The lowest and the highest level of each feature, both inclusive, as Kafka 4.4 has them: levels
#: that the metadata log of a directory may have, and that a controller finalizes.
KNOWN_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    "metadata.version": (7, 33),
    "kraft.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 2),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}

#: Features supported above level 0, which the broker advertises. It registers with all that Kafka
#: knows: a cluster may have finalized them.
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    name: KNOWN_FEATURES[name]
    for name in (
        "metadata.version",
        "kraft.version",
        "eligible.leader.replicas.version",
        "group.version",
        "transaction.version",
    )
}

#: Levels that a cluster formatted here begins with, in the order written: those of 4.3-IV0, so that
#: a Kafka 4.3 can open the directory too.
DEFAULT_FEATURES: Final[Mapping[str, int]] = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "group.version": 1,
    "transaction.version": 2,
}


def unknown_levels(features: Mapping[str, int]) -> dict[str, int]:
    """The features at a level above the highest that Kafka 4.4 knows."""
    return {
        name: level
        for name, level in sorted(features.items())
        if level > KNOWN_FEATURES.get(name, (0, 0))[1]
    }


def served_level(name: str, level: int) -> int:
    """The highest level of a feature, up to a finalized one, that this broker serves."""
    _, highest = SUPPORTED_FEATURES.get(name, (0, 0))
    return min(level, highest)
