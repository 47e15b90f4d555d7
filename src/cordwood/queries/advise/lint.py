"""Settings that do not do what their owner may think: a pure function of one topic's settings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from cordwood.cleanup.rules.group_guard import GROUPS, MAX_BYTES, MAX_MS, Consumed
from cordwood.cleanup.rules.removals import RULES
from cordwood.configs.levels import Level, Origin
from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX

_COMPACTION: Final = (
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
)
_TOMBSTONES: Final = "cordwood.tombstone.cleanup"
_REMOVALS: Final = tuple(rule.setting for rule in RULES)
_RETENTION: Final = ("retention.ms", "retention.bytes", GROUPS)
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One remark about a setting; `code` is stable, for scripts."""

    code: str
    setting: str
    text: str


def remarks(
    config: LogConfig,
    origins: Mapping[str, Origin],
    *,
    partitions: int,
    consumed: Collection[Consumed] = (),
) -> tuple[Remark, ...]:
    """The remarks about the settings of a topic.

    Args:
        config: the settings in force.
        origins: where each comes from, by name.
        partitions: how many partitions of the topic are in the directories that were read.
        consumed: what is known of the groups of cordwood.retention.groups, for each of these.
    """
    found = [*_remarks(config, origins, partitions)]
    if config.delete and config.cordwood_retention_groups:
        found += _groups(config, consumed)
    return tuple(found)


def _remarks(config: LogConfig, origins: Mapping[str, Origin], partitions: int) -> Iterator[Remark]:
    yield from _without_effect(config, origins)
    yield from _strategy(config, {n: o for n, o in origins.items() if o.level is Level.TOPIC})
    if config.delete and config.retention_bytes >= 0:
        yield from _size(config, partitions)
    if config.delete and config.retention_ms >= 0 and config.segment_ms > config.retention_ms:
        yield Remark(
            code="segment-outlives-retention",
            setting="segment.ms",
            text=f"segment.ms {config.segment_ms} is larger than retention.ms "
            f"{config.retention_ms}: a record may stay for the sum of both, as a segment goes with "
            "its newest record",
        )
    if config.delete and config.compact:
        yield Remark(
            code="last-value-is-deleted",
            setting="cleanup.policy",
            text="compact,delete: the newest value of a key is deleted, too, after retention.ms "
            f"{config.retention_ms} or beyond retention.bytes {config.retention_bytes}",
        )
    if config.compact:
        yield from _compaction(config)
    if config.delete and config.message_timestamp_type == "CreateTime":
        yield from _timestamps(config)


def _without_effect(config: LogConfig, origins: Mapping[str, Origin]) -> Iterator[Remark]:
    idle: tuple[str, ...] = () if config.compact else (*_COMPACTION, _TOMBSTONES, *_REMOVALS)
    idle += () if config.delete else _RETENTION
    for name in idle:
        origin = origins.get(name)
        if origin is not None and origin.level is Level.TOPIC:
            yield _no_effect(name, origins, f"cleanup.policy is {_policy(config)}")


def _strategy(config: LogConfig, origins: Mapping[str, Origin]) -> Iterator[Remark]:
    strategy, header = "cordwood.compaction.strategy", "cordwood.compaction.strategy.header"
    if strategy in origins and not config.compact:
        yield _no_effect(strategy, origins, f"cleanup.policy is {_policy(config)}")
    if header in origins and config.cordwood_compaction_strategy != "header":
        why = f"{strategy} is {config.cordwood_compaction_strategy}"
        yield _no_effect(header, origins, why)
    if (
        config.cordwood_compaction_strategy == "header"
        and not config.cordwood_compaction_strategy_header
    ):
        yield _no_effect(strategy, origins, f"{header} names no header: the newest record is kept")


def _no_effect(name: str, origins: Mapping[str, Origin], why: str) -> Remark:
    origin = origins.get(name)
    value = "" if origin is None else origin.value
    return Remark(code="no-effect", setting=name, text=f"{name}={value} has no effect: {why}")


