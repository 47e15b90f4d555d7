"""The report of a cleaning: the answer of `cordwood clean`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from cordwood.cleanup.plan.compaction_values import Discarded
from cordwood.cleanup.plan.estimates import CompactionEstimate
from cordwood.cleanup.plan.report import (
    ExpiredSegment,
    PartitionReport,
    PlannedCleaning,
    Report,
    Status,
    Timing,
)
from cordwood.cleanup.rules.group_guard import GroupLoss
from cordwood.storage.log_directory import InUse


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedPartition:
    """A partition before and after its cleaning, as `PartitionReport`.

    Sizes are None if it was skipped; records where no compaction counted them; `bytes_left` also
    where a planned compaction was not estimated.
    """

    topic: str
    partition: int
    log_dir: str
    status: Status
    reason: str
    policy: str
    holds: Sequence[str]
    segments_before: int | None
    bytes_before: int | None
    records_before: int | None
    segments_after: int | None
    bytes_after: int | None
    records_after: int | None
    bytes_left: int | None
    discarded: Discarded
    expired: Sequence[ExpiredSegment]
    losses: Sequence[GroupLoss]
    rolled_at: int | None
    cleaner_checkpoint: int | None
    log_start_offset: int | None
    keys: int | None
    estimate: CompactionEstimate | None
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """The whole run, as `Report`; times of its stages in seconds.

    `engine` has facts about Spark; it is empty if nothing was compacted.
    """

    now_ms: int
    dry_run: bool
    measured: bool
    plan: Sequence[PlannedCleaning]
    partitions: Sequence[CleanedPartition]
    warnings: Sequence[str]
    in_use: Sequence[InUse]
    bytes_next_24h: int | None
    engine: Mapping[str, str | int]
    timing_s: Timing


def cleaning_of(report: Report) -> Cleaning:
    """The answer that a report makes."""
    timing = {name: round(value, 3) for name, value in asdict(report.timing).items()}
    return Cleaning(
        now_ms=report.now_ms,
        dry_run=report.dry_run,
        measured=report.measured,
        plan=report.plan,
        partitions=[cleaned_partition(each) for each in report.partitions],
        warnings=report.warnings,
        in_use=report.in_use,
        bytes_next_24h=report.bytes_next_24h,
        engine=report.engine,
        timing_s=Timing(**timing),
    )


def cleaned_partition(report: PartitionReport) -> CleanedPartition:
    """The answer about one partition."""
    before, after = report.before, report.after
    return CleanedPartition(
        topic=report.topic,
        partition=report.partition,
        log_dir=report.log_dir,
        status=report.status,
        reason=report.reason,
        policy=report.policy,
        holds=report.holds,
        segments_before=None if before is None else before.segments,
        bytes_before=None if before is None else before.bytes,
        records_before=None if before is None else before.records,
        segments_after=None if after is None else after.segments,
        bytes_after=None if after is None else after.bytes,
        records_after=None if after is None else after.records,
        bytes_left=report.bytes_left,
        discarded=report.discarded,
        expired=report.expired,
        losses=report.losses,
        rolled_at=report.rolled_at,
        cleaner_checkpoint=report.cleaner_checkpoint,
        log_start_offset=report.log_start_offset,
        keys=report.keys,
        estimate=report.estimate,
        warnings=report.warnings,
    )
