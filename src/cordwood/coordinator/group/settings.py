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

        def number(name: str, default: int) -> int:
            value = values.get(name)
            return default if value is None else int(str(value))

        return cls(
            min_session_timeout_ms=number("group.min.session.timeout.ms", 6_000),
            max_session_timeout_ms=number("group.max.session.timeout.ms", 1_800_000),
            initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms", 3_000),
            max_size=number("group.max.size", 2**31 - 1),
            offset_metadata_max_bytes=number("offset.metadata.max.bytes", 4_096),
            offsets_retention_ms=number("offsets.retention.minutes", 10_080) * _MS_PER_MINUTE,
            retention_check_interval_ms=number("offsets.retention.check.interval.ms", 600_000),
            commit_timeout_ms=number("offsets.commit.timeout.ms", 5_000),
            topic_partitions=number("offsets.topic.num.partitions", 50),
            topic_codec=_CODECS[number("offsets.topic.compression.codec", 0)],
        )
