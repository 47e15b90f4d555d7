"""Retention of running logs with the settings in force, and with changed ones.

The plans are those that the next checks of a running broker execute, on one view of each log. What
a compaction would discard is not known without reading records, so it is not said: see
`How.RETENTION`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cordwood.queries.whatif.comparison import (
    BothSettings,
    Compared,
    Comparison,
    PlannedBoth,
    Space,
    plan_both,
)
from cordwood.queries.whatif.effects import retention_outcome


def compare_running(
    logs: Sequence[BothSettings], space: Space, *, shown: Collection[str], now_ms: int
) -> Comparison:
    """Both sides, of the logs that the changes concern.

    Args:
        logs: all that share limits with those of the topics to be shown.
        space: the limits of log directories.
        shown: the topics that are asked for.
        now_ms: the time.

    Raises:
        CorruptError, OSError: an index of a log cannot be read.
    """
    comparison = Comparison(changes={}, broker_changes=space.changes)
    changes: dict[str, dict[str, tuple[str, str]]] = {}
    for planned in plan_both(logs, space, now_ms=now_ms):
        log = planned.log.log
        topic = log.view.topic_partition.topic
        if topic not in shown or log.is_future:
            continue
        changes[topic] = planned.changes
        if planned.is_concerned:
            comparison.partitions.append(_compared(planned, now_ms))
    comparison.changes = {topic: change for topic, change in sorted(changes.items()) if change}
    comparison.unchanged_topics = len(changes) - len(comparison.changes)
    return comparison


def _compared(planned: PlannedBoth, now_ms: int) -> Compared:
    log = planned.log.log
    then_view = planned.log.then_view
    return Compared(
        topic=log.view.topic_partition.topic,
        partition=log.view.topic_partition.partition,
        log_dir=log.log_dir,
        view=log.view,
        then_view=then_view,
        next_24h=planned.next_24h,
        now=retention_outcome(log.view, planned.now, now_ms=now_ms),
        then=retention_outcome(then_view, planned.then, now_ms=now_ms),
        is_same=planned.is_same,
    )
