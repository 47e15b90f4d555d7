"""The effective settings of the logs of one topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cordwood.configs.table import TOPIC_SETTINGS
from cordwood.configs.value import LONG_MAX, Value

_MINUTE_MS = 60_000
_HOUR_MS = 3_600_000
_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The effective settings of the logs of one topic; the defaults are Kafka's.

    Times are in ms, sizes in bytes. `retention_ms` and `retention_bytes` are -1 for no limit,
    `cleanup_policy` is any of 'compact' and 'delete', or empty to keep everything. `segment_bytes`
    is internal.segment.bytes if that is set.

    Source: org.apache.kafka.storage.internals.log.LogConfig, Kafka 4.3.
    """

    cleanup_policy: frozenset[str] = frozenset({"delete"})
    retention_ms: int = 168 * _HOUR_MS
    retention_bytes: int = -1
    segment_bytes: int = 1 << 30
    segment_ms: int = 168 * _HOUR_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * _MIB
    index_interval_bytes: int = 4096
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    delete_retention_ms: int = 24 * _HOUR_MS
    file_delete_delay_ms: int = _MINUTE_MS
    max_message_bytes: int = _MIB + 12
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = _HOUR_MS
    preallocate: bool = False
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    local_retention_ms: int = -2
    local_retention_bytes: int = -2
    cordwood_timestamp_future_policy: str = "kafka"
    cordwood_retention_topic_bytes: int = -1
    cordwood_retention_groups: tuple[str, ...] = ()
    cordwood_retention_groups_max_ms: int = -1
    cordwood_retention_groups_max_bytes: int = -1
    cordwood_segment_roll_idle: bool = False
    cordwood_trash_ms: int = 604_800_000
    cordwood_tombstone_cleanup: bool = False
    cordwood_record_ttl_header: str = ""
    cordwood_compaction_strategy: str = "offset"
    cordwood_compaction_strategy_header: str = ""

    @property
    def compact(self) -> bool:
        """Whether the log is compacted."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether segments are deleted by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def segment_ms_max(self) -> int:
        """Time in ms after which a segment is rolled, jitter aside.

        A compacted log rolls early enough for max.compaction.lag.ms.

        Source: LogConfig.maxSegmentMs, Kafka 4.3.
        """
        if self.compact and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms

    @classmethod
    def from_values(cls, values: Mapping[str, Value]) -> LogConfig:
        """The config with these values of topic settings, by Kafka's names; others have defaults.

        Negative retention means no limit and becomes -1.
        """
        fields = {
            name.replace(".", "_"): value
            for name, value in values.items()
            if name.replace(".", "_") in cls.__dataclass_fields__
        }
        if "internal.segment.bytes" in values:
            fields["segment_bytes"] = values["internal.segment.bytes"]
        for name in ("retention_ms", "retention_bytes"):
            if name in fields:
                fields[name] = max(-1, _whole(fields[name]))
        policy = fields.pop("cleanup_policy", ("delete",))
        assert isinstance(policy, tuple), policy
        return cls(cleanup_policy=frozenset(policy), **fields)  # type: ignore[arg-type]


assert not {*LogConfig.__dataclass_fields__} - {
    name.replace(".", "_") for name in TOPIC_SETTINGS
}, "a field without a setting of that name would never be given a value"


def _whole(value: Value) -> int:
    assert isinstance(value, int), value
    return value
