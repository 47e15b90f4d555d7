"""Whether a compacted log is cleaned now, and up to which offset: a pure function.

Source: org.apache.kafka.storage.internals.log.LogCleanerManager (grabFilthiestCompactedLog,
cleanableOffsets, maxCompactionDelay), LogToClean; KIP-58, KIP-354.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cordwood.cleanup.blockers import Blocker, Code, hold_blocker
from cordwood.cleanup.log_view import CleanedSegment, LogView


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The section of a log that could be cleaned, and whether it is cleaned.

    The dirty section is [first_dirty, first_uncleanable). `blockers` are the reasons for its upper
    bound, `blocker` is why nothing is cleaned, None if something is.
    `reset_checkpoint` is set if the checkpoint was invalid and is rewritten in any case.
    """

    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    ratio: float
    delay_ms: int
    blocker: Blocker | None
    reset_checkpoint: bool = False
    blockers: tuple[Blocker, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def reason(self) -> str | None:
        """Why nothing is cleaned, as a text; None if something is."""
        return None if self.blocker is None else self.blocker.text


def plan_cleanable(view: LogView, *, now_ms: int, force: bool = False) -> Cleanable:
    """The dirty section of a compacted log at `now_ms`, and whether Kafka would clean it.

    `force` overrules the dirty ratio, but no lag and no legal hold.
    """
    first_dirty, reset, warnings = _first_dirty(view)
    limit, blockers = _first_uncleanable(view, first_dirty, now_ms)
    # The boundary is snapped down to the base of the segment that holds it.
    boundary = view.floor(limit).base_offset
    clean_bytes = _size(view.values(-1, first_dirty))
    cleanable_bytes = _size(view.values(min(first_dirty, boundary), boundary))
    total = clean_bytes + cleanable_bytes
    ratio = cleanable_bytes / total if total else 0.0
    delay_ms = _compaction_delay_ms(view, first_dirty, now_ms)
    needed = delay_ms > 0 and cleanable_bytes > 0
    blocker = None
    if view.holds:
        blocker = hold_blocker(view.holds)
    elif not cleanable_bytes:
        blocker = blockers[0]
        if boundary <= first_dirty and first_dirty >= view.active.base_offset:
            text = "all but the active segment is clean"
            blocker = Blocker(code=Code.NOTHING_DIRTY, text=text)
    elif not needed and not force and not ratio > view.config.min_cleanable_dirty_ratio:
        blocker = Blocker(
            code=Code.DIRTY_RATIO,
            setting="min.cleanable.dirty.ratio",
            text=f"its dirty ratio {ratio:.4g} is not above min.cleanable.dirty.ratio "
            f"{view.config.min_cleanable_dirty_ratio:g}",
        )
    return Cleanable(
        first_dirty=first_dirty,
        first_uncleanable=boundary,
        clean_bytes=clean_bytes,
        cleanable_bytes=cleanable_bytes,
        ratio=ratio,
        delay_ms=delay_ms,
        blocker=blocker,
        reset_checkpoint=reset,
        blockers=tuple(blockers),
        warnings=tuple(warnings),
    )


def _first_dirty(view: LogView) -> tuple[int, bool, list[str]]:
    """(first dirty offset, the checkpoint must be rewritten, warnings)."""
    start = view.log_start_offset
    checkpoint = view.cleaner_checkpoint
    if checkpoint is None:
        return start, False, []
    if checkpoint < start:
        if view.config.delete:
            return start, True, []
        return (
            start,
            True,
            [
                f"Resetting first dirty offset of {view.topic_partition} to log start offset "
                f"{start} since the checkpointed offset {checkpoint} is invalid."
            ],
        )
    if checkpoint > view.log_end_offset:
        return (
            start,
            True,
            [
                f"The last checkpoint dirty offset for partition {view.topic_partition} is "
                f"{checkpoint}, which is larger than the log end offset {view.log_end_offset}. "
                f"Resetting to the log start offset {start}."
            ],
        )
    return checkpoint, False, []


def _first_uncleanable(view: LogView, first_dirty: int, now_ms: int) -> tuple[int, list[Blocker]]:
    """(the bound, exclusive, before it is snapped to a segment; what sets it, at least one)."""
    active = view.active.base_offset
    text = (
        f"records from {active} on are in the active segment"
        if first_dirty < active
        else "all dirty records are in the active segment"
    )
    limits = [(active, Blocker(code=Code.ACTIVE_SEGMENT, offset=active, text=text))]
    if view.last_stable_offset < active:
        blocker = Blocker(
            code=Code.LAST_STABLE_OFFSET,
            offset=view.last_stable_offset,
            text=f"the last stable offset is {view.last_stable_offset}: an open transaction, or "
            "the high watermark or recovery point, limits it",
        )
        limits.append((view.last_stable_offset, blocker))
    lag_ms = view.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in view.values(first_dirty, active):
            if segment.largest_timestamp > now_ms - lag_ms:
                blocker = Blocker(
                    code=Code.MIN_LAG,
                    setting="min.compaction.lag.ms",
                    offset=segment.base_offset,
                    until_ms=segment.largest_timestamp + lag_ms,
                    text=f"min.compaction.lag.ms: the segment at {segment.base_offset} holds "
                    f"records younger than {lag_ms} ms",
                )
                limits.append((segment.base_offset, blocker))
                break
    lowest = min(limit for limit, _ in limits)
    blockers = [blocker for limit, blocker in limits if limit == lowest]
    return max(first_dirty, lowest), blockers


def _compaction_delay_ms(view: LogView, first_dirty: int, now_ms: int) -> int:
    """By how long max.compaction.lag.ms is passed."""
    clean_until = now_ms - view.config.max_compaction_lag_ms
    if clean_until <= 0:  # a lag that never passes: no segment need be looked into
        return 0
    candidates = [
        segment.first_batch_timestamp
        for segment in view.values(first_dirty, view.active.base_offset)
        if segment.first_batch_timestamp > 0
    ]
    if not candidates:
        return 0
    return max(clean_until - min(candidates), 0)


def _size(segments: Sequence[CleanedSegment]) -> int:
    return sum(segment.size_bytes for segment in segments)
