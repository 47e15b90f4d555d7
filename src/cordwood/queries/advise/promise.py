"""Settings that keep a promise about a log: how old its records get, how much space it takes.

**Age.** A record is appended when its segment's first batch is, or later. The segment takes batches
until one has a timestamp more than segment.ms after the first batch's, so its largest timestamp is
at most segment.ms after that; the first batch's is at most message.timestamp.after.max.ms ahead of
its append (CreateTime), or equal to it (LogAppendTime). Retention removes a segment at the first
check at which that is more than retention.ms ago: at most one log.retention.check.interval.ms
later. The files go file.delete.delay.ms after that. The sum is the largest age of a record, from
its append to its last byte on disk; no smaller number is a bound. Segments before it expire
earlier, so the order of deletion adds nothing. Every replica does the same with its own log.

A segment that waits for groups goes when it is older than cordwood.retention.groups.max.ms, if that
is more than retention.ms; without it there is no bound.

**Space.** A check leaves less than retention.bytes and one segment. Until the next check records
are appended, and what was removed stays for file.delete.delay.ms.

Source: LogSegment.shouldRoll, UnifiedLog.deleteRetentionMsBreachedSegments and
deleteRetentionSizeBreachedSegments, LogManager.cleanupLogs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cordwood.cleanup.rules.group_guard import GROUPS, MAX_BYTES, MAX_MS
from cordwood.cleanup.rules.log_view import LogView
from cordwood.configs.log_config import LogConfig
from cordwood.model.errors import ConfigError
from cordwood.queries.explain.log_facts import Delays

_LOG_APPEND_TIME: Final = "LogAppendTime"
#: The share of the age that a segment may take, where segment.ms has to be lowered.
_SEGMENTS_AN_AGE: Final = 8
_SEGMENTS_A_SIZE: Final = 4
_SEGMENT_BYTES_MIN: Final = 1 << 20
_HOUR_MS: Final = 3_600_000
#: A longer time that timestamps may be ahead is no limit: a hundred years.
_AHEAD_MS_MAX: Final = 876_600 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Summand:
    """One summand of a bound: the setting it comes from, and its value in ms or bytes."""

    setting: str
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A bound that settings keep.

    `bound` is the sum of `parts`, in ms or bytes; None where no settings of this log bound it,
    which `why` explains. `changes` are the topic settings to be set for the bound to hold.
    """

    bound: int | None
    parts: tuple[Summand, ...] = ()
    changes: tuple[tuple[str, int], ...] = ()
    why: str = ""

    @property
    def holds_now(self) -> bool:
        """Whether it holds without a change."""
        return self.bound is not None and not self.changes


def age_promise(config: LogConfig, delays: Delays) -> Promise:
    """The largest age of a record (ms), from its append to its last byte on disk."""
    if not config.delete:
        return Promise(
            bound=None, why="cleanup.policy has no delete: the newest value of a key stays"
        )
    if config.compact:
        return Promise(
            bound=None,
            why="compaction joins segments, and a joined segment is as young as its newest record: "
            "with cleanup.policy=compact,delete no setting bounds the age of a record",
        )
    if config.retention_ms < 0:
        return Promise(bound=None, why="retention.ms=-1: no record gets too old")
    if config.cordwood_retention_groups and config.cordwood_retention_groups_max_ms < 0:
        why = f"{GROUPS} without {MAX_MS}: what a group does not consume stays"
        return Promise(bound=None, why=why)
    if _takes_create_time(config) and config.message_timestamp_after_max_ms > _AHEAD_MS_MAX:
        why = (
            "message.timestamp.after.max.ms sets no limit: a record far ahead keeps its segment, "
            "and those behind it"
        )
        return Promise(bound=None, why=why)
    parts = (
        *_ahead(config),
        Summand(setting="segment.ms", value=config.segment_ms),
        _age_limit(config),
        Summand(setting="log.retention.check.interval.ms", value=delays.check_ms),
        *_removal(delays),
    )
    return Promise(bound=sum(each.value for each in parts), parts=parts)


