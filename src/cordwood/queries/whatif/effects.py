"""The effect of a changed setting on one log: pure functions of a view, its settings and the time.

Where no compaction is due, what a cleaning would do follows from the view alone: `settled` gives
it. Where one is due, records have to be read, by `compared_cleanings`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Final

from cordwood.cleanup.plan.check_plan import DAY_MS, CheckPlan, plan_check_alone
from cordwood.cleanup.plan.cleaner_settings import CleanerSettings
from cordwood.cleanup.plan.view_after import empty_segment, with_segments
from cordwood.cleanup.rules.cleanable import plan_cleanable
from cordwood.cleanup.rules.log_view import CleanedSegment, LogView, SegmentView
from cordwood.configs.log_config import LogConfig

_HISTORY_MS_MIN: Final = 3_600_000
_HISTORIES_AHEAD_MAX: Final = 100
#: A slot of Kafka's offset map: the MD5 hash of a key, and an offset.
_KAFKA_SLOT_BYTES: Final = 24
# What a cleaning takes, of measurements on two cores (README.md): the start of Python, Spark and
# its workers; bytes a second and core of a plain log, and of one compressed with zstd.
_START_S: Final = 2.0
_PLAIN_BYTES_PER_S: Final = 680e6
_ZSTD_BYTES_PER_S: Final = 80e6
# A table of keys has 32 bytes a slot and is at most half full; a process takes this without it.
_SLOT_BYTES: Final = 32
_PROCESS_BYTES: Final = 220 << 20
#: A forecast appends at most so many segments a day: larger ones where the log's would be more.
_SEGMENTS_A_DAY_MAX: Final = 500


class How(StrEnum):
    """Method by which an outcome is known.

    `planned`: from names, sizes and indexes. `measured`: from a cleaning that wrote nothing.
    `estimated`: retention is planned, and the compaction estimated from a sample.
    `retention`: what retention removes is planned; what the compaction that is due discards on top
    of that is not known.
    """

    PLANNED = "planned"
    MEASURED = "measured"
    ESTIMATED = "estimated"
    RETENTION = "retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of `cordwood clean`, beside the number of passes of Kafka's own cleaner over the log.

    The time is between that of a plain log and that of one compressed with zstd, at the rates of
    README.md. `memory_bytes` is a process and its table of keys, of one task. `kafka_passes` is how
    many cleanings Kafka needs at least for as many keys, with the offset map of one thread.
    """

    bytes_read: int
    keys: int
    seconds_least: float
    seconds_most: float
    memory_bytes: int
    kafka_passes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A log after a cleaning, and what went.

    `records_discarded` are those that a compaction discards, `tombstones_discarded` among them,
    each the last record of a key. `offsets_gone` is by how much the log start offset moves: in a
    log that was never compacted, as many records. `keys` is how many keys the dirty section had,
    None where nobody counted. `bytes_read` is what a compaction reads, 0 where none is due.
    `bytes_next_24h` is what retention removes in the next 24 hours on top, `cost` that of the
    compaction, None where none is due, and `bytes_after_days` the size at the end of each of the
    next days, None where it cannot be foreseen. `bytes_error` is by how much `bytes` and
    `bytes_freed` may be wrong, in 95 of 100 cases, where they are estimated.
    """

    how: How
    segments: int
    bytes: int
    bytes_freed: int
    segments_gone: int
    records_discarded: int
    tombstones_discarded: int
    offsets_gone: int
    log_start_offset: int
    keys: int | None = None
    bytes_read: int = 0
    bytes_error: int = 0
    bytes_next_24h: int = 0
    cost: Cost | None = None
    bytes_after_days: Sequence[int] | None = None


def settled(view: LogView, check: CheckPlan, *, now_ms: int) -> Outcome | None:
    """The outcome of a cleaning at `now_ms` if it is known without reading records, else None.

    Args:
        view: the log.
        check: what the check of retention does to it.
        now_ms: the time.
    """
    if is_compaction_due(check.after, now_ms=now_ms):
        return None
    return _outcome(view, check.after)


def retention_outcome(view: LogView, check: CheckPlan, *, now_ms: int) -> Outcome:
    """The outcome of retention at `now_ms`, whether or not a compaction is due; as `settled`.

    A compaction is due if it is before retention, or after it: a running cleaner may compact a log
    first.
    """
    after = check.after
    if not any(is_compaction_due(each, now_ms=now_ms) for each in (view, check.before, after)):
        return _outcome(view, after)
    bytes_read = bytes_to_read(check, now_ms=now_ms)
    return replace(_outcome(view, after), how=How.RETENTION, bytes_read=bytes_read)


def is_compaction_due(view: LogView, *, now_ms: int) -> bool:
    """Whether a cleaning at `now_ms` compacts the log."""
    return view.config.compact and plan_cleanable(view, now_ms=now_ms).reason is None


def _outcome(view: LogView, after: LogView) -> Outcome:
    return Outcome(
        how=How.PLANNED,
        segments=len(after.segments),
        bytes=after.size_bytes,
        bytes_freed=view.size_bytes - after.size_bytes,
        segments_gone=len(view.segments) - len(after.segments),
        records_discarded=0,
        tombstones_discarded=0,
        offsets_gone=after.log_start_offset - view.log_start_offset,
        log_start_offset=after.log_start_offset,
    )


def bytes_to_read(check: CheckPlan, *, now_ms: int) -> int:
    """The number of bytes that the due compaction reads, after retention."""
    return plan_cleanable(check.after, now_ms=now_ms).bytes_to_read


# ---- settings


def changed_settings(now: LogConfig, then: LogConfig) -> dict[str, tuple[str, str]]:
    """The settings that differ, by Kafka's name, each with both values."""
    found = {}
    for each in fields(LogConfig):
        values = getattr(now, each.name), getattr(then, each.name)
        if values[0] != values[1]:
            found[each.name.replace("_", ".")] = _text(values[0]), _text(values[1])
    return found


