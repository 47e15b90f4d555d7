"""The settings of a broker that groups obey."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cordwood.format.compression import Codec

_MS_PER_MINUTE = 60_000
_CODECS = tuple(Codec)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Kafka's defaults; times in ms.

    Source: org.apache.kafka.coordinator.group.GroupCoordinatorConfig.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * _MS_PER_MINUTE
    retention_check_interval_ms: int = 600_000
    commit_timeout_ms: int = 5_000
    topic_partitions: int = 50
    topic_codec: Codec = Codec.NONE
    new_member_join_timeout_ms: int = 300_000
    """The longest session that a new member has before the answer to its first JoinGroup."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> GroupSettings:
        """From a broker's properties, parsed or as text; Kafka's defaults for those not there."""
        given = {
            field: int(str(values[name])) * factor
            for field, (name, factor) in _PROPERTIES.items()
            if values.get(name) is not None
        }
        codec = _CODECS[given.pop(_CODEC, Codec.NONE)]
        return cls(**given, topic_codec=codec)


_CODEC = "topic_codec"
#: The property of each field, and the factor to the field's unit.
_PROPERTIES: Mapping[str, tuple[str, int]] = {
    "min_session_timeout_ms": ("group.min.session.timeout.ms", 1),
    "max_session_timeout_ms": ("group.max.session.timeout.ms", 1),
    "initial_rebalance_delay_ms": ("group.initial.rebalance.delay.ms", 1),
    "max_size": ("group.max.size", 1),
    "offset_metadata_max_bytes": ("offset.metadata.max.bytes", 1),
    "offsets_retention_ms": ("offsets.retention.minutes", _MS_PER_MINUTE),
    "retention_check_interval_ms": ("offsets.retention.check.interval.ms", 1),
    "commit_timeout_ms": ("offsets.commit.timeout.ms", 1),
    "topic_partitions": ("offsets.topic.num.partitions", 1),
    _CODEC: ("offsets.topic.compression.codec", 1),
}
