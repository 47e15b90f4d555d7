"""The report of a cleaning, as values for a table or a JSON document."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cordwood.cleanup.plan.compaction_values import Discarded
from cordwood.cleanup.plan.estimates import CompactionEstimate
from cordwood.cleanup.rules.group_guard import GroupLoss
from cordwood.storage.log_directory import InUse


class Status(enum.StrEnum):
    """Result of a partition."""

    CLEANED = "cleaned"
    UNCHANGED = "unchanged"
    PLANNED = "planned"
    LEFT_ALONE = "left alone"
    HELD = "held"
    NO_SPACE = "no space"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A partition's segments, bytes of logs, and records where they were counted."""

    segments: int
    bytes: int
    records: int | None = None


@dataclass(slots=True, kw_only=True)
class PartitionReport:
    """One partition.

    Sizes are None if it was skipped. `rolled_at` is the base offset of the active segment that took
    the place of an idle one, None if none did. `holds` are the ids of its legal holds. `keys` is
    how many keys the dirty section had, None where no compaction counted them; `log_start_offset`
    that of afterwards. `losses` are what groups of cordwood.retention.groups lose. Of a dry
    run with `is_compaction_planned`, `after` is the size before the compaction, and `estimate` is
    what that would free, if it was estimated.
    """

    topic: str
    partition: int
    log_dir: str
    status: Status
    reason: str = ""
    policy: str = ""
    before: Size | None = None
    after: Size | None = None
    discarded: Discarded = field(default_factory=Discarded)
    expired: list[dict[str, Any]] = field(default_factory=list)
    rolled_at: int | None = None
    cleaner_checkpoint: int | None = None
    log_start_offset: int | None = None
    keys: int | None = None
    is_compaction_planned: bool = False
    estimate: CompactionEstimate | None = None
    warnings: list[str] = field(default_factory=list)
    holds: tuple[str, ...] = ()
    losses: list[GroupLoss] = field(default_factory=list)

    @property
    def bytes_freed(self) -> int:
        """The number of bytes of logs that were freed, or would be."""
        return (self.before.bytes - self.after.bytes) if self.before and self.after else 0

    @property
    def bytes_left(self) -> int | None:
        """The size afterwards, by the estimate of a planned compaction.

        None if the partition was skipped, or if such a compaction was not estimated.
        """
        if self.after is None or (self.is_compaction_planned and self.estimate is None):
            return None
        return self.after.bytes - (self.estimate.bytes_freed if self.estimate is not None else 0)

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        sizes = {
            f"{name}_{when}": getattr(size, name) if size else None
            for when, size in (("before", self.before), ("after", self.after))
            for name in ("segments", "bytes", "records")
        }
        return {
            "topic": self.topic,
            "partition": self.partition,
            "log_dir": self.log_dir,
            "status": str(self.status),
            "reason": self.reason,
            "policy": self.policy,
            "holds": list(self.holds),
            **sizes,
            "bytes_left": self.bytes_left,
            "discarded": asdict(self.discarded),
            "expired": self.expired,
            "losses": [asdict(each) for each in self.losses],
            "rolled_at": self.rolled_at,
            "cleaner_checkpoint": self.cleaner_checkpoint,
            "log_start_offset": self.log_start_offset,
            "keys": self.keys,
            "estimate": self.estimate.to_json() if self.estimate is not None else None,
            "warnings": self.warnings,
        }


@dataclass(slots=True)
class Timing:
    """Seconds spent in each stage."""

    session: float = 0.0
    capture: float = 0.0
    plan: float = 0.0
    estimate: float = 0.0
    execute: float = 0.0
    commit: float = 0.0
    total: float = 0.0


@dataclass(slots=True)
class Report:
    """The whole run; `measured` says that a dry run's numbers are those of the cleaning."""

    now_ms: int
    dry_run: bool
    measured: bool = False
    partitions: list[PartitionReport] = field(default_factory=list)
    plan: list[Mapping[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    engine: dict[str, Any] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    #: Of a dry run: directories that another process uses.
    in_use: list[InUse] = field(default_factory=list)
    #: Of a plan: what retention removes in the next 24 hours, beyond what goes now.
    bytes_next_24h: int | None = None
    #: The trash, if it lies on the disk of a log directory: what is moved there takes its space.
    trash_on_disk: str | None = None

    @property
    def failed(self) -> list[PartitionReport]:
        """Partitions that could not be cleaned."""
        return [p for p in self.partitions if p.status in {Status.FAILED, Status.NO_SPACE}]

    def to_json(self) -> dict[str, Any]:
        """The document that --json prints."""
        return {
            "now_ms": self.now_ms,
            "dry_run": self.dry_run,
            "measured": self.measured,
            "plan": list(self.plan),
            "partitions": [p.to_json() for p in self.partitions],
            "warnings": self.warnings,
            "in_use": [asdict(each) for each in self.in_use],
            "bytes_next_24h": self.bytes_next_24h,
            "engine": self.engine,
            "timing_s": {k: round(v, 3) for k, v in asdict(self.timing).items()},
        }
