"""The settings of a broker that groups obey."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cordwood.configs.checks import CONSUMER_ASSIGNORS
from cordwood.format.compression import Codec

_MS_PER_MINUTE = 60_000
_CODECS = tuple(Codec)


class MigrationPolicy(enum.Enum):
    """Directions in which groups with members may move between the protocols."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def upgrades(self) -> bool:
        """Whether a classic group becomes a consumer group."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE}

    @property
    def downgrades(self) -> bool:
        """Whether a consumer group becomes a classic group."""
        return self in {MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSettings:
    """Settings of groups of the consumer protocol: Kafka's defaults; times in ms.

    The first of the assignors is used where members ask for none.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    regex_refresh_interval_ms: int = 600_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL

    @classmethod
    def of(cls, values: Mapping[str, object]) -> ConsumerGroupSettings:
        """Settings from a broker's properties, parsed or as text, with Kafka's defaults."""
        given: dict[str, Any] = {
            field: int(str(values[name]))
            for field, name in _CONSUMER_PROPERTIES.items()
            if values.get(name) is not None
        }
        assignors = values.get("group.consumer.assignors")
        if assignors is not None:
            listed = assignors.split(",") if isinstance(assignors, str) else assignors
            names = [str(name).strip() for name in listed]  # type: ignore[attr-defined]
            given["assignors"] = tuple(CONSUMER_ASSIGNORS[name] for name in names)
        policy = values.get("group.consumer.migration.policy")
        if policy is not None:
            given["migration_policy"] = MigrationPolicy(str(policy).lower())
        settings = cls(**given)
        return replace(settings, assignment_interval_ms=_assignment_interval(settings, values))


def _assignment_interval(settings: ConsumerGroupSettings, values: Mapping[str, object]) -> int:
    """The interval within its bounds: a value recorded earlier may be outside of today's.

    Source: GroupCoordinatorConfig.clampDynamicConfigs.
    """
    interval = settings.assignment_interval_ms
    least = values.get("group.consumer.min.assignment.interval.ms")
    most = values.get("group.consumer.max.assignment.interval.ms")
    if least is not None:
        interval = max(interval, int(str(least)))
    return interval if most is None else min(interval, int(str(most)))


_CONSUMER_PROPERTIES: Mapping[str, str] = {
    "session_timeout_ms": "group.consumer.session.timeout.ms",
    "heartbeat_interval_ms": "group.consumer.heartbeat.interval.ms",
    "assignment_interval_ms": "group.consumer.assignment.interval.ms",
    "regex_refresh_interval_ms": "group.consumer.regex.refresh.interval.ms",
    "max_size": "group.consumer.max.size",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Settings of groups; the defaults are Kafka's, times in ms.

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
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()
    new_member_join_timeout_ms: int = 300_000
    """The longest session that a new member has before the answer to its first JoinGroup."""

    @classmethod
    def of(cls, values: Mapping[str, object]) -> GroupSettings:
        """Settings from a broker's properties, parsed or as text, with Kafka's defaults."""
        given = {
            field: int(str(values[name])) * factor
            for field, (name, factor) in _PROPERTIES.items()
            if values.get(name) is not None
        }
        codec = _CODECS[given.pop(_CODEC, Codec.NONE)]
        return cls(**given, topic_codec=codec, consumer=ConsumerGroupSettings.of(values))


def retention_ms_of(group_minutes: int | None, broker_ms: int) -> int | None:
    """The retention of a group's offsets, in ms; None without limit.

    `group_minutes` is the group's own setting: -1 without limit, None if it has none.
    """
    if group_minutes is None:
        return broker_ms
    return None if group_minutes < 0 else group_minutes * _MS_PER_MINUTE


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
