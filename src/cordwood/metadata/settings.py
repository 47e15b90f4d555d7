"""The settings of the metadata log and of its snapshots."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.configs.table import whole_default


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogSettings:
    """The settings, in bytes and ms; the defaults are those of the table in `configs.table`.

    `snapshot_bytes` and `snapshot_interval_ms` are metadata.log.max.record.bytes.between.snapshots
    and metadata.log.max.snapshot.interval.ms, `retention_*` metadata.max.retention.*,
    `segment_*` metadata.log.segment.*. `reserve_bytes` of the disk are kept for the metadata log.
    """

    snapshot_bytes: int = whole_default("metadata.log.max.record.bytes.between.snapshots")
    snapshot_interval_ms: int = whole_default("metadata.log.max.snapshot.interval.ms")
    retention_bytes: int = whole_default("metadata.max.retention.bytes")
    retention_ms: int = whole_default("metadata.max.retention.ms")
    segment_bytes: int = whole_default("metadata.log.segment.bytes")
    segment_ms: int = whole_default("metadata.log.segment.ms")
    reserve_bytes: int = 0
