"""Plans which segments are rewritten into one: a pure function of view and settings.

Source: org.apache.kafka.storage.internals.log.Cleaner.groupSegmentsBySize.
"""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.cleanup.rules.cleanable import Cleanable
from cordwood.cleanup.rules.log_view import CleanedSegment, LogView
from cordwood.cleanup.rules.versions import VersionRule

_RELATIVE_OFFSET_MAX = (1 << 31) - 1
_LEVEL_OF_4_4 = 31
"""The level of metadata.version 4.4-IV0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """One compaction of one log.

    From `first_dirty` on, keys are indexed: from the first dirty offset, or, where records have
    versions, from the log start, since a clean record may have a higher version than a dirty one.
    `groups` holds the base offsets of the segments of each group, ascending; `segments` those of
    all that are read. A batch that ends at `retained_end`, exclusive, keeps at least its header.
    `legacy_horizon_ms` is the horizon for tombstones of magic 0 and 1.
    """

    first_dirty: int
    first_uncleanable: int
    retained_end: int
    segments: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    legacy_horizon_ms: int


def plan_compaction(view: LogView, cleanable: Cleanable) -> CompactionPlan:
    """The groups of a compaction that covers the whole dirty section, or what is due alone."""
    end = cleanable.cleaned_to
    versions = VersionRule.of(view.config) is not None
    segments = [s for s in view.segments if s.base_offset < end]
    clean = [s for s in segments if s.base_offset < cleanable.first_dirty]
    groups = [[s.base_offset for s in group] for group in group_segments(view, segments, end)]
    if cleanable.due:
        groups = [[base] for base in cleanable.due]
        segments = _read_for(segments, cleanable.due)
    return CompactionPlan(
        first_dirty=view.log_start_offset if versions else cleanable.first_dirty,
        first_uncleanable=end,
        retained_end=_retained_end(view, end),
        segments=tuple(s.base_offset for s in segments),
        groups=tuple(tuple(group) for group in groups),
        legacy_horizon_ms=clean[-1].modified_ms - view.config.delete_retention_ms if clean else 0,
    )


def _retained_end(view: LogView, end: int) -> int:
    """The end of the batch whose header is kept so that offsets continue, exclusive.

    Kafka 4.3 keeps that of the last batch of the dirty section, 4.4 of the last one below the high
    watermark. A cluster may be of either until its level is one of 4.4.

    Source: org.apache.kafka.storage.internals.log.Cleaner.cleanInto (4.3.0, 4.4.0).
    """
    return view.high_watermark if view.metadata_version >= _LEVEL_OF_4_4 else end


def _read_for(segments: list[CleanedSegment], due: tuple[int, ...]) -> list[CleanedSegment]:
    """The segments that are read to rewrite those that are due.

    Markers and batches of transactions are judged by what the segments before hold.
    """
    found = [s for s in segments if s.base_offset in due]
    if any(s.due.has_transactions for s in found):
        return [s for s in segments if s.base_offset <= due[-1]]
    return found


def group_segments(
    view: LogView, segments: list[CleanedSegment], end: int
) -> list[list[CleanedSegment]]:
    """Consecutive segments, as many to a group as fit into one by size, indexes and offsets.

    A group of one is always allowed. Sizes are those before cleaning.

    Args:
        view: for its settings.
        segments: those of the compaction, ascending.
        end: the first uncleanable offset.
    """
    config = view.config
    groups: list[list[CleanedSegment]] = []
    size = index = time_index = 0
    for number, segment in enumerate(segments):
        follows = segments[number + 1].base_offset if number + 1 < len(segments) else end
        fits = (
            bool(groups)
            and size + segment.size_bytes <= config.segment_bytes
            and index + segment.index_bytes <= config.segment_index_bytes
            and time_index + segment.time_index_bytes <= config.segment_index_bytes
            and (
                segment.size_bytes == 0
                or follows - 1 - groups[-1][0].base_offset <= _RELATIVE_OFFSET_MAX
            )
        )
        if fits:
            groups[-1].append(segment)
            size += segment.size_bytes
            index += segment.index_bytes
            time_index += segment.time_index_bytes
        else:
            groups.append([segment])
            size, index, time_index = (
                segment.size_bytes,
                segment.index_bytes,
                segment.time_index_bytes,
            )
    return groups