def _removal(delays: Delays) -> tuple[Summand, ...]:
    """The parts of `Delays.removal_ms`."""
    if delays.removal_ms == delays.file_delete_ms:
        return (Summand(setting="file.delete.delay.ms", value=delays.file_delete_ms),)
    return (
        Summand(setting="cordwood.trash.ms", value=delays.trash_ms),
        Summand(setting="log.retention.check.interval.ms", value=delays.check_ms),
    )


def keep_age(config: LogConfig, delays: Delays, max_age_ms: int) -> Promise:
    """Settings under which no record gets older than `max_age_ms`: the loosest retention.ms.

    segment.ms is lowered, too, to an eighth of the age at the least, and
    message.timestamp.after.max.ms to its default of an hour; nothing is made looser. Where the log
    waits for groups, the wait gets as long as the promise allows.

    Raises:
        ConfigError: no retention.ms is low enough.
    """
    now = age_promise(config, delays)
    if now.bound is None and (config.compact or not config.delete):
        return now
    if now.bound is not None and now.bound <= max_age_ms:
        return now
    ahead_ms = min(config.message_timestamp_after_max_ms, _HOUR_MS)
    limited = replace(config, message_timestamp_after_max_ms=ahead_ms)
    fixed = delays.check_ms + delays.removal_ms + sum(each.value for each in _ahead(limited))
    left = max_age_ms - fixed
    if left < 2:
        raise ConfigError(
            f"no retention.ms keeps {max_age_ms} ms: the delays of the broker alone take {fixed} "
            "ms. Lower log.retention.check.interval.ms, file.delete.delay.ms, cordwood.trash.ms "
            "or, with CreateTime, message.timestamp.after.max.ms"
        )
    limit_ms = left - min(config.segment_ms, max(1, left // _SEGMENTS_AN_AGE))
    limited = replace(
        limited,
        retention_ms=_lowered(config.retention_ms, limit_ms),
        cordwood_retention_groups_max_ms=_wait_within(config, MAX_MS, limit_ms),
    )
    segment_ms = min(config.segment_ms, left - _age_limit(limited).value)
    changes = [
        ("segment.ms", config.segment_ms, segment_ms),
        ("retention.ms", config.retention_ms, limited.retention_ms),
        (
            MAX_MS,
            config.cordwood_retention_groups_max_ms,
            limited.cordwood_retention_groups_max_ms,
        ),
    ]
    if _takes_create_time(config):
        name = "message.timestamp.after.max.ms"
        changes.append((name, config.message_timestamp_after_max_ms, ahead_ms))
    kept = age_promise(replace(limited, segment_ms=segment_ms), delays)
    return Promise(bound=kept.bound, parts=kept.parts, changes=_changed(changes))


def size_promise(config: LogConfig, delays: Delays, bytes_a_second: float) -> Promise:
    """The most bytes of logs that a partition takes on disk at that rate of appends."""
    if not config.delete:
        return Promise(
            bound=None, why="cleanup.policy has no delete: retention.bytes has no effect"
        )
    if config.retention_bytes < 0:
        return Promise(bound=None, why="retention.bytes=-1: no size is too large")
    if config.cordwood_retention_groups and config.cordwood_retention_groups_max_bytes < 0:
        why = f"{GROUPS} without {MAX_BYTES}: what a group does not consume stays"
        return Promise(bound=None, why=why)
    waited_ms = delays.check_ms + delays.file_delete_ms
    parts = (
        _size_limit(config),
        Summand(setting="segment.bytes", value=config.segment_bytes),
        Summand(
            setting="appends until the files are gone",
            value=-(-int(bytes_a_second * waited_ms) // 1000),
        ),
    )
    return Promise(bound=sum(each.value for each in parts), parts=parts)


def keep_size(config: LogConfig, delays: Delays, bytes_a_second: float, max_bytes: int) -> Promise:
    """Settings under which a partition takes at most `max_bytes`: the loosest retention.bytes.

    Raises:
        ConfigError: no retention.bytes is low enough.
    """
    now = size_promise(config, delays, bytes_a_second)
    if not config.delete or (now.bound is not None and now.bound <= max_bytes):
        return now
    appended = -(-int(bytes_a_second * (delays.check_ms + delays.file_delete_ms)) // 1000)
    left = max_bytes - appended
    segment_bytes = min(config.segment_bytes, max(_SEGMENT_BYTES_MIN, left // _SEGMENTS_A_SIZE))
    if left < segment_bytes:
        raise ConfigError(
            f"no retention.bytes keeps {max_bytes} bytes: {appended} are appended until the files "
            f"of removed segments are gone, and a segment takes {segment_bytes}"
        )
    limit_bytes = left - segment_bytes
    after = replace(
        config,
        segment_bytes=segment_bytes,
        retention_bytes=_lowered(config.retention_bytes, limit_bytes),
        cordwood_retention_groups_max_bytes=_wait_within(config, MAX_BYTES, limit_bytes),
    )
    changes = [
        ("segment.bytes", config.segment_bytes, segment_bytes),
        ("retention.bytes", config.retention_bytes, after.retention_bytes),
        (
            MAX_BYTES,
            config.cordwood_retention_groups_max_bytes,
            after.cordwood_retention_groups_max_bytes,
        ),
    ]
    kept = size_promise(after, delays, bytes_a_second)
    return Promise(bound=kept.bound, parts=kept.parts, changes=_changed(changes))


def peak_bytes_a_second(view: LogView) -> float:
    """The highest rate of appends that the timestamps of a log's segments show; 0 if none does.

    It is the rate over the time in which one segment was filled.
    """
    peak = 0.0
    previous_ms: int | None = None
    for segment in view.segments:
        now_ms = segment.largest_record_timestamp
        if previous_ms is not None and now_ms > previous_ms:
            peak = max(peak, segment.size_bytes * 1000 / (now_ms - previous_ms))
        if now_ms >= 0:
            previous_ms = now_ms
    return peak


def disk_overhead(config: LogConfig) -> float | None:
    """The size of a compacted log, as a multiple of its newest values; None without limit."""
    ratio = config.min_cleanable_dirty_ratio
    return None if ratio >= 1 else 1 / (1 - ratio)


def _changed(changes: Sequence[tuple[str, int, int]]) -> tuple[tuple[str, int], ...]:
    """(setting, value) of each of (setting, value before, value after) that differs."""
    return tuple((name, after) for name, before, after in changes if before != after)


def _age_limit(config: LogConfig) -> Summand:
    """The age at which a segment goes at the latest, waiting for groups or not."""
    wait_ms = config.cordwood_retention_groups_max_ms
    if config.cordwood_retention_groups and wait_ms > config.retention_ms:
        return Summand(setting=MAX_MS, value=wait_ms)
    return Summand(setting="retention.ms", value=config.retention_ms)


def _size_limit(config: LogConfig) -> Summand:
    """The size from which on a segment goes at the latest, waiting for groups or not."""
    wait_bytes = config.cordwood_retention_groups_max_bytes
    if config.cordwood_retention_groups and wait_bytes > config.retention_bytes:
        return Summand(setting=MAX_BYTES, value=wait_bytes)
    return Summand(setting="retention.bytes", value=config.retention_bytes)


def _lowered(value: int, limit: int) -> int:
    """A limit that is at most `limit`; -1 is none."""
    return limit if value < 0 else min(value, limit)


def _wait_within(config: LogConfig, setting: str, limit: int) -> int:
    """The limit of time or size for a log that waits for groups; unchanged for others."""
    value: int = getattr(config, setting.replace(".", "_"))
    return _lowered(value, limit) if config.cordwood_retention_groups else value


def _takes_create_time(config: LogConfig) -> bool:
    return config.message_timestamp_type != _LOG_APPEND_TIME


def _ahead(config: LogConfig) -> tuple[Summand, ...]:
    if not _takes_create_time(config):
        return ()
    name = "message.timestamp.after.max.ms"
    return (Summand(setting=name, value=config.message_timestamp_after_max_ms),)
