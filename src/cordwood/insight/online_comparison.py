"""What retention of running logs does with the settings in force, and with changed ones.

The plans are those that the next checks of a running broker execute, on one view of each log. What
a compaction would discard is not known without reading records, so it is not said: see
`How.RETENTION`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cordwood.cleanup.log_view import LogView
from cordwood.insight.comparison import Compared, Comparison
from cordwood.insight.whatif import changed_settings, retention_outcome
from cordwood.model.config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningLog:
    """A view of a log with the settings in force, and the changed settings."""

    view: LogView
    log_dir: str
    then: LogConfig


def compare_running(logs: Sequence[RunningLog], *, now_ms: int) -> Comparison:
    """Both sides, of the logs whose settings differ.

    Raises:
        CorruptError, OSError: an index of a log cannot be read.
    """
    changes: dict[str, dict[str, tuple[str, str]]] = {}
    partitions = []
    for log in logs:
        view = log.view
        topic = view.topic_partition.topic
        if topic not in changes:
            changes[topic] = changed_settings(view.config, log.then)
        if not changes[topic]:
            continue
        then_view = replace(view, config=log.then)
        partitions.append(
            Compared(
                topic=topic,
                partition=view.topic_partition.partition,
                log_dir=log.log_dir,
                view=view,
                then_view=then_view,
                now=retention_outcome(view, now_ms=now_ms),
                then=retention_outcome(then_view, now_ms=now_ms),
            )
        )
    return Comparison(
        changes={topic: change for topic, change in sorted(changes.items()) if change},
        partitions=partitions,
        unchanged_topics=sum(not change for change in changes.values()),
    )
