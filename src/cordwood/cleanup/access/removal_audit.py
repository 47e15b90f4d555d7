"""Removals by retention and compaction, as events of the audit log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from cordwood.cleanup.plan.compaction_values import Manifest
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.retention import SIZE, TIME, Expired
from cordwood.configs.levels import Origin
from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import format_value
from cordwood.model.audit import AppliedSetting, SegmentDeleted, SegmentsCompacted, audit
from cordwood.model.topic_partition import TopicPartition

_SETTINGS = {SIZE: "retention.bytes", TIME: "retention.ms"}
_OWN = "cordwood."

#: For each setting of a topic, by Kafka's name, where it comes from; empty where nobody knows.
Origins = Mapping[str, Origin]


def applied(name: str, config: LogConfig, origins: Origins) -> AppliedSetting | None:
    """A topic's setting in force, with its origin; None if it is none of a topic."""
    field = name.replace(".", "_")
    if not hasattr(config, field):
        return None
    value = getattr(config, field)
    text = ",".join(sorted(value)) if isinstance(value, frozenset) else format_value(value)
    origin = origins.get(name)
    if origin is None:
        return AppliedSetting(name=name, value=text)
    return AppliedSetting(
        name=name,
        value=text,
        given=f"{origin.key}={origin.value}",
        level=str(origin.level),
        source=origin.source,
    )


def audit_expired(
    expired: Iterable[Expired],
    ends: Sequence[int],
    *,
    partition: TopicPartition,
    log_dir: str,
    config: LogConfig,
    origins: Origins,
    at_ms: int,
    trash: str | None = None,
) -> None:
    """Records segments that retention has deleted.

    Args:
        expired: the segments, with the rule of each.
        ends: for each, one past its last offset.
        partition: whose segments.
        log_dir: where its log is.
        config: its settings.
        origins: where they come from.
        at_ms: the time for which it was decided.
        trash: where the files went; None if they are deleted.
    """
    for each, end in zip(expired, ends, strict=True):
        # A rule of Cordwood's own has the name of its setting.
        name = each.rule if each.rule.startswith(_OWN) else _SETTINGS.get(each.rule)
        audit(
            SegmentDeleted(
                partition=partition,
                log_dir=log_dir,
                base_offset=each.base_offset,
                last_offset=end - 1,
                records_max=end - each.base_offset,
                size_bytes=each.size_bytes,
                rule=each.rule,
                reason=each.text,
                at_ms=at_ms,
                setting=None if name is None else applied(name, config, origins),
                trash=trash,
            )
        )


def audit_group(
    compaction: LogCompaction,
    number: int,
    manifest: Manifest,
    *,
    partition: TopicPartition,
    log_dir: str,
    config: LogConfig,
    origins: Origins,
    trash: str | None = None,
) -> None:
    """Records that what a compaction retains has taken the place of group `number`."""
    group = compaction.groups[number]
    ends = {each.base_offset: each.next_base_offset for each in compaction.segments}
    discarded = {reason: count for reason, count in asdict(manifest.discarded).items() if count}
    audit(
        SegmentsCompacted(
            partition=partition,
            log_dir=log_dir,
            segments=group,
            last_offset=ends[group[-1]] - 1,
            size_bytes_before=manifest.bytes_before,
            size_bytes_after=manifest.log_bytes,
            records_before=manifest.records_before,
            records_after=manifest.records_after,
            discarded=discarded,
            at_ms=compaction.rules.now_ms,
            setting=applied("cleanup.policy", config, origins),
            trash=trash,
        )
    )
