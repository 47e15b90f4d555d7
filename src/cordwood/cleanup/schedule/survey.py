"""Log directories as they are at one moment, for questions about them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from cordwood.cleanup.access.offline.directories import locked, open_log_dirs
from cordwood.cleanup.access.offline.groups import OfflineGroups
from cordwood.cleanup.plan.assumed_retention import AssumedRetention, removes_by_time
from cordwood.cleanup.plan.captured import Captured
from cordwood.cleanup.plan.check_plan import (
    CheckPlan,
    plan_check_of,
)
from cordwood.cleanup.plan.report import PartitionReport, Report
from cordwood.cleanup.plan.request import CleanRequest, Listener, Silence
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.shared_retention import (
    DirectoryLimits,
    SharedLog,
)
from cordwood.cleanup.schedule.pinned_logs import REMOVERS, PinnedLogs, free_bytes_of
from cordwood.model.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """Log directories as they are at one moment.

    `logs` are the partitions that were read; `report` has all others, too, with the reason.
    `shared` are the same logs in the same order, for the limits that logs share. `groups` have the
    committed offsets, which are read when they are asked for. `assumed` are the topics whose
    retention may not be that of the broker, which the report warns of.
    """

    report: Report
    logs: tuple[tuple[PartitionReport, Captured], ...]
    shared: tuple[SharedLog, ...]
    groups: OfflineGroups
    assumed: AssumedRetention

    @property
    def free_bytes(self) -> dict[str, int]:
        """The free space of each directory that has a log."""
        return free_bytes_of(self.shared)

    def checks(self, limits: DirectoryLimits, *, now_ms: int) -> list[CheckPlan]:
        """The plan of a check of retention for each of `logs`, with the limits that they share."""
        free = self.free_bytes
        return plan_check_of(self.shared, limits, free_bytes=free, freeing=free, now_ms=now_ms)

    def refused(self, checks: Sequence[CheckPlan], *, now_ms: int) -> AssumedRetention:
        """The topics of `assumed` for which `clean` would end: `checks` remove records by them."""
        found = {
            report.topic
            for (report, captured), check in zip(self.logs, checks, strict=True)
            if removes_by_time(check, compacts=_is_due(captured.view, now_ms))
        }
        return self.assumed.among(found)


def _is_due(view: LogView, now_ms: int) -> bool:
    return view.config.compact and plan_cleanable(view, now_ms=now_ms).reason is None


def survey(request: CleanRequest, *, clock: Clock, listener: Listener | None = None) -> Survey:
    """Reads the logs that a dry run of `request` would plan on; changes nothing.

    Raises:
        As `clean`, except for EngineError.
    """
    request = replace(request, dry_run=True, measured=False)
    log_dirs = open_log_dirs(request.log_dirs)
    with (
        locked(log_dirs, dry_run=True) as locks,
        ThreadPoolExecutor(REMOVERS, thread_name_prefix="remover") as remover,
    ):
        run = PinnedLogs(request, clock, listener or Silence(), remover)
        run.read(log_dirs, locks)
    assumed = run.assumed
    run.report.warnings += [str(assumed)] * bool(assumed)
    return Survey(
        report=run.report,
        logs=tuple(run.captured()),
        shared=tuple(run.shared_logs()),
        groups=run.groups,
        assumed=assumed,
    )
