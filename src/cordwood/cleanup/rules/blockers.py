"""Why a segment stays or a log is not compacted: what the planners found in the way, as values."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from cordwood.model.hold import held_by


class Code(enum.StrEnum):
    """Codes of obstacles. The values are part of the JSON that commands print."""

    HOLD = "hold"
    # of retention
    POLICY = "policy"
    NO_LIMIT = "no-limit"
    HIGH_WATERMARK = "high-watermark"
    LOG_START = "log-start-offset"
    SIZE = "retention.bytes"
    TIME = "retention.ms"
    FUTURE_TIMESTAMP = "future-timestamp"
    OLDER_SEGMENT = "older-segment"
    GROUP_GUARD = "group-guard"
    EMPTY = "empty-segment"
    # of compaction
    ACTIVE_SEGMENT = "active-segment"
    LAST_STABLE_OFFSET = "last-stable-offset"
    MIN_LAG = "min.compaction.lag.ms"
    DIRTY_RATIO = "min.cleanable.dirty.ratio"
    NOTHING_DIRTY = "nothing-dirty"
    DELETE_HORIZON = "delete-horizon"
    # of the cleaner
    UNCLEANABLE = "uncleanable"
    PAUSED = "paused"
    THROTTLED = "throttled"
    CLEANER_OFF = "cleaner-off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocker:
    """One thing in the way.

    `setting` is the topic or broker setting that says so, `offset` the offset from which on it
    counts, and `until_ms` the first moment (ms) at which time alone has removed it; each is None
    where there is none.
    """

    code: Code
    text: str
    setting: str | None = None
    offset: int | None = None
    until_ms: int | None = None


def hold_blocker(ids: Iterable[str]) -> Blocker:
    """Legal holds, by their ids: nothing is removed before all are released."""
    return Blocker(code=Code.HOLD, text=held_by(ids))


def due_blocker(due_ms: int, now_ms: int) -> Blocker:
    """A clean segment waits until something of it is removable, from `due_ms` on."""
    wait_ms = due_ms - now_ms
    when = f"is removable in {wait_ms} ms" if wait_ms > 0 else "is removable"
    text = f"it has been compacted; a record of it {when}, and the next check cleans it then"
    return Blocker(code=Code.DELETE_HORIZON, until_ms=due_ms, text=text)
