"""Whether a compacted log is due, and if not, when it is: a pure function over `plan_cleanable`.

The moment holds for as long as nothing is appended. Time only adds to the dirty section and to the
delay that max.compaction.lag.ms limits, so once a log is due it stays due, and the first moment is
found by trying those at which something changes.

Source: LogCleanerManager.grabFilthiestCompactedLog; KIP-58, KIP-354.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from cordwood.cleanup.cleanable import Cleanable, plan_cleanable
from cordwood.cleanup.log_view import LogView
from cordwood.model.config_values import LONG_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionForecast:
    """The dirty section of a log now, and when it is compacted.

    `due_ms` is the first moment (ms) at which the cleaner takes the log, `now_ms` where that is
    now; None where no moment is.
    """

    cleanable: Cleanable
    due_ms: int | None


def compaction_forecast(view: LogView, *, now_ms: int) -> CompactionForecast | None:
    """The forecast of a compacted log; None where its policy has no `compact`."""
    if not view.config.compact:
        return None
    cleanable = plan_cleanable(view, now_ms=now_ms)
    due_ms = now_ms if cleanable.blocker is None else _due_ms(view, cleanable, now_ms)
    return CompactionForecast(cleanable=cleanable, due_ms=due_ms)


def covered_ms(view: LogView, forecast: CompactionForecast, offset: int) -> int | None:
    """The first moment (ms) at which a compaction that is due reaches beyond `offset`.

    The next compaction may end before it. Then only max.compaction.lag.ms says when the one after
    that comes, at the latest. None if nothing does.
    """
    if forecast.due_ms is None:
        return None
    reached = plan_cleanable(view, now_ms=forecast.due_ms)
    if offset < reached.first_uncleanable:
        return forecast.due_ms
    config = view.config
    limit = view.floor(min(view.active.base_offset, view.last_stable_offset)).base_offset
    if offset >= limit or config.max_compaction_lag_ms == LONG_MAX:
        return None
    up_to = view.values(reached.first_dirty, offset + 1)
    first_ms = view.floor(offset).first_batch_timestamp
    if first_ms <= 0 or not up_to:
        return None
    lags_end_ms = max(each.largest_timestamp for each in up_to) + config.min_compaction_lag_ms
    return max(first_ms + config.max_compaction_lag_ms + 1, lags_end_ms)


def _due_ms(view: LogView, cleanable: Cleanable, now_ms: int) -> int | None:
    moments = sorted({each for each in _moments(view, cleanable) if each > now_ms})
    found = bisect_left(moments, True, key=lambda moment: _is_due(view, moment))
    return moments[found] if found < len(moments) else None


def _is_due(view: LogView, now_ms: int) -> bool:
    return plan_cleanable(view, now_ms=now_ms).blocker is None


def _moments(view: LogView, cleanable: Cleanable) -> list[int]:
    """When a lag of a dirty segment ends."""
    config = view.config
    dirty = view.values(cleanable.first_dirty, view.active.base_offset)
    found = []
    if config.min_compaction_lag_ms > 0:
        found += [each.largest_timestamp + config.min_compaction_lag_ms for each in dirty]
    if config.max_compaction_lag_ms == LONG_MAX:
        return found
    first = [each.first_batch_timestamp for each in dirty if each.first_batch_timestamp > 0]
    if first:
        found.append(min(first) + config.max_compaction_lag_ms + 1)
    return found
