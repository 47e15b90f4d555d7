"""Finds when retention removes each segment, and why it stays till then: a pure function.

The plan of a check says what goes now; the moments after that follow from the same functions that
the planner compares with the time. They hold for as long as nothing is appended.

Source: UnifiedLog.deleteOldSegments and the functions it calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.cleanup.rules.blockers import Blocker, Code, hold_blocker
from cordwood.cleanup.rules.group_guard import GROUPS, GroupGuard
from cordwood.cleanup.rules.log_view import CleanedSegment, LogView
from cordwood.cleanup.rules.retention import (
    RetentionPlan,
    age_from_ms,
    expires_ms,
    high_watermark_blocker,
    size_blocker,
    time_blocker,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFate:
    """Fate of one segment under retention.

    `rule` and `text` are those of `Expired` where it goes now. `goes_ms` is the first moment (ms)
    at which a check removes it, None where no moment does; it is `now_ms` where it goes now.
    """

    segment: CleanedSegment
    next_base: int
    rule: str | None = None
    text: str | None = None
    blockers: tuple[Blocker, ...] = ()
    goes_ms: int | None = None

    @property
    def goes_now(self) -> bool:
        """Whether the next check removes it."""
        return self.rule is not None


def segment_fates(view: LogView, plan: RetentionPlan, *, now_ms: int) -> list[SegmentFate]:
    """The fate of each segment under the plan of a check at `now_ms`, oldest first."""
    fates = [
        SegmentFate(
            segment=segment,
            next_base=view.next_base(number),
            rule=expired.rule,
            text=expired.text,
            goes_ms=now_ms,
        )
        for number, (segment, expired) in enumerate(zip(view.segments, plan.expired, strict=False))
    ]
    return fates + _Kept(view, now_ms).fates(len(fates))


class _Kept:
    """The segments that stay at one moment."""

    def __init__(self, view: LogView, now_ms: int) -> None:
        self._view = view
        self._now_ms = now_ms
        self._retention_ms = view.config.retention_ms
        self._retention_bytes = view.config.retention_bytes
        self._guard = GroupGuard(view.config, view.consumed, view.high_watermark)

    def fates(self, first: int) -> list[SegmentFate]:
        """The fates of the segments from index `first` on."""
        view = self._view
        latest_ms, latest_base = -1, -1
        goes_ms: int | None = -1
        left = sum(segment.size_bytes for segment in view.segments[first:])
        found = []
        for number in range(first, len(view.segments)):
            segment = view.segments[number]
            left -= segment.size_bytes
            if self._has_time_limit:
                own_ms = expires_ms(segment, view.config)
                if own_ms > latest_ms:
                    latest_ms, latest_base = own_ms, segment.base_offset
            blockers = self._blockers(number, left, latest_ms, latest_base)
            goes_ms = _later(goes_ms, self._goes_ms(number, left, latest_ms))
            is_waiting = all(each.code not in _NO_TIME for each in blockers)
            found.append(
                SegmentFate(
                    segment=segment,
                    next_base=view.next_base(number),
                    blockers=tuple(blockers),
                    goes_ms=goes_ms if is_waiting else None,
                )
            )
        return found

    def _goes_ms(self, number: int, left: int, latest_ms: int) -> int | None:
        """The earliest moment for the segment itself; the arguments are those of `_blockers`.

        Segments before it may take longer. None where no moment is known.
        """
        goes_ms = latest_ms if self._has_time_limit else None
        if self._is_too_large(left):
            goes_ms = self._now_ms
        waits = self._waits(number, left)
        return goes_ms if waits is None else _later(goes_ms, waits.until_ms)

    def _is_too_large(self, left: int) -> bool:
        """Whether the size rule removes a segment that leaves so many bytes."""
        return self._view.config.delete and 0 <= self._retention_bytes <= left

    def _waits(self, number: int, left: int) -> Blocker | None:
        """The group that a segment waits for."""
        view, segment = self._view, self._view.segments[number]
        from_ms = age_from_ms(segment, view.config)
        return self._guard.blocker(view.next_base(number), from_ms, left, self._now_ms)

    @property
    def _has_time_limit(self) -> bool:
        return self._view.config.delete and self._retention_ms >= 0

    def _blockers(self, number: int, left: int, latest_ms: int, latest_base: int) -> list[Blocker]:
        """Reasons why a segment stays, the most important first.

        Args:
            number: of the segment.
            left: bytes of the segments behind it.
            latest_ms: when the last of the segments up to it expires.
            latest_base: the base offset of that one.
        """
        view, segment = self._view, self._view.segments[number]
        config = view.config
        if view.holds:
            return [hold_blocker(view.holds)]
        if view.high_watermark < view.next_base(number):
            return [high_watermark_blocker(view, view.next_base(number))]
        if segment is view.active and not segment.size_bytes:
            return [Blocker(code=Code.EMPTY, text="it is the active segment, and empty")]
        if not config.delete:
            policy = ",".join(sorted(config.cleanup_policy))
            text = f"cleanup.policy={policy}: retention removes no segments, only compaction does"
            return [Blocker(code=Code.POLICY, setting="cleanup.policy", text=text)]
        found = self._limits(segment, left, latest_ms, latest_base)
        waits = self._waits(number, left)
        if waits is not None:
            found.append(waits)
        if not found:
            text = "it would go, but segments go oldest first: one before it waits for a group"
            found.append(Blocker(code=Code.OLDER_SEGMENT, setting=GROUPS, text=text))
        return found

    def _limits(
        self, segment: CleanedSegment, left: int, latest_ms: int, latest_base: int
    ) -> list[Blocker]:
        """Why neither time nor size removes a segment; empty where one of them does."""
        found = []
        if self._has_time_limit:
            if latest_ms <= self._now_ms:
                return []
            found.append(self._time(segment, latest_ms, latest_base))
        if self._retention_bytes >= 0:
            if self._is_too_large(left):
                return []
            found.append(size_blocker(left, self._retention_bytes))
        if not found:
            text = "neither retention.ms nor retention.bytes limits this log"
            found.append(Blocker(code=Code.NO_LIMIT, setting="retention.ms", text=text))
        return found

    def _time(self, segment: CleanedSegment, latest_ms: int, latest_base: int) -> Blocker:
        if expires_ms(segment, self._view.config) <= self._now_ms:
            return Blocker(
                code=Code.OLDER_SEGMENT,
                setting="retention.ms",
                offset=latest_base,
                until_ms=latest_ms,
                text=f"it has expired, but segments go oldest first: the segment at {latest_base} "
                "has not",
            )
        return time_blocker(segment, self._view.config, self._now_ms)


def _later(one_ms: int | None, other_ms: int | None) -> int | None:
    """The later of two moments; None, for never, is the latest."""
    return None if one_ms is None or other_ms is None else max(one_ms, other_ms)


#: Where one of these is in the way, no moment is known at which the segment goes.
_NO_TIME: Sequence[Code] = (
    Code.HOLD,
    Code.POLICY,
    Code.NO_LIMIT,
    Code.HIGH_WATERMARK,
    Code.EMPTY,
)
