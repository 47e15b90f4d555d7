"""A log view with a segment a day, for planners."""

from __future__ import annotations

from typing import Final

from cordwood.cleanup.rules.log_view import LogView, SegmentView
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from support.log_builder import NOW_MS

_DAY_MS: Final = 86_400_000
#: The bytes of a segment.
DAILY: Final = 1000


def aged_view(config: LogConfig, *, days: int = 4) -> LogView:
    """A segment of 1,000 bytes and ten records a day; the last one, of today, is active."""
    segments = tuple(
        SegmentView(
            base_offset=10 * number,
            size_bytes=DAILY,
            index_bytes=0,
            time_index_bytes=0,
            largest_record_timestamp=NOW_MS - (days - 1 - number) * _DAY_MS,
            first_batch_timestamp=NOW_MS - (days - number) * _DAY_MS + 1,
            modified_ms=NOW_MS,
        )
        for number in range(days)
    )
    return LogView(
        topic_partition=TopicPartition("t", 0),
        segments=segments,
        log_start_offset=0,
        log_end_offset=10 * days,
        high_watermark=10 * days,
        last_stable_offset=10 * days,
        cleaner_checkpoint=None,
        config=config,
    )
