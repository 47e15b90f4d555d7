"""Whether a compacted log is cleaned now, and up to which offset: a pure function.

Source: org.apache.kafka.storage.internals.log.LogCleanerManager (grabFilthiestCompactedLog,
cleanableOffsets, maxCompactionDelay), LogToClean; KIP-58, KIP-354.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cordwood.cleanup.rules.blockers import Blocker, Code, hold_blocker
from cordwood.cleanup.rules.due import DueRule, due_clean_ms
from cordwood.cleanup.rules.log_view import CleanedSegment, LogView
from cordwood.cleanup.rules.removals import removal_rules
from cordwood.cleanup.rules.versions import VersionRule


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The section of a log that could be cleaned, and whether it is cleaned.

    The dirty section is [first_dirty, first_uncleanable). `blockers` are the reasons for its upper
    bound, `blocker` is why nothing is cleaned, None if something is.
    `reset_checkpoint` is set if the checkpoint was invalid and is rewritten in any case.

    `due` are the base offsets of the clean segments in which something has become removable, if
    the log is cleaned for them alone. Then no dirty record is looked at, and the checkpoint stays.
    Where records have versions it is empty, as the whole log is compared then. `due_bytes` is
    their size.
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
    due: tuple[int, ...] = ()
    due_bytes: int = 0

    @property
    def bytes_to_read(self) -> int:
        """Bytes of the segments that are read, without those that are read for transactions."""
        return self.due_bytes if self.due else self.clean_bytes + self.cleanable_bytes

    @property
    def cleaned_to(self) -> int:
        """The first offset that is not clean after the cleaning."""
        return self.first_dirty if self.due else self.first_uncleanable

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
    needed = cleanable_bytes > 0 and (
        delay_ms > 0 or _has_expired(view, first_dirty, boundary, now_ms)
    )
    blocker = None
    due: list[CleanedSegment] = []
    is_dirty = cleanable_bytes > 0 and (
        needed or force or ratio > view.config.min_cleanable_dirty_ratio
    )
    if not is_dirty and not view.holds:
        due = _due_segments(view, first_dirty, now_ms)
    if view.holds:
        blocker = hold_blocker(view.holds)
    elif is_dirty or due:
        pass
    elif not cleanable_bytes:
        blocker = blockers[0]
        if boundary <= first_dirty and first_dirty >= view.active.base_offset:
            text = "all but the active segment is clean"
            blocker = Blocker(code=Code.NOTHING_DIRTY, text=text)
    else:
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
        due=tuple(s.base_offset for s in due) if VersionRule.of(view.config) is None else (),
        due_bytes=_size(due),
    )


def due_end(view: LogView, first_dirty: int) -> int:
    """The offset, exclusive, up to which segments are cleaned when something in them is due.

    It is the log start where no setting asks for that. What reaches beyond the last stable offset
    has to stay as it is.
    """
    if DueRule.of(view.config) is None:
        return view.log_start_offset
    return min(first_dirty, view.last_stable_offset, view.active.base_offset)


def clean_segments(view: LogView, first_dirty: int) -> Iterator[CleanedSegment]:
    """The segments below `due_end`, without those that retention removes below the log start."""
    end = due_end(view, first_dirty)
    for number, segment in enumerate(view.segments[:-1]):
        if view.next_base(number) > end:
            return
        if view.next_base(number) > view.log_start_offset:
            yield segment


def _due_segments(view: LogView, first_dirty: int, now_ms: int) -> list[CleanedSegment]:
    """The clean segments in which something has become removable by `now_ms`."""
    return [
        segment
        for segment in clean_segments(view, first_dirty)
        if due_clean_ms(segment, view.config, view.settled_ms) <= now_ms
    ]


def _has_expired(view: LogView, first_dirty: int, boundary: int, now_ms: int) -> bool:
    """Whether a rule removes a record of the cleanable segments whatever its key."""
    if not removal_rules(view.config):
        return False
    return any(each.due.expiry_ms <= now_ms for each in view.values(first_dirty, boundary))


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
    """The ms by which max.compaction.lag.ms is exceeded."""
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