def _text(value: object) -> str:
    if isinstance(value, frozenset | tuple | list):
        return ",".join(sorted(map(str, value)))
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---- what it takes


def cost_of(bytes_read: int, keys: int, *, cores: int, cleaner: CleanerSettings) -> Cost:
    """The cost of a compaction that reads so many bytes, with so many keys.

    Args:
        bytes_read: of clean and dirty section.
        keys: of the dirty section, or an upper bound.
        cores: how many a cleaning uses.
        cleaner: of the broker, for its offset map.
    """
    slots = 1 << max(12, (2 * keys - 1).bit_length()) if keys else 0
    return Cost(
        bytes_read=bytes_read,
        keys=keys,
        seconds_least=round(_START_S + bytes_read / (_PLAIN_BYTES_PER_S * cores), 1),
        seconds_most=round(_START_S + bytes_read / (_ZSTD_BYTES_PER_S * cores), 1),
        memory_bytes=_PROCESS_BYTES + _SLOT_BYTES * slots,
        kafka_passes=kafka_passes(keys, cleaner),
    )


def kafka_passes(keys: int, cleaner: CleanerSettings) -> int:
    """The least number of cleanings that Kafka's cleaner needs for so many keys.

    Source: org.apache.kafka.storage.internals.log.SkimpyOffsetMap, Cleaner.buildOffsetMap.
    """
    return math.ceil(keys / max(1, kafka_keys_a_pass(cleaner)))


