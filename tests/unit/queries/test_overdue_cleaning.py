"""A log is said not to have been cleaned where that is certain, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.queries.overdue_cleaning import OverdueCleaning, overdue_cleaning
from support.log_builder import NOW_MS

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}))
#: A cleaning has ended at the end of the second of ten days.
CLEANED_MS = NOW_MS - 8 * DAY_MS + HOUR_MS


def segment(day: int, *, size_bytes: int = 1000) -> SegmentView:
    """The segment of a day: it takes records until its end, the tenth until now."""
    end_ms = NOW_MS - (9 - day) * DAY_MS
    return SegmentView(
        base_offset=10 * day,
        size_bytes=size_bytes,
        index_bytes=0,
        time_index_bytes=0,
        largest_record_timestamp=end_ms - 1000,
        first_batch_timestamp=end_ms - DAY_MS,
        modified_ms=end_ms,
    )


def view() -> LogView:
    """Two clean segments, seven dirty ones and the active one, each of a day and as large."""
    return LogView(
        topic_partition=TopicPartition("users", 0),
        segments=tuple(map(segment, range(10))),
        log_start_offset=0,
        log_end_offset=100,
        high_watermark=100,
        last_stable_offset=100,
        cleaner_checkpoint=20,
        config=COMPACT,
    )


def overdue(log: LogView, *, checkpoint_ms: int = CLEANED_MS) -> OverdueCleaning | None:
    return overdue_cleaning(log, log_dir="/data", checkpoint_ms=checkpoint_ms, now_ms=NOW_MS)


def changed(log: LogView, number: int, **changes: Any) -> LogView:
    segments = list(log.segments)
    old = segments[number]
    assert isinstance(old, SegmentView)
    segments[number] = replace(old, **changes)
    return replace(log, segments=tuple(segments))


def test_a_log_whose_cleaner_has_died_is_due_since_its_ratio_passed_the_limit() -> None:
    """Two segments of four are half, three of five are more: they were full on the sixth day."""
    assert overdue(view()) == OverdueCleaning(
        topic="users",
        partition=0,
        log_dir="/data",
        cleaned_ms=CLEANED_MS,
        due_ms=NOW_MS - 4 * DAY_MS,
        written_ms=NOW_MS,
        dirty_bytes=7000,
    )


def test_a_lag_of_the_compaction_makes_it_due_later() -> None:
    config = replace(COMPACT, min_compaction_lag_ms=2 * DAY_MS)
    found = overdue(replace(view(), config=config))
    assert found is not None
    # The third dirty segment has records that are so old two days later.
    assert found.due_ms == segment(4).largest_record_timestamp + 2 * DAY_MS


def of_another_policy(log: LogView) -> LogView:
    policy = frozenset({"compact", "delete"})
    return replace(log, config=replace(COMPACT, cleanup_policy=policy))


def without_a_limit_passed(log: LogView) -> LogView:
    return replace(log, config=replace(COMPACT, min_cleanable_dirty_ratio=0.9))


def held(log: LogView) -> LogView:
    return replace(log, holds=("case-1",))


def never_cleaned(log: LogView) -> LogView:
    return replace(log, cleaner_checkpoint=None)


def with_an_open_transaction(log: LogView) -> LogView:
    return replace(log, last_stable_offset=40)


def copied(log: LogView) -> LogView:
    """All files have the time of the copy."""
    for number in range(len(log.segments)):
        log = changed(log, number, modified_ms=NOW_MS + 40 * DAY_MS + number * DAY_MS)
    return log


def without_timestamps(log: LogView) -> LogView:
    for number in range(len(log.segments)):
        log = changed(log, number, largest_record_timestamp=-1)
    return log


def filled_by_a_slow_producer(log: LogView) -> LogView:
    for number in range(len(log.segments)):
        old = log.segments[number].largest_record_timestamp
        log = changed(log, number, largest_record_timestamp=old - 2 * HOUR_MS)
    return log


@pytest.mark.parametrize(
    "make",
    [
        of_another_policy,
        without_a_limit_passed,
        held,
        never_cleaned,
        with_an_open_transaction,
        copied,
        without_timestamps,
        filled_by_a_slow_producer,
    ],
)
def test_nothing_is_said_where_it_is_not_certain(make: Callable[[LogView], LogView]) -> None:
    assert overdue(make(view())) is None


def test_nothing_is_said_of_a_directory_in_which_a_log_was_cleaned_later() -> None:
    due_ms = NOW_MS - 4 * DAY_MS
    assert overdue(view(), checkpoint_ms=due_ms - 1) is not None
    assert overdue(view(), checkpoint_ms=due_ms) is None


def test_nothing_is_said_where_the_broker_stopped_within_a_day() -> None:
    """The newest segments after the section that was due are of the same day."""
    log = view()
    for number in range(5, 10):
        at_ms = NOW_MS - 4 * DAY_MS + number * HOUR_MS
        log = changed(log, number, modified_ms=at_ms, largest_record_timestamp=at_ms)
    assert overdue(log) is None


def test_an_internal_topic_is_always_compacted() -> None:
    offsets = replace(
        view(), topic_partition=TopicPartition("__consumer_offsets", 0), cleaner_checkpoint=None
    )
    found = overdue(offsets, checkpoint_ms=0)
    assert found is not None
    # All is dirty: the first segment, once a record is behind it, for which the second's end is
    # the latest moment.
    assert found.due_ms == NOW_MS - 8 * DAY_MS
