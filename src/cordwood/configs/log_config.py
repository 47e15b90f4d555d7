"""The effective settings of the logs of one topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cordwood.configs.table import TOPIC_SETTINGS, topic_default
from cordwood.configs.value import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """The effective settings of the logs of one topic; the defaults are Kafka's.

    Times are in ms, sizes in bytes. `retention_ms` and `retention_bytes` are -1 for no limit,
    `cleanup_policy` is any of 'compact' and 'delete', or empty to keep everything. `segment_bytes`
    is internal.segment.bytes if that is set.

    Source: org.apache.kafka.storage.internals.log.LogConfig, Kafka 4.3.
    """

    cleanup_policy: frozenset[str] = frozenset(topic_default("cleanup.policy", tuple))
    retention_ms: int = topic_default("retention.ms", int)
    retention_bytes: int = topic_default("retention.bytes", int)
    segment_bytes: int = topic_default("segment.bytes", int)
    segment_ms: int = topic_default("segment.ms", int)
    segment_jitter_ms: int = topic_default("segment.jitter.ms", int)
    segment_index_bytes: int = topic_default("segment.index.bytes", int)
    index_interval_bytes: int = topic_default("index.interval.bytes", int)
    min_cleanable_dirty_ratio: float = topic_default("min.cleanable.dirty.ratio", float)
    min_compaction_lag_ms: int = topic_default("min.compaction.lag.ms", int)
    max_compaction_lag_ms: int = topic_default("max.compaction.lag.ms", int)
    delete_retention_ms: int = topic_default("delete.retention.ms", int)
    file_delete_delay_ms: int = topic_default("file.delete.delay.ms", int)
    max_message_bytes: int = topic_default("max.message.bytes", int)
    max_decompressed_message_bytes: int = topic_default("max.decompressed.message.bytes", int)
    compression_type: str = topic_default("compression.type", str)
    compression_gzip_level: int = topic_default("compression.gzip.level", int)
    compression_lz4_level: int = topic_default("compression.lz4.level", int)
    compression_zstd_level: int = topic_default("compression.zstd.level", int)
    message_timestamp_type: str = topic_default("message.timestamp.type", str)
    message_timestamp_before_max_ms: int = topic_default("message.timestamp.before.max.ms", int)
    message_timestamp_after_max_ms: int = topic_default("message.timestamp.after.max.ms", int)
    preallocate: bool = topic_default("preallocate", bool)
    flush_messages: int = topic_default("flush.messages", int)
    flush_ms: int = topic_default("flush.ms", int)
    min_insync_replicas: int = topic_default("min.insync.replicas", int)
    unclean_leader_election_enable: bool = topic_default("unclean.leader.election.enable", bool)
    remote_storage_enable: bool = topic_default("remote.storage.enable", bool)
    remote_log_copy_disable: bool = topic_default("remote.log.copy.disable", bool)
    local_retention_ms: int = topic_default("local.retention.ms", int)
    local_retention_bytes: int = topic_default("local.retention.bytes", int)
    cordwood_timestamp_future_policy: str = topic_default("cordwood.timestamp.future.policy", str)
    cordwood_retention_topic_bytes: int = topic_default("cordwood.retention.topic.bytes", int)
    cordwood_retention_groups: tuple[str, ...] = topic_default("cordwood.retention.groups", tuple)
    cordwood_retention_groups_max_ms: int = topic_default("cordwood.retention.groups.max.ms", int)
    cordwood_retention_groups_max_bytes: int = topic_default(
        "cordwood.retention.groups.max.bytes", int
    )
    cordwood_segment_roll_idle: bool = topic_default("cordwood.segment.roll.idle", bool)
    cordwood_trash_ms: int = topic_default("cordwood.trash.ms", int)
    cordwood_tombstone_cleanup: bool = topic_default("cordwood.tombstone.cleanup", bool)
    cordwood_record_ttl_header: str = topic_default("cordwood.record.ttl.header", str)
    cordwood_compaction_strategy: str = topic_default("cordwood.compaction.strategy", str)
    cordwood_compaction_strategy_header: str = topic_default(
        "cordwood.compaction.strategy.header", str
    )

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
