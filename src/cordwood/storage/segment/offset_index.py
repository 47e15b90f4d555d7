"""The offset index of a segment, live: from an offset to where a batch begins in the log.

Invariant: offsets and positions ascend strictly; the batch at an entry's position begins at or
below the entry's offset, and a batch from there on ends at it.

Source: org.apache.kafka.storage.internals.log.OffsetIndex.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import NamedTuple

from cordwood.model.errors import CorruptError
from cordwood.model.kafka_errors import InvalidOffsetError
from cordwood.storage.segment.index_search import entries_around, entry_up_to
from cordwood.storage.segment.segment_index import INT32_MAX, SegmentIndex, ceiling_slot, floor_slot


class OffsetPosition(NamedTuple):
    """The last offset of a batch, and where in the log it begins in bytes."""

    offset: int
    position: int


class OffsetIndex(SegmentIndex):
    """Entries (offset, position) of one segment; see `SegmentIndex`."""

    __slots__ = ()

    ENTRY_BYTES = 8
    _KEY = "i"
    _ENTRY = Struct(">ii")
    _KIND = "index"

    @property
    def last_offset(self) -> int:
        """The last entry's offset, the base offset when there is none."""
        keys, _ = self.columns()
        return self.base_offset + keys[-1] if keys else self.base_offset

    @property
    def last_entry(self) -> OffsetPosition:
        """The last entry, (base offset, 0) when there is none."""
        keys, values = self.columns()
        count = len(keys)
        if not count:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + keys[count - 1], values[count - 1])

    def entry(self, number: int) -> OffsetPosition:
        """The entry of that number, counted from 0.

        Raises:
            ValueError: there are not so many.
        """
        relative, position = self._slot(number)
        return OffsetPosition(self.base_offset + relative, position)

    def lookup(self, target_offset: int) -> OffsetPosition:
        """The last entry with an offset <= the target, or (base offset, 0)."""
        self.was_used = True
        keys, values = self._columns or self.columns()
        slot = floor_slot(keys, target_offset - self.base_offset)
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + keys[slot], values[slot])

    def position_of(self, target_offset: int) -> tuple[int, int | None]:
        """(position, offset) of the entry that `lookup` finds; (0, None) if there is none."""
        self.was_used = True
        keys, values = self._columns or self.columns()
        slot = bisect_right(keys, target_offset - self.base_offset) - 1
        return (0, None) if slot < 0 else (values[slot], self.base_offset + keys[slot])

    def lookup_on_disk(self, target_offset: int) -> OffsetPosition:
        """Looks an entry up, in the file, without reading all of it, if it is not in memory.

        Raises:
            CorruptError: the entry that was found can be none.
        """
        if self.is_loaded:
            return self.lookup(target_offset)
        found = entry_up_to(
            self._fs, self.path, self._ENTRY, min(target_offset - self.base_offset, INT32_MAX)
        )
        if found is None:
            return OffsetPosition(self.base_offset, 0)
        if found[1] < 0:
            raise CorruptError(f"offset index entry at position {found[1]}", path=str(self.path))
        return OffsetPosition(self.base_offset + found[0], found[1])

    def end_on_disk(self, target_offset: int, *, size_bytes: int) -> int:
        """A position in the log behind every batch with offsets below the target, at least.

        No more than two intervals of entries lie between these batches and it; it is at most
        `size_bytes`. It is searched in the file, without reading all of it.
        """
        relative = min(target_offset - 1 - self.base_offset, INT32_MAX)
        # The batch of the next entry may begin below the target, and ends at the one after it.
        _, behind = entries_around(self._fs, self.path, self._ENTRY, relative, behind=2)
        return min(behind[1][1], size_bytes) if len(behind) == 2 else size_bytes

    def around_position_on_disk(
        self, position: int
    ) -> tuple[OffsetPosition, OffsetPosition | None]:
        """The last entry with a position <= the given one, and the entry after it, if there is one.

        The first is (base offset, 0) where there is none. They are searched in the file, without
        reading all of it.
        """
        found, behind = entries_around(
            self._fs, self.path, self._ENTRY, position, behind=1, column=1
        )
        entries = [OffsetPosition(self.base_offset + each[0], each[1]) for each in behind]
        before = (0, 0) if found is None else found
        return (
            OffsetPosition(self.base_offset + before[0], before[1]),
            entries[0] if entries else None,
        )

    def fetch_upper_bound_offset(self, position: int, size_bytes: int) -> OffsetPosition | None:
        """The first entry at or beyond the end of `size_bytes` bytes read from `position`.

        Its offset lies above all that was read, but is not the lowest that does.
        """
        self.was_used = True
        keys, values = self.columns()
        slot = ceiling_slot(values, position + size_bytes)
        if slot >= len(keys):
            return None
        return OffsetPosition(self.base_offset + keys[slot], values[slot])

    def append(self, offset: int, position: int) -> None:
        """Adds an entry for the batch at `position` that ends at `offset`.

        Raises:
            ValueError: the index is full.
            InvalidOffsetError: `offset` is not larger than the last one.
            SegmentOffsetOverflowError: `offset` is out of reach of the base offset.
        """
        keys, values = self._columns if self._is_pinned and self._columns else self.pin()
        count = len(keys)
        if self._capacity is None or count >= self._capacity:
            raise ValueError(f"Attempt to append to a full index (size = {count}).")
        relative = offset - self.base_offset
        if count and relative <= keys[-1]:
            raise InvalidOffsetError(
                f"Attempt to append an offset {offset} to position {count} no larger than the last "
                f"offset appended ({self.last_offset}) to {self.path}"
            )
        if not 0 <= relative <= INT32_MAX:
            self.relative(offset)
        # In this order: who finds a key finds its value.
        values.append(position)
        keys.append(relative)

    def truncate_to(self, offset: int) -> None:
        """Removes entries with an offset at or above `offset`."""
        self._truncate_to_entries(ceiling_slot(self.columns()[0], offset - self.base_offset))
