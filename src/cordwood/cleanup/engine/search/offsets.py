"""Sets of offsets as ascending ranges, first and last inclusive."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from cordwood.cleanup.plan.compaction_values import OffsetRanges


def ranges_of(offsets: Iterable[int]) -> OffsetRanges:
    """The ranges of some offsets, which may come in any order and several times."""
    return united([(offset, offset) for offset in offsets])


def united(ranges: Iterable[tuple[int, int]]) -> OffsetRanges:
    """The union of ranges, which may come in any order, touch and overlap."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(last, found[-1][1])
        else:
            found.append((first, last))
    return tuple(found)


def within(ranges: OffsetRanges, first: int, end: int) -> OffsetRanges:
    """The part of `ranges` in [first, end)."""
    at = bisect_left(ranges, first, key=lambda each: each[1])
    found = []
    for low, high in ranges[at:]:
        if low >= end:
            break
        found.append((max(low, first), min(high, end - 1)))
    return tuple(found)


def count_in(ranges: OffsetRanges) -> int:
    """The number of offsets in the ranges."""
    return sum(last - first + 1 for first, last in ranges)
