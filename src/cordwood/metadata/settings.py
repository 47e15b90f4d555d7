"""The settings of the metadata log and of its snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MIB: Final = 1 << 20
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataLogSettings:
    """Defaults are Kafka's, times in ms.

    `snapshot_bytes` and `snapshot_interval_ms` are metadata.log.max.record.bytes.between.snapshots
    and metadata.log.max.snapshot.interval.ms, `retention_*` metadata.max.retention.*,
    `segment_*` metadata.log.segment.*.
    """

    snapshot_bytes: int = 20 * _MIB
    snapshot_interval_ms: int = _HOUR_MS
    retention_bytes: int = 100 * _MIB
    retention_ms: int = 168 * _HOUR_MS
    segment_bytes: int = 1 << 30
    segment_ms: int = 168 * _HOUR_MS
