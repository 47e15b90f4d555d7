"""The rules by which a compaction judges records, as one value: a part of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cordwood.cleanup.rules.versions import VersionRule
from cordwood.model.config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRules:
    """The rules of one compaction, at `now_ms`.

    A tombstone or marker without a delete horizon gets one `delete_retention_ms` ahead; those of
    magic 0 and 1 go if their segment was last modified at `legacy_horizon_ms` or before.

    With `versions`, the record of the highest version of a key survives, not the newest.

    With `ttl_header`, the key of a header with their time to live, records that have expired go;
    older ones of their keys do not come back. One that has beaten a newer record, by its version,
    stays until a compaction in which there is no such record.
    """

    now_ms: int
    delete_retention_ms: int = 0
    legacy_horizon_ms: int = 0
    versions: VersionRule | None = None
    ttl_header: str = ""

    @classmethod
    def of(cls, config: LogConfig, *, now_ms: int, legacy_horizon_ms: int) -> RecordRules:
        """The rules of a topic."""
        return cls(
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            legacy_horizon_ms=legacy_horizon_ms,
            versions=VersionRule.of(config),
            ttl_header=config.cordwood_record_ttl_header,
        )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RecordRules:
        """The rules among the fields of a plan, as `asdict` gives them."""
        versions = value.get("versions")
        return cls(
            now_ms=value["now_ms"],
            delete_retention_ms=value["delete_retention_ms"],
            legacy_horizon_ms=value["legacy_horizon_ms"],
            versions=None if versions is None else VersionRule(**versions),
            ttl_header=value.get("ttl_header", ""),
        )
