"""The entries of a segment's offset and time index, built from its batches in order.

Twin: `cordwood.format.native.index_entries`, for many batches at once.

Source: org.apache.kafka.storage.internals.log.LogSegment.recover.
"""

from __future__ import annotations

from array import array
from pathlib import Path

from cordwood.model.kafka_errors import InvalidOffsetError
from cordwood.storage.segment.segment_index import Columns

_NONE = -1


class IndexBuilder:
    """The entries of a segment's indexes, batch by batch."""

    __slots__ = (
        "base_offset",
        "indexed_at",
        "interval_bytes",
        "max_timestamp",
        "offset_of_max_timestamp",
        "offsets",
        "path",
        "positions",
        "time_offsets",
        "timestamps",
    )

    def __init__(self, base_offset: int, interval_bytes: int, path: Path) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.path = path
        self.offsets = array("i")
        self.positions = array("i")
        self.timestamps = array("q")
        self.time_offsets = array("i")
        self.max_timestamp = _NONE
        self.offset_of_max_timestamp = _NONE
        self.indexed_at = 0

    def add(self, position: int, last_offset: int, max_timestamp: int) -> None:
        """Adds the batch at `position`.

        Raises:
            InvalidOffsetError: it would get an entry that does not follow the one before.
        """
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if position - self.indexed_at > self.interval_bytes:
            relative = last_offset - self.base_offset
            if self.offsets and relative <= self.offsets[-1]:
                raise InvalidOffsetError(
                    f"Attempt to append an offset {last_offset} to position {len(self.offsets)} no "
                    f"larger than the last offset appended ({self.base_offset + self.offsets[-1]}) "
                    f"to {self.path}"
                )
            self.positions.append(position)
            self.offsets.append(relative)
            self._add_time()
            self.indexed_at = position

    def finish(self) -> None:
        """Adds the last time index entry.

        Raises:
            InvalidOffsetError: it does not follow the one before.
        """
        self._add_time()

    @property
    def offset_columns(self) -> Columns:
        """The offset index."""
        return self.offsets, self.positions

    @property
    def time_columns(self) -> Columns:
        """The time index."""
        return self.timestamps, self.time_offsets

    def _add_time(self) -> None:
        relative = self.offset_of_max_timestamp - self.base_offset
        if self.timestamps and relative < self.time_offsets[-1]:
            raise InvalidOffsetError(
                f"Attempt to append an offset ({self.offset_of_max_timestamp}) to slot "
                f"{len(self.timestamps)} no larger than the last offset appended "
                f"({self.base_offset + self.time_offsets[-1]}) to {self.path}"
            )
        if self.max_timestamp > (self.timestamps[-1] if self.timestamps else _NONE):
            self.time_offsets.append(relative)
            self.timestamps.append(self.max_timestamp)
