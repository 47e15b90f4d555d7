"""What the controller takes from a broker's configuration, and what this broker supports."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cordwood.format.message_schema import uuid_text
from cordwood.model.chance import Chance

_MIB: Final = 1 << 20
_HOUR_MS: Final = 3_600_000

#: The lowest and the highest level of each feature, both inclusive, as Kafka 4.3 has them: levels
#: that the metadata log of a directory may have. Source: MetadataVersion, Feature; KIP-584.
KNOWN_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    "metadata.version": (7, 30),
    "kraft.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}

#: Those of which this broker serves more than level 0: what it registers with and advertises.
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    name: KNOWN_FEATURES[name]
    for name in ("metadata.version", "kraft.version", "eligible.leader.replicas.version")
}

#: Levels that a cluster formatted here begins with, in the order written: the highest that are
#: served.
DEFAULT_FEATURES: Final[Mapping[str, int]] = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
}


def served_level(name: str, level: int) -> int:
    """The highest level of a feature, up to a finalized one, that this broker serves."""
    _, highest = SUPPORTED_FEATURES.get(name, (0, 0))
    return min(level, highest)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Settings of a broker that its controller goes by; defaults are Kafka's, times in ms.

    `snapshot_bytes` and `snapshot_interval_ms` are metadata.log.max.record.bytes.between.snapshots
    and metadata.log.max.snapshot.interval.ms, `retention_*` metadata.max.retention.*,
    `segment_*` metadata.log.segment.*. `reserve_bytes` of the disk are kept for the metadata log.
    """

    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    delete_topic_enable: bool = True
    snapshot_bytes: int = 20 * _MIB
    snapshot_interval_ms: int = _HOUR_MS
    retention_bytes: int = 100 * _MIB
    retention_ms: int = 168 * _HOUR_MS
    segment_bytes: int = 1 << 30
    segment_ms: int = 168 * _HOUR_MS
    reserve_bytes: int = 0


def fresh_uuid(chance: Chance) -> uuid.UUID:
    """A uuid that no other call gives; Kafka's do not begin with a dash, for its command lines.

    Source: org.apache.kafka.common.Uuid.randomUuid.
    """
    while True:
        found = uuid.UUID(hex=chance.unique_id())
        if not uuid_text(found.bytes).startswith("-"):
            return found
