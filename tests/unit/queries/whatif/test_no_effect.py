"""Why a changed setting changes nothing of a log, and where nobody can say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cordwood.cleanup.plan.check_plan import plan_check_alone
from cordwood.cleanup.rules.log_view import LogView
from cordwood.configs.log_config import LogConfig
from cordwood.queries.whatif.comparison import Compared
from cordwood.queries.whatif.effects import How, Outcome, retention_outcome, settled
from cordwood.queries.whatif.no_effect import why_no_effect
from support.aged_view import aged_view
from support.log_builder import NOW_MS

DAY_MS = 86_400_000
COMPACTED = LogConfig(cleanup_policy=frozenset({"compact"}))


def running(view: LogView) -> Outcome:
    """The outcome by a running broker, which reads no records."""
    return retention_outcome(view, plan_check_alone(view, now_ms=NOW_MS), now_ms=NOW_MS)


def compared(now: LogConfig, then: LogConfig, *, checkpoint: int | None = None) -> Compared:
    view = replace(aged_view(now), cleaner_checkpoint=checkpoint)
    then_view = replace(view, config=then)
    return Compared(
        topic="t",
        partition=0,
        log_dir="/logs",
        view=view,
        then_view=then_view,
        now=running(view),
        then=running(then_view),
    )


@pytest.mark.parametrize(
    ("then", "sides"),
    [
        (replace(COMPACTED, min_compaction_lag_ms=365 * DAY_MS), (How.RETENTION, How.PLANNED)),
        (replace(COMPACTED, min_cleanable_dirty_ratio=1.0), (How.RETENTION, How.PLANNED)),
        (replace(COMPACTED, delete_retention_ms=0), (How.RETENTION, How.RETENTION)),
        (
            replace(COMPACTED, min_cleanable_dirty_ratio=1.0, retention_ms=1),
            (How.RETENTION, How.PLANNED),
        ),
    ],
    ids=["lag", "ratio", "tombstones", "with retention"],
)
def test_a_compaction_that_nobody_has_measured_may_have_an_effect(
    then: LogConfig, sides: tuple[How, How]
) -> None:
    both = compared(COMPACTED, then)
    assert both.now is not None
    assert both.then is not None
    assert (both.now.how, both.then.how) == sides
    assert why_no_effect(both, now_ms=NOW_MS) == ""


def test_a_compaction_that_is_due_on_neither_side_says_why() -> None:
    both = compared(COMPACTED, replace(COMPACTED, delete_retention_ms=0), checkpoint=30)
    assert settled(both.view, plan_check_alone(both.view, now_ms=NOW_MS), now_ms=NOW_MS)
    assert "all but the active segment is clean" in why_no_effect(both, now_ms=NOW_MS)


def test_retention_of_a_log_without_delete_says_so_though_a_compaction_is_due() -> None:
    why = why_no_effect(compared(COMPACTED, replace(COMPACTED, retention_ms=1)), now_ms=NOW_MS)
    assert why == "cleanup.policy=compact: retention removes nothing, only compaction"
