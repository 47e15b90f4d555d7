"""Whether a compacted log is due, and if not, when it is: a pure function over `plan_cleanable`.

The moment holds for as long as nothing is appended. Time only adds to the dirty section, to the
delay that max.compaction.lag.ms limits and to what is removable, so once a log is due it stays due,
and the first moment is found by trying those at which something changes.

Source: LogCleanerManager.grabFilthiestCompactedLog; KIP-58, KIP-354.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from cordwood.cleanup.rules.cleanable import Cleanable, clean_segments, plan_cleanable
from cordwood.cleanup.rules.due import due_clean_ms
from cordwood.cleanup.rules.log_view import LogView
from cordwood.cleanup.rules.moments import NEVER
from cordwood.cleanup.rules.removals import removal_rules
from cordwood.configs.value import LONG_MAX


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
    due_ms = _first_ms(view, cleanable, now_ms, lambda found: found.blocker is None)
    return CompactionForecast(cleanable=cleanable, due_ms=due_ms)


def covered_ms(view: LogView, forecast: CompactionForecast, offset: int) -> int | None:
    """The first moment (ms) at which a compaction that is due reaches beyond `offset`.

    The next compaction may end before it, or be one of due segments alone. Then only
    max.compaction.lag.ms says when the one after that comes, at the latest. None if nothing does.
    """
    if forecast.due_ms is None:
        return None
    due_ms = _first_ms(view, forecast.cleanable, forecast.due_ms, _reaches_dirty_records)
    if due_ms is None:
        return None
    reached = plan_cleanable(view, now_ms=due_ms)
    if offset < reached.first_uncleanable:
        return due_ms
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


def _reaches_dirty_records(found: Cleanable) -> bool:
    return found.blocker is None and not found.due


def _first_ms(
    view: LogView, cleanable: Cleanable, from_ms: int, test: Callable[[Cleanable], bool]
) -> int | None:
    """The first moment from `from_ms` on at which a plan passes a test; None if none does."""
    later = {each for each in _moments(view, cleanable) if each > from_ms}
    moments = [from_ms, *sorted(later)]

    def passes(moment: int) -> bool:
        return test(plan_cleanable(view, now_ms=moment))

    found = bisect_left(moments, True, key=passes)
    return moments[found] if found < len(moments) else None


def _moments(view: LogView, cleanable: Cleanable) -> list[int]:
    """The moments at which lags of dirty segments end, or parts of clean ones become removable."""
    config = view.config
    dirty = view.values(cleanable.first_dirty, view.active.base_offset)
    clean = clean_segments(view, cleanable.first_dirty)
    found = [due_clean_ms(each, config, view.settled_ms) for each in clean]
    if removal_rules(config):
        found += [each.due.expiry_ms for each in dirty]
    found = [each for each in found if each != NEVER]
    if config.min_compaction_lag_ms > 0:
        found += [each.largest_timestamp + config.min_compaction_lag_ms for each in dirty]
    if config.max_compaction_lag_ms == LONG_MAX:
        return found
    first = [each.first_batch_timestamp for each in dirty if each.first_batch_timestamp > 0]
    if first:
        found.append(min(first) + config.max_compaction_lag_ms + 1)
    return found
