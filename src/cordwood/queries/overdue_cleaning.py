"""Whether a log has gone without a cleaning that was due: a pure function of a view and a time.

A cleaner writes `cleaner-offset-checkpoint` at the end of each cleaning of a log. So no cleaning of
any log in a directory has ended since that file was modified. What is said here has to be certain:

1. The log is only compacted, and has been cleaned before or is internal: it was compacted before.
2. With the settings in force its dirty ratio has passed the limit at a moment that is later than
   that of the file. The moment is when a segment behind that section was last appended to: the
   section was full by then, and none of it has been cleaned since.
3. A day and more after that moment the log was still appended to, so a broker ran.
4. Both are times of files that agree with the timestamps of their records: a copy whose files have
   other times says nothing.

Source: org.apache.kafka.storage.internals.log.LogCleanerManager.doneCleaning, updateCheckpoints,
maybeTruncateCheckpoint.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cordwood.cleanup.plan.check_plan import DAY_MS
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.rules.log_view import CleanedSegment, LogView
from cordwood.model.topic_names import INTERNAL_TOPICS

#: Between the time of a file and the timestamp of its newest record.
_AGREEMENT_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueCleaning:
    """A log of which no cleaning has ended since `cleaned_ms`, though one was due at `due_ms`.

    At `written_ms`, a day later or more, it was appended to. Times are in ms; `dirty_bytes` is what
    a cleaning would look at.
    """

    topic: str
    partition: int
    log_dir: str
    cleaned_ms: int
    due_ms: int
    written_ms: int
    dirty_bytes: int


def overdue_cleaning(
    view: LogView, *, log_dir: str, checkpoint_ms: int, now_ms: int
) -> OverdueCleaning | None:
    """Proof that a log's cleaning is overdue; None if there is none.

    Args:
        view: the log.
        log_dir: where it is.
        checkpoint_ms: when its directory's `cleaner-offset-checkpoint` was last modified.
        now_ms: the time.
    """
    config = view.config
    is_known = view.cleaner_checkpoint is not None or view.topic_partition.topic in INTERNAL_TOPICS
    if not is_known or not config.compact or config.delete:
        return None
    cleanable = plan_cleanable(view, now_ms=now_ms)
    if cleanable.blocker is not None or cleanable.due or cleanable.reset_checkpoint:
        return None
    start, end = cleanable.first_dirty, cleanable.first_uncleanable
    dirty_bytes, due_ms = 0, 0
    for segment in view.values(start, end):
        dirty_bytes += segment.size_bytes
        due_ms = max(due_ms, segment.largest_timestamp + config.min_compaction_lag_ms)
        total_bytes = cleanable.clean_bytes + dirty_bytes
        if dirty_bytes > config.min_cleanable_dirty_ratio * total_bytes:
            break
    else:
        return None  # it is due for another reason
    appended_ms = list(_appended_ms(view, after=segment))
    if not appended_ms:
        return None
    due_ms, written_ms = max(due_ms, min(appended_ms)), max(appended_ms)
    if not checkpoint_ms < due_ms <= written_ms - DAY_MS:
        return None
    return OverdueCleaning(
        topic=view.topic_partition.topic,
        partition=view.topic_partition.partition,
        log_dir=log_dir,
        cleaned_ms=checkpoint_ms,
        due_ms=due_ms,
        written_ms=written_ms,
        dirty_bytes=cleanable.cleanable_bytes,
    )


def _appended_ms(view: LogView, *, after: CleanedSegment) -> Iterator[int]:
    """The times of the last appends to segments behind one, where their records agree."""
    for segment in view.segments:
        if segment.base_offset > after.base_offset and segment.largest_record_timestamp >= 0:
            apart_ms = abs(segment.modified_ms - segment.largest_record_timestamp)
            if apart_ms <= _AGREEMENT_MS:
                yield segment.modified_ms
