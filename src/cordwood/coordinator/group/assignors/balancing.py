"""Selects the subscriber that gets a topic's next partition, and the one that gives one up.

Both cursors walk over one list of members, those with the fewest partitions first. A cursor has a
range of members of one size, its level, and returns each of them once before the level changes by
one and the range grows by the members that have the new size. So members are not sorted again after
each partition.

`sizes` are the numbers of partitions by member. The caller updates them as partitions move; the
cursors read them only for members outside their ranges.

Source: UniformHeterogeneousAssignmentBuilder.MemberAssignmentBalancer.
"""

from __future__ import annotations

from collections.abc import Sequence

NO_MEMBER = -1


class LeastLoaded:
    """Members with the fewest partitions: a range at the front that grows to the back.

    `level` is the size that the members of the range have, those returned since it last changed
    aside: they are to get a partition each.
    """

    def __init__(self, members: Sequence[int], sizes: Sequence[int]) -> None:
        self._members = members
        self._sizes = sizes
        self._end = 0
        self._position = 0
        self.level = sizes[members[0]] - 1

    def next(self) -> int:
        """The member that is to get a partition."""
        if self._position >= self._end:
            self.level += 1
            while self._end < len(self._members) and self._size(self._end) == self.level:
                self._end += 1
            self._position = 0
        member = self._members[self._position]
        self._position += 1
        return member

    def _size(self, position: int) -> int:
        return self._sizes[self._members[position]]


class MostLoaded:
    """Members with the most partitions: a range that grows to the front.

    Behind the range are members that were excluded; `members` is reordered for that.
    """

    def __init__(self, members: list[int], sizes: Sequence[int]) -> None:
        self._members = members
        self._sizes = sizes
        self._start = len(members)
        self._end = len(members)
        self._position = len(members) - 1
        self.level = sizes[members[-1]] + 1

    def next(self) -> int:
        """The member that is to give a partition up, `NO_MEMBER` if all are excluded."""
        if self._position < self._start:
            if self._end <= self._start and self._start > 0:
                # All of this size were excluded: the next smaller size need not be one less.
                self.level = self._size(self._start - 1)
            else:
                self.level -= 1
            while self._start > 0 and self._size(self._start - 1) == self.level:
                self._start -= 1
            self._position = self._end - 1
        if self._position < 0:
            return NO_MEMBER
        member = self._members[self._position]
        self._position -= 1
        return member

    def exclude(self) -> None:
        """Takes the member that was returned last out of the range: it has none to give up."""
        last, excluded = self._end - 1, self._position + 1
        members = self._members
        members[excluded], members[last] = members[last], members[excluded]
        self._end = last

    def _size(self, position: int) -> int:
        return self._sizes[self._members[position]]