def _policy(config: LogConfig) -> str:
    return ",".join(sorted(config.cleanup_policy)) or "empty"


def _size(config: LogConfig, partitions: int) -> Iterator[Remark]:
    limit, segment = config.retention_bytes, config.segment_bytes
    if partitions > 1:
        yield Remark(
            code="bytes-per-partition",
            setting="retention.bytes",
            text=f"retention.bytes {limit} is for each partition: {partitions} partitions here "
            f"keep {partitions * limit} bytes, and as much again on every other replica",
        )
    yield Remark(
        code="bytes-and-a-segment",
        setting="retention.bytes",
        text="a segment goes only if retention.bytes are left without it: up to "
        f"{limit + segment} bytes stay, retention.bytes and one segment of segment.bytes {segment}",
    )
    if limit < 2 * segment:
        yield Remark(
            code="few-segments",
            setting="segment.bytes",
            text=f"retention.bytes {limit} is less than two segments of segment.bytes {segment}: "
            "what is kept jumps by a whole segment; lower segment.bytes",
        )


def _groups(config: LogConfig, consumed: Collection[Consumed]) -> Iterator[Remark]:
    if config.cordwood_retention_groups_max_ms < 0 > config.cordwood_retention_groups_max_bytes:
        yield Remark(
            code="groups-without-limit",
            setting=GROUPS,
            text="a group that stops for good keeps everything, until the disk is full: set "
            f"{MAX_MS} or {MAX_BYTES}",
        )
    limit_ms = config.cordwood_retention_groups_max_ms
    if 0 <= limit_ms <= config.retention_ms:
        yield Remark(
            code="groups-limit-too-low",
            setting=MAX_MS,
            text=f"{MAX_MS} {limit_ms} is not above retention.ms {config.retention_ms}: no segment "
            "that has expired waits for a group",
        )
    if config.compact:
        yield Remark(
            code="groups-and-compaction",
            setting=GROUPS,
            text="compact: compaction removes superseded records, consumed or not; only deletion "
            "by time and size waits",
        )
    for group in config.cordwood_retention_groups:
        positions = [each.position(group) for each in consumed]
        if positions and all(each.committed is None for each in positions):
            yield Remark(
                code="unknown-group",
                setting=GROUPS,
                text=f"{positions[0].text}: everything waits for it. Is the name right?",
            )


def _compaction(config: LogConfig) -> Iterator[Remark]:
    yield Remark(
        code="unkeyed",
        setting="cleanup.policy",
        text="compact: producers of records without a key are refused, and such records from "
        "before are removed",
    )
    if config.max_compaction_lag_ms == LONG_MAX:
        ratio = config.min_cleanable_dirty_ratio
        yield Remark(
            code="no-compaction-limit",
            setting="max.compaction.lag.ms",
            text="without max.compaction.lag.ms nothing limits how long a superseded value or a "
            f"tombstone stays where the dirty ratio stays at or below {ratio:g}",
        )
    for rule in RULES:
        for code, text in rule.remarks(config):
            yield Remark(code=code, setting=rule.setting, text=text)
    yield Remark(
        code="idle-active-segment",
        setting="segment.ms",
        text="the active segment is not compacted, and a segment is rolled only when a record is "
        "appended: in an idle partition its newest records stay",
    )


def _timestamps(config: LogConfig) -> Iterator[Remark]:
    after_ms = config.message_timestamp_after_max_ms
    if after_ms > _HOUR_MS and config.cordwood_timestamp_future_policy == "kafka":
        yield Remark(
            code="future-timestamps",
            setting="message.timestamp.after.max.ms",
            text=f"records up to {after_ms} ms ahead are taken, and each keeps its segment, and "
            "those behind it, for so much longer",
        )
    if config.message_timestamp_before_max_ms == LONG_MAX:
        yield Remark(
            code="old-timestamps",
            setting="message.timestamp.before.max.ms",
            text="records with timestamps of any age are taken: a segment of records older than "
            "retention.ms goes at the next check, read or not",
        )
