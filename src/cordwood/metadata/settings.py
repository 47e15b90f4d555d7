"""The settings of the metadata log and of its snapshots."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.configs.table import broker_default


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogSettings:
    """The settings, in bytes and ms; the defaults are those of the table in `configs.table`.

    `snapshot_bytes` and `snapshot_interval_ms` are metadata.log.max.record.bytes.between.snapshots
    and metadata.log.max.snapshot.interval.ms, `retention_*` metadata.max.retention.*,
    `segment_*` metadata.log.segment.*. `reserve_bytes` of the disk are kept for the metadata log.
    """

    snapshot_bytes: int = broker_default("metadata.log.max.record.bytes.between.snapshots", int)
    snapshot_interval_ms: int = broker_default("metadata.log.max.snapshot.interval.ms", int)
    retention_bytes: int = broker_default("metadata.max.retention.bytes", int)
    retention_ms: int = broker_default("metadata.max.retention.ms", int)
    segment_bytes: int = broker_default("metadata.log.segment.bytes", int)
    segment_ms: int = broker_default("metadata.log.segment.ms", int)
    reserve_bytes: int = 0
