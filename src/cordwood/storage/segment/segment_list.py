"""The segments of a log at one moment: never changed, but replaced whole by the next list.

A reader that holds a list sees the same segments to its end, whatever is rolled, deleted or
replaced meanwhile.

Source: org.apache.kafka.storage.internals.log.LogSegments.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cordwood.storage.segment.log_segment import LogSegment


class SegmentList:
    """Segments by base offset, ascending, no two with the same."""

    __slots__ = ("_bases", "_newest", "_segments")

    def __init__(self, segments: Iterable[LogSegment] = ()) -> None:
        """The segments by base offset; of several with one base offset, the last is used."""
        by_base = {segment.base_offset: segment for segment in segments}
        self._bases: tuple[int, ...] = tuple(sorted(by_base))
        self._segments: tuple[LogSegment, ...] = tuple([by_base[base] for base in self._bases])
        # For which state of the indexes, and of as many of the oldest segments as were asked so
        # far, without the active one: the largest timestamp of a segment and those before it.
        self._newest: tuple[int, list[int]] = (0, [])

    @classmethod
    def _of(cls, bases: tuple[int, ...], segments: tuple[LogSegment, ...]) -> SegmentList:
        made = cls()
        made._bases, made._segments = bases, segments
        return made

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self._segments)

    def __getitem__(self, number: int) -> LogSegment:
        return self._segments[number]

    def __repr__(self) -> str:
        return f"SegmentList({list(self._bases)})"

    def check_invariants(self) -> None:
        """Asserts that segments ascend, and that each keeps its own invariants."""
        bases = [segment.base_offset for segment in self._segments]
        assert tuple(bases) == self._bases, f"{bases} listed as {self._bases}"
        assert all(a < b for a, b in pairwise(bases)), f"segments do not ascend: {bases}"
        for segment in self._segments:
            segment.check_invariants()

    # ---- made from this one

    def with_added(self, *segments: LogSegment) -> SegmentList:
        """A copy with more segments; they replace those with the same base offset."""
        if len(segments) == 1 and self._bases and segments[0].base_offset > self._bases[-1]:
            # A roll, which is not to take longer the more segments there are.
            made = self._of((*self._bases, segments[0].base_offset), (*self._segments, *segments))
            made._newest = self._newest
            return made
        return SegmentList((*self._segments, *segments))

    def without(self, segments: Iterable[LogSegment]) -> SegmentList:
        """A copy without those very segments; another one with the same base offset stays."""
        gone = {id(segment) for segment in segments}
        kept = [segment for segment in self._segments if id(segment) not in gone]
        return self._of(tuple([segment.base_offset for segment in kept]), tuple(kept))

    # ---- looked up

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """The base offsets, ascending."""
        return self._bases

    @property
    def size_bytes(self) -> int:
        """The sum of all segments' logs."""
        return sum([segment.size_bytes for segment in self._segments])

    @property
    def first(self) -> LogSegment:
        """The oldest segment, of a list that is not empty."""
        return self._segments[0]

    @property
    def active(self) -> LogSegment:
        """The segment that is written to: the last, of a list that is not empty."""
        return self._segments[-1]

    def contains(self, base_offset: int) -> bool:
        """Whether a segment has that base offset."""
        return self.get(base_offset) is not None

    def contains_this(self, segment: LogSegment) -> bool:
        """Whether this very segment is in the list."""
        return self.get(segment.base_offset) is segment

    def get(self, base_offset: int) -> LogSegment | None:
        """The segment with that base offset."""
        segment = self.floor(base_offset)
        return segment if segment is not None and segment.base_offset == base_offset else None

    def floor(self, offset: int) -> LogSegment | None:
        """The segment with the greatest base offset <= `offset`."""
        slot = bisect_right(self._bases, offset)
        return self._segments[slot - 1] if slot else None

    def lower(self, offset: int) -> LogSegment | None:
        """The segment with the greatest base offset < `offset`."""
        slot = bisect_left(self._bases, offset)
        return self._segments[slot - 1] if slot else None

    def higher(self, offset: int) -> LogSegment | None:
        """The segment with the least base offset > `offset`."""
        slot = bisect_right(self._bases, offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def first_reaching(self, timestamp: int, *, rebuilds: int) -> LogSegment | None:
        """The first segment whose largest timestamp (ms) is at least `timestamp`.

        What segments below the active one say is remembered, but for the modification time that
        stands in for a timestamp.

        Args:
            timestamp: in ms.
            rebuilds: how often an index has been rebuilt: earlier results may be wrong.

        Raises:
            OSError: a segment's file is gone.
        """
        asked_at, newest = self._newest
        if asked_at != rebuilds:
            newest = []
        if newest and newest[-1] >= timestamp:
            return self._segments[bisect_left(newest, timestamp)]
        more: list[int] = []
        largest = newest[-1] if newest else -1
        found: LogSegment | None = None
        is_remembered = True
        for number in range(len(newest), len(self._segments)):
            segment = self._segments[number]
            own = segment.largest_record_timestamp
            is_remembered = is_remembered and own >= 0 and number < len(self._segments) - 1
            if is_remembered:
                largest = max(largest, own)
                more.append(largest)
            if (own if own >= 0 else segment.largest_timestamp) >= timestamp:
                found = segment
                break
        if more:
            self._newest = (rebuilds, newest + more)
        return found

    def values(self, start: int, end: int) -> tuple[LogSegment, ...]:
        """The segments from the one that holds offset `start` to the one that holds `end` - 1.

        Raises:
            ValueError: `end` is less than `start`.
        """
        if start == end:
            return ()
        if end < start:
            raise ValueError(
                f"Invalid log segment range: requested segments from offset {start} which is "
                f"greater than limit offset {end}"
            )
        first = max(0, bisect_right(self._bases, start) - 1)
        return self._segments[first : bisect_left(self._bases, end)]

    def non_active_from(self, offset: int) -> tuple[LogSegment, ...]:
        """The segments from the one that holds `offset` to the last before the active one."""
        active = self.active.base_offset
        return () if offset > active else self.values(offset, active)
