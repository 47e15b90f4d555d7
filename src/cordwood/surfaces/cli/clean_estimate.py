"""Lines of a dry run of `cordwood clean` about compactions that it estimates."""

from __future__ import annotations

import secrets
from dataclasses import replace

from cordwood.cleanup.plan.estimates import CompactionEstimate, Estimator
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.report import Report
from cordwood.model.extras import NATIVE, missing_packages
from cordwood.queries.estimates import Estimates
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


def estimated_line(report: Report) -> str:
    """The part of a dry run's last line about compactions; empty if none is planned."""
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
