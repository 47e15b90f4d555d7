"""Why a changed setting changes nothing of a log: a pure function of both sides."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from cordwood.cleanup.plan.check_plan import plan_check_alone
from cordwood.cleanup.rules.blockers import Code
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.queries.explain.segment_fate import segment_fates
from cordwood.queries.whatif.comparison import Compared
from cordwood.queries.whatif.effects import How, changed_settings

_BY_RETENTION: Final = frozenset({"retention.ms", "retention.bytes"})
_BY_COMPACTION: Final = frozenset(
    {
        "min.cleanable.dirty.ratio",
        "min.compaction.lag.ms",
        "max.compaction.lag.ms",
        "delete.retention.ms",
    }
)


def why_no_effect(compared: Compared, *, now_ms: int) -> str:
    """Why a cleaning at `now_ms` leaves the same on both sides.

    Empty if it does not, if a side is not known, as where a compaction is due that nobody has
    measured and that a change may concern, or if the settings that change are others than those of
    retention and compaction.
    """
    now, then = compared.now, compared.then
    if now is None or then is None:
        return ""
    if (now.bytes, now.segments, now.records_discarded) != (
        then.bytes,
        then.segments,
        then.records_discarded,
    ):
        return ""
    changed = changed_settings(compared.view.config, compared.then_view.config).keys()
    if changed & _BY_COMPACTION and How.RETENTION in (now.how, then.how):
        return ""
    if changed & _BY_RETENTION:
        return _no_retention(compared, changed, now_ms)
    if changed & _BY_COMPACTION:
        return _no_compaction(compared, now_ms)
    return ""


def _no_retention(compared: Compared, changed: Collection[str], now_ms: int) -> str:
    view = compared.then_view
    if not view.config.delete:
        return f"{_policy(view.config.cleanup_policy)}: retention removes nothing, only compaction"
    plan = plan_check_alone(view, now_ms=now_ms).plan
    if plan.expired:
        return "the same segments go with both"
    blockers = segment_fates(view, plan, now_ms=now_ms)[0].blockers
    if not blockers:
        return ""
    first = next((each for each in blockers if each.setting in changed), blockers[0])
    old = "nothing is old enough: " if first.code is Code.TIME else ""
    return f"{old}of the oldest segment: {first.text}"


def _no_compaction(compared: Compared, now_ms: int) -> str:
    view = compared.then_view
    if not view.config.compact:
        return f"{_policy(view.config.cleanup_policy)}: the log is not compacted"
    blocker = plan_cleanable(view, now_ms=now_ms).blocker
    return "the same records go with both" if blocker is None else blocker.text


def _policy(policy: Collection[str]) -> str:
    return f"cleanup.policy={','.join(sorted(policy))}"
