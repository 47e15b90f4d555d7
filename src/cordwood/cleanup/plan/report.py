"""The report of a cleaning, which grows while that runs."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cordwood.cleanup.plan.compaction_values import Discarded
from cordwood.cleanup.plan.estimates import CompactionEstimate
from cordwood.cleanup.rules.group_guard import GroupLoss
from cordwood.model.documents import ABSENT
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredSegment:
    """A segment that retention removes by a rule; of a partition's report with Kafka's text."""

    base_offset: int
    bytes: int
    rule: str
    text: str | None = field(default=None, metadata=ABSENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCompaction:
    """A compaction that was considered; `reason` is why there is none.

    `groups` are the base offsets of the segments that become one each; `first_uncleanable_offset`
    is exclusive.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    dirty_ratio: float
    bytes_to_read: int
    groups: Sequence[Sequence[int]]
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCleaning:
    """Plan of a partition in one step; `compaction` only if it was considered."""

    topic: str
    partition: int
    expired: Sequence[ExpiredSegment]
    bytes_freed_by_retention: int
    compaction: PlannedCompaction | None = field(default=None, metadata=ABSENT)


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
    expired: list[ExpiredSegment] = field(default_factory=list)
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
    plan: list[PlannedCleaning] = field(default_factory=list)
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
