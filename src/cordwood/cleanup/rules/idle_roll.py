"""Whether the active segment is rolled although no record arrives: pure functions.

Kafka rolls a segment that is older than segment.ms only when the next record arrives. Where none
does, the last records of a log are never compacted, and go together, when the newest has expired.
With cordwood.segment.roll.idle each check of retention rolls such a segment.

With cordwood.record.ttl.header, or another rule that removes records whatever their keys, the
cleaner rolls an active segment with such a record, so that it can be compacted.
"""

from __future__ import annotations

from typing import Final

from cordwood.cleanup.rules.log_view import RetainedLog, RetainedSegment
from cordwood.cleanup.rules.removals import removal_rules
from cordwood.cleanup.rules.retention import APPEND_TIME
from cordwood.configs.log_config import LogConfig
from cordwood.configs.value import LONG_MAX

ROLL_IDLE: Final = "cordwood.segment.roll.idle"


def should_roll_idle(
    log: RetainedLog, active: RetainedSegment, *, first_batch_timestamp: int, now_ms: int
) -> bool:
    """Whether the active segment of `log` is rolled at `now_ms` without a record.

    Its age is that of its first batch, as for an append; where that has no timestamp, that of the
    last append. A log with records at or above its high watermark is left alone, and one with a
    legal hold.

    Args:
        log: that has the segment.
        active: its active segment.
        first_batch_timestamp: of the segment in ms; negative or 2^63 - 1 if there is none.
        now_ms: the time.

    Source: LogSegment.shouldRoll, LogSegment.timeWaitedForRoll.
    """
    config = log.config
    if not config.cordwood_segment_roll_idle or log.holds or not active.size_bytes:
        return False
    if log.high_watermark < log.log_end_offset:
        return False
    return now_ms >= idle_from_ms(active, config, first_batch_timestamp=first_batch_timestamp)


def idle_from_ms(active: RetainedSegment, config: LogConfig, *, first_batch_timestamp: int) -> int:
    """The first moment (ms) at which an active segment is old enough to be rolled."""
    return _since_ms(active, config, first_batch_timestamp) + config.segment_ms_max + 1


def should_roll_expired(
    log: RetainedLog,
    active: RetainedSegment,
    *,
    last_stable_offset: int,
    expiry_ms: int,
    now_ms: int,
) -> bool:
    """Whether the active segment of `log` is rolled at `now_ms` for a record that a rule removes.

    A log with a legal hold is left alone, and a segment that could not be compacted yet, since an
    open transaction, or a record above the high watermark, is at its beginning.

    Args:
        log: that has the segment.
        active: its active segment.
        last_stable_offset: of the log.
        expiry_ms: when a rule removes the first record of the segment.
        now_ms: the time.
    """
    config = log.config
    if not config.compact or not removal_rules(config) or log.holds:
        return False
    return expiry_ms <= now_ms and last_stable_offset > active.base_offset


def _since_ms(active: RetainedSegment, config: LogConfig, first_batch_timestamp: int) -> int:
    if not 0 <= first_batch_timestamp < LONG_MAX:
        return active.appended_ms
    if config.cordwood_timestamp_future_policy == APPEND_TIME:
        return min(first_batch_timestamp, active.appended_ms)
    return first_batch_timestamp