def kafka_keys_a_pass(cleaner: CleanerSettings) -> int:
    """The number of keys that the offset map of one thread of Kafka's cleaner holds.

    Source: org.apache.kafka.storage.internals.log.SkimpyOffsetMap, LogCleaner.
    """
    memory = min(cleaner.dedupe_buffer_size // max(1, cleaner.threads), (1 << 31) - 1)
    return int(memory // _KAFKA_SLOT_BYTES * cleaner.io_buffer_load_factor)


# ---- the next days


def forecast(view: LogView, *, now_ms: int, days: int) -> list[int] | None:
    """The bytes of a log at the end of each of the next days, if it grows as it has grown.

    The rate is that of the log's own history, `append_rate`; limits that logs share are left
    out, as they depend on how the others grow. None for a log that is compacted, that says nothing
    about time, or whose history is shorter than an hour or a hundredth of the time ahead.
    """
    rate = append_rate(view)
    if view.config.compact or rate is None:
        return None
    if history_ms(view) < max(_HISTORY_MS_MIN, days * DAY_MS // _HISTORIES_AHEAD_MAX):
        return None
    log, sizes = view, []
    for day in range(1, days + 1):
        log = _with_a_day(log, rate, now_ms + (day - 1) * DAY_MS)
        log = plan_check_alone(log, now_ms=now_ms + day * DAY_MS).after
        sizes.append(log.size_bytes)
    return sizes


def append_rate(view: LogView) -> float | None:
    """Bytes per ms by the timestamps of segments; None where they say nothing.

    The first segment is where the time begins, so its bytes do not count.
    """
    span_ms = history_ms(view)
    if span_ms <= 0:
        return None
    return sum(segment.size_bytes for segment in _timed(view)[1:]) / span_ms


def history_ms(view: LogView) -> int:
    """The time that `append_rate` is a mean of; 0 or less where segments say nothing."""
    timed = _timed(view)
    newest = max((segment.largest_record_timestamp for segment in timed[1:]), default=-1)
    return newest - timed[0].largest_record_timestamp if timed else 0


def _timed(view: LogView) -> list[CleanedSegment]:
    return [segment for segment in view.segments if segment.largest_record_timestamp >= 0]


def _with_a_day(view: LogView, rate: float, start_ms: int) -> LogView:
    """The log with what is appended in a day, in segments of the size and span that it rolls at."""
    config, day_bytes = view.config, rate * DAY_MS
    segment_bytes = min(config.segment_bytes, int(rate * config.segment_ms))
    segment_bytes = max(1, segment_bytes, int(day_bytes / _SEGMENTS_A_DAY_MAX))
    segments: list[CleanedSegment] = list(view.segments)
    end, left = view.log_end_offset, int(day_bytes)
    while left > 0:
        active = segments[-1]
        room = segment_bytes - active.size_bytes
        if room <= 0:
            end += 1
            segments.append(empty_segment(end, now_ms=start_ms))
            continue
        taken = min(room, left)
        left -= taken
        moment_ms = start_ms + int((day_bytes - left) / rate)
        segments[-1] = _appended(active, taken, moment_ms)
    end += 1
    grown = with_segments(view, tuple(segments))
    return replace(grown, log_end_offset=end, high_watermark=end, last_stable_offset=end)


def _appended(segment: CleanedSegment, size_bytes: int, moment_ms: int) -> SegmentView:
    return SegmentView(
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes + size_bytes,
        index_bytes=0,
        time_index_bytes=0,
        largest_record_timestamp=max(segment.largest_record_timestamp, moment_ms),
        first_batch_timestamp=-1,
        modified_ms=moment_ms,
    )


# ---- what groups have not read


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Records of a partition that a consumer group has not read and would not find any more."""

    group: str
    partition: str
    committed: int
    log_start_offset: int
    lost: int


def unread(
    committed: Mapping[tuple[str, str], int], starts: Mapping[str, tuple[int, int]]
) -> list[Unread]:
    """Ranges of offsets that groups would lose: from the committed offset to the new log start.

    Args:
        committed: offsets by (group, partition).
        starts: by partition, the log start offset now and after the cleaning.
    """
    found = []
    for (group, partition), offset in sorted(committed.items()):
        if partition not in starts:
            continue
        before, after = starts[partition]
        lost = after - max(offset, before)
        if lost > 0:
            found.append(
                Unread(
                    group=group,
                    partition=partition,
                    committed=offset,
                    log_start_offset=after,
                    lost=lost,
                )
            )
    return found
