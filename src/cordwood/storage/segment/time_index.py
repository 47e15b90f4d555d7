"""The time index of a segment, live: from a timestamp to an offset.

An entry (timestamp, offset) says that every record up to and including the batch that ends at
`offset` has at most that timestamp, and that this batch has it.

Invariant: timestamps (ms) ascend strictly, from 0 on; offsets do not descend.

Source: org.apache.kafka.storage.internals.log.TimeIndex.
"""

from __future__ import annotations

from bisect import bisect_right
from struct import Struct
from typing import NamedTuple

from cordwood.model.kafka_errors import InvalidOffsetError
from cordwood.storage.segment.index_search import last_entry_of
from cordwood.storage.segment.segment_index import SegmentIndex, ceiling_slot

NO_TIMESTAMP = -1


class TimestampOffset(NamedTuple):
    """A timestamp in ms, and the last offset of the first batch that has it."""

    timestamp: int
    offset: int


class TimeIndex(SegmentIndex):
    """Entries (timestamp, offset) of one segment; see `SegmentIndex`."""

    __slots__ = ()

    ENTRY_BYTES = 12
    _KEY = "q"
    _ENTRY = Struct(">qi")
    _KIND = "time index"
    _VALUES_ASCEND = False

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more but the one that is kept for a roll."""
        return self._free_entries() <= 1

    @property
    def last_entry(self) -> TimestampOffset:
        """The last entry, (-1, base offset) when there is none."""
        keys, values = self.columns()
        count = len(keys)
        if not count:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(keys[count - 1], self.base_offset + values[count - 1])

    def last_entry_on_disk(self) -> TimestampOffset:
        """The last entry; of an index that is not in memory, only the ends of its file are read.

        Raises:
            CorruptError: the file does not hold an index.
        """
        if not self.is_loaded:
            found = last_entry_of(self._fs, self.path, self._ENTRY)
            if found is not None:
                return TimestampOffset(found[0], self.base_offset + found[1])
        return self.last_entry

    def entry(self, number: int) -> TimestampOffset:
        """The entry of that number, counted from 0.

        Raises:
            ValueError: there are not so many.
        """
        timestamp, relative = self._slot(number)
        return TimestampOffset(timestamp, self.base_offset + relative)

    def lookup(self, target_ms: int) -> TimestampOffset:
        """The last entry with a timestamp <= the target, or (-1, base offset)."""
        self.was_used = True
        keys, values = self._columns or self.columns()
        slot = bisect_right(keys, target_ms) - 1
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(keys[slot], self.base_offset + values[slot])

    def maybe_append(self, timestamp: int, offset: int, *, skip_full_check: bool = False) -> None:
        """Adds an entry, if its timestamp is larger than the last one.

        Args:
            timestamp: in ms; -1 for none adds nothing.
            offset: last offset of the batch that has it.
            skip_full_check: also the slot that is kept for a roll may be taken.

        Raises:
            ValueError: the index is full, or the timestamp is smaller than the last one.
            InvalidOffsetError: the offset is smaller than the last one.
            SegmentOffsetOverflowError: `offset` is out of reach of the base offset.
        """
        keys, values = self._columns if self._is_pinned and self._columns else self.pin()
        count = len(keys)
        if not skip_full_check and (self._capacity is None or count >= self._capacity - 1):
            raise ValueError(f"Attempt to append to a full time index (size = {count}).")
        if count:
            if offset - self.base_offset < values[-1]:
                raise InvalidOffsetError(
                    f"Attempt to append an offset ({offset}) to slot {count} no larger than the "
                    f"last offset appended ({self.base_offset + values[-1]}) to {self.path}"
                )
            if timestamp < keys[-1]:
                raise ValueError(
                    f"Attempt to append a timestamp ({timestamp}) to slot {count} no larger than "
                    f"the last timestamp appended ({keys[-1]}) to {self.path}"
                )
        if timestamp > (keys[-1] if count else NO_TIMESTAMP):
            relative = self.relative(offset)
            # In this order: who finds a key finds its value.
            values.append(relative)
            keys.append(timestamp)

    def truncate_to(self, offset: int) -> None:
        """Removes entries with an offset at or above `offset`."""
        self._truncate_to_entries(ceiling_slot(self.columns()[1], offset - self.base_offset))
