"""Sums of the estimated compactions of a dry run."""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.cleanup.plan.report import PartitionReport, Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Estimated sum of the planned compactions of a dry run.

    `planned` is how many there are, `failed` those of them that have no estimate.
    """

    planned: int
    failed: tuple[PartitionReport, ...]
    bytes_freed: int
    bytes_read: int
    error: float
    is_exact: bool

    @classmethod
    def of(cls, report: Report) -> Estimates:
        """Sums the estimates of a report."""
        planned = [each for each in report.partitions if each.is_compaction_planned]
        found = [each.estimate for each in report.partitions if each.estimate is not None]
        failed = tuple(each for each in planned if each.estimate is None)
        return cls(
            planned=len(planned),
            failed=failed,
            bytes_freed=sum(each.bytes_freed for each in found),
            bytes_read=sum(each.bytes_read for each in found),
            error=sum(each.error**2 for each in found) ** 0.5,
            is_exact=not failed and all(each.is_exact for each in found),
        )

    @property
    def is_empty(self) -> bool:
        """Whether something is planned and nothing is estimated."""
        return 0 < self.planned == len(self.failed)

    @property
    def without(self) -> str:
        """A note on compactions without an estimate; empty if all have one."""
        return f"not counting {len(self.failed):,} that failed" if self.failed else ""
