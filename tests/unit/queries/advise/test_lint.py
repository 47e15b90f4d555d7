"""Remarks on settings: each is made where it is due, and only there."""

from __future__ import annotations

from dataclasses import replace

from cordwood.configs.levels import Level, Origin
from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX
from cordwood.queries.advise.lint import remarks

DELETE = LogConfig(
    cleanup_policy=frozenset({"delete"}),
    segment_ms=1000,
    retention_ms=10_000,
    message_timestamp_type="LogAppendTime",
)
COMPACT = replace(DELETE, cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=5000)


def codes(config: LogConfig, *, partitions: int = 1, own: tuple[str, ...] = ()) -> list[str]:
    origins = {name: Origin(value="1", level=Level.TOPIC, source="test", key=name) for name in own}
    return [each.code for each in remarks(config, origins, partitions=partitions)]


def test_plain_retention_by_time_has_no_remark() -> None:
    assert codes(DELETE) == []


def test_retention_bytes_is_for_each_partition_and_leaves_a_segment_more() -> None:
    sized = replace(DELETE, retention_bytes=1_500_000_000, segment_bytes=500_000_000)
    assert codes(sized, partitions=3) == ["bytes-per-partition", "bytes-and-a-segment"]
    (_, stays) = remarks(sized, {}, partitions=3)
    assert "up to 2000000000 bytes stay" in stays.text
    assert "few-segments" in codes(replace(sized, retention_bytes=900_000_000))


def test_a_segment_that_outlives_retention_is_named() -> None:
    assert codes(replace(DELETE, segment_ms=20_000)) == ["segment-outlives-retention"]


def test_compaction_that_deletes_is_named() -> None:
    both = replace(COMPACT, cleanup_policy=frozenset({"compact", "delete"}))
    assert codes(both) == ["last-value-is-deleted", "unkeyed", "idle-active-segment"]


def test_compaction_without_a_limit_is_named() -> None:
    assert "no-compaction-limit" not in codes(COMPACT)
    unlimited = replace(COMPACT, max_compaction_lag_ms=LONG_MAX)
    assert "no-compaction-limit" in codes(unlimited)


def test_a_setting_of_the_other_policy_has_no_effect() -> None:
    assert codes(DELETE, own=("delete.retention.ms", "retention.ms")) == ["no-effect"]
    assert "no-effect" in codes(COMPACT, own=("retention.ms",))


def test_a_strategy_without_effect_is_named() -> None:
    strategy, header = "cordwood.compaction.strategy", "cordwood.compaction.strategy.header"
    by_header = replace(COMPACT, cordwood_compaction_strategy="header")
    assert codes(by_header, own=(strategy,)).count("no-effect") == 1
    named = replace(by_header, cordwood_compaction_strategy_header="v")
    assert "no-effect" not in codes(named, own=(strategy, header))
    assert codes(COMPACT, own=(header,)).count("no-effect") == 1
    deleted = replace(named, cleanup_policy=frozenset({"delete"}))
    assert codes(deleted, own=(strategy,)) == ["no-effect"]


def test_removal_in_idle_logs_is_named_where_it_does_nothing_or_waits() -> None:
    own = ("cordwood.tombstone.cleanup", "cordwood.record.ttl.header")
    on = replace(COMPACT, cordwood_tombstone_cleanup=True, cordwood_record_ttl_header="ttl")
    assert "no-effect" not in codes(on, own=own)
    deleted = replace(on, cleanup_policy=frozenset({"delete"}))
    assert codes(deleted, own=own) == ["no-effect", "no-effect"]
    lagging = replace(on, min_compaction_lag_ms=1)
    assert "lag-holds-expired-records" in codes(lagging, own=own)
    assert "lag-holds-expired-records" not in codes(on, own=own)


def test_timestamps_of_clients_are_named() -> None:
    clients = replace(DELETE, message_timestamp_type="CreateTime")
    assert codes(clients) == ["old-timestamps"]
    far = replace(clients, message_timestamp_after_max_ms=10**12)
    assert codes(far) == ["future-timestamps", "old-timestamps"]
    capped = replace(far, cordwood_timestamp_future_policy="append-time")
    assert codes(capped) == ["old-timestamps"]
