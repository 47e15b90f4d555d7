"""The plan of one check of retention, all rules in their order: pure functions.

First each log by itself: an idle active segment is rolled, then the log's own rules apply. Then the
limits that logs share take what is left over them. What they took may have held back the log's own
rules, as a segment with a timestamp of the future does: so those apply again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cordwood.cleanup.plan.view_after import after_retention, after_roll
from cordwood.cleanup.rules.idle_roll import should_roll_expired, should_roll_idle
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.retention import RetentionPlan, plan_retention
from cordwood.cleanup.rules.shared_retention import (
    DirectoryLimits,
    SharedLog,
    joined,
    plan_shared_retention,
    shares_limits,
)

DAY_MS: Final = 86_400_000

#: The plans of the limits that logs share, for logs as their own retention has left them.
Share = Callable[[Sequence[LogView]], Sequence[RetentionPlan]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """One log: `before` is what the check has found and rolled, `after` what `plan` leaves."""

    before: LogView
    plan: RetentionPlan
    after: LogView


def view_when_rolled(view: LogView, *, now_ms: int) -> LogView:
    """The log as a check has rolled it; the view itself where it rolls nothing."""
    active = view.active
    first = active.first_batch_timestamp if view.config.cordwood_segment_roll_idle else -1
    if should_roll_expired(
        view,
        active,
        last_stable_offset=view.last_stable_offset,
        expiry_ms=active.due.expiry_ms,
        now_ms=now_ms,
    ) or should_roll_idle(view, active, first_batch_timestamp=first, now_ms=now_ms):
        return after_roll(view, now_ms=now_ms)
    return view


def plan_check(views: Sequence[LogView], share: Share, *, now_ms: int) -> list[CheckPlan]:
    """The plan for each log, in their order.

    Args:
        views: of the logs, rolled.
        share: plans the limits that they share.
        now_ms: the time.
    """
    plans = [plan_retention(view, now_ms=now_ms) for view in views]
    rests = [
        after_retention(view, plan, now_ms=now_ms) if plan.expired else view
        for view, plan in zip(views, plans, strict=True)
    ]
    whole = [
        joined(own, _with_own_rules(rest, shared, now_ms=now_ms))
        for own, rest, shared in zip(plans, rests, share(rests), strict=True)
    ]
    return [
        CheckPlan(before=view, plan=plan, after=after_retention(view, plan, now_ms=now_ms))
        for view, plan in zip(views, whole, strict=True)
    ]


def _with_own_rules(view: LogView, shared: RetentionPlan, *, now_ms: int) -> RetentionPlan:
    """The plan of shared limits, and of the log's own rules behind it."""
    if not shared.expired:
        return shared
    rest = after_retention(view, shared, now_ms=now_ms)
    return joined(shared, plan_retention(rest, now_ms=now_ms))


def plan_check_alone(view: LogView, *, now_ms: int) -> CheckPlan:
    """The plan for a log that shares no limit."""
    (only,) = plan_check([view_when_rolled(view, now_ms=now_ms)], _nothing, now_ms=now_ms)
    return only


def plan_check_of(
    logs: Sequence[SharedLog],
    limits: DirectoryLimits,
    *,
    free_bytes: Mapping[str, int],
    freeing: Collection[str],
    now_ms: int,
) -> list[CheckPlan]:
    """The plan for each log, in their order, with the limits that they share.

    Args:
        logs: all that share limits, as they are.
        limits: of each log directory.
        free_bytes: by directory, the free space now.
        freeing: the directories where what a log's own rules remove becomes free space.
        now_ms: the time.
    """
    views = [
        view_when_rolled(each.view, now_ms=now_ms) if each.may_roll else each.view for each in logs
    ]
    if not shares_limits((view.config for view in views), limits):
        return plan_check(views, _nothing, now_ms=now_ms)

    def share(rests: Sequence[LogView]) -> Sequence[RetentionPlan]:
        free = dict(free_bytes)
        for log, view, rest in zip(logs, views, rests, strict=True):
            if log.log_dir in freeing and log.log_dir in free:
                free[log.log_dir] += view.size_bytes - rest.size_bytes
        shared = [replace(log, view=rest) for log, rest in zip(logs, rests, strict=True)]
        return plan_shared_retention(shared, limits, free_bytes=free, now_ms=now_ms)

    return plan_check(views, share, now_ms=now_ms)


def bytes_of_next_day(now: Sequence[CheckPlan], in_a_day: Sequence[CheckPlan]) -> list[int]:
    """The bytes of each log that checks of the next 24 hours remove beyond the first one.

    It holds if nothing is appended or compacted meanwhile. A log of which others that share its
    limits leave more has 0.

    Args:
        now: the plans of a check.
        in_a_day: those of a check of the same logs as they are now, `DAY_MS` later.
    """
    return [
        max(0, later.plan.bytes_freed - first.plan.bytes_freed)
        for first, later in zip(now, in_a_day, strict=True)
    ]


def _nothing(views: Sequence[LogView]) -> Sequence[RetentionPlan]:
    return [
        RetentionPlan(expired=(), roll=False, log_start_offset=view.log_start_offset)
        for view in views
    ]
