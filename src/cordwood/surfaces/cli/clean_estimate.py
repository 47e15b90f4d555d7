"""What a dry run of `cordwood clean` says about compactions that it has not run."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace

from cordwood.cleanup.estimate.values import CompactionEstimate, Estimator
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.schedule.report import PartitionReport, Report
from cordwood.model.extras import NATIVE, missing_packages
from cordwood.surfaces.cli.clean_progress import CleanProgress
from cordwood.surfaces.cli.values import format_bytes


def estimator_for(display: CleanProgress) -> Estimator | None:
    """Estimates, and shows how far it is; None where compiled code is not installed.

    Two estimates of one log have the same sample, so that their difference is that of the settings.
    """
    if missing_packages(NATIVE):
        return None
    seed = secrets.randbits(127)

    def estimate(compaction: LogCompaction) -> CompactionEstimate:
        # numpy takes a tenth of a second to import: only where something would be compacted.
        from cordwood.cleanup.estimate.estimate import estimate_compaction  # noqa: PLC0415

        total = compaction.size_bytes
        done = 0

        def progress(count: int) -> None:
            nonlocal done
            done += count
            display.bytes_done(compaction.name, "estimating", done, total)

        return estimate_compaction(replace(compaction, seed=seed), progress=progress)

    return estimate


def with_error(count: int, error: float) -> str:
    """A size with how far it may be off, if it may."""
    return f"{format_bytes(count)} ±{format_bytes(error)}" if error else format_bytes(count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """What the planned compactions of a dry run would free together.

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
        """Those of a report."""
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
        """What is not counted; empty if all is."""
        return f"not counting {len(self.failed):,} that failed" if self.failed else ""


def estimated_line(report: Report) -> str:
    """What the last line of a dry run adds about compactions; empty if none is planned."""
    found = Estimates.of(report)
    if not found.planned:
        return ""
    if found.is_empty:
        need = ": that needs pip install 'cordwood[native]'" if missing_packages(NATIVE) else ""
        return f"; what compaction would free is not counted{need}"
    rest = f", {found.without}" if found.without else ""
    return (
        f", compaction {with_error(found.bytes_freed, found.error)}{rest} (estimated in "
        f"{report.timing.estimate:.1f} s, {format_bytes(found.bytes_read)} read; --exact measures)"
    )
