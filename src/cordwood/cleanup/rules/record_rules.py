"""The rules by which a compaction judges records, as one value: a part of its plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cordwood.cleanup.rules.removal_rule import RemovalRule
from cordwood.cleanup.rules.removals import RULES, removal_rules
from cordwood.cleanup.rules.versions import VersionRule
from cordwood.configs.log_config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRules:
    """The rules of one compaction, at `now_ms`.

    A tombstone or marker without a delete horizon gets one `delete_retention_ms` ahead; those of
    magic 0 and 1 go if their segment was last modified at `legacy_horizon_ms` or before.

    With `versions`, the record of the highest version of a key survives, not the newest. Records
    that one of `removals` removes go whatever their keys.
    """

    now_ms: int
    delete_retention_ms: int = 0
    legacy_horizon_ms: int = 0
    versions: VersionRule | None = None
    removals: tuple[RemovalRule, ...] = ()

    @classmethod
    def of(cls, config: LogConfig, *, now_ms: int, legacy_horizon_ms: int) -> RecordRules:
        """The rules of a topic."""
        return cls(
            now_ms=now_ms,
            delete_retention_ms=config.delete_retention_ms,
            legacy_horizon_ms=legacy_horizon_ms,
            versions=VersionRule.of(config),
            removals=removal_rules(config),
        )

    def to_json(self) -> dict[str, Any]:
        """Fields of a plan."""
        headers = dict.fromkeys((rule.name for rule in RULES), "")
        headers |= {each.name: each.header for each in self.removals}
        return {
            "now_ms": self.now_ms,
            "delete_retention_ms": self.delete_retention_ms,
            "legacy_horizon_ms": self.legacy_horizon_ms,
            "versions": None if self.versions is None else asdict(self.versions),
            **headers,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RecordRules:
        """The rules among the fields of a plan."""
        versions = value.get("versions")
        return cls(
            now_ms=value["now_ms"],
            delete_retention_ms=value["delete_retention_ms"],
            legacy_horizon_ms=value["legacy_horizon_ms"],
            versions=None if versions is None else VersionRule(**versions),
            removals=tuple(rule(value[rule.name]) for rule in RULES if value.get(rule.name)),
        )
