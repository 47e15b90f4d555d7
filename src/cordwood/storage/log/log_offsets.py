"""The offsets that bound a log, and their order.

Invariant: log start offset <= last stable offset <= high watermark <= log end offset, and recovery
point <= log end offset. The log's lock is held while one is changed; any thread reads them, and
each is replaced as a whole.

Source: org.apache.kafka.storage.internals.log.UnifiedLog, LocalLog.
"""

from __future__ import annotations

from typing import NamedTuple

from cordwood.storage.producers.producer_state import ProducerStateManager
from cordwood.storage.segment.log_segment import LogSegment


class LogPosition(NamedTuple):
    """An offset and where its segment holds it: `position` in bytes, -1 where unknown.

    Source: org.apache.kafka.storage.internals.log.LogOffsetMetadata.
    """

    offset: int
    segment_base_offset: int = -1
    position: int = -1


class LogOffsets:
    """The offsets of one log; see the module."""

    def __init__(
        self,
        *,
        log_start: int,
        recovery_point: int,
        end: LogPosition,
        producers: ProducerStateManager,
    ) -> None:
        """The high watermark is the log start offset, until a checkpoint or a leader raises it."""
        #: The first offset that is served.
        self.log_start = log_start
        #: Records below it are on disk; exclusive.
        self.recovery_point = recovery_point
        #: The next record's offset and position, read at once: the active segment may be longer.
        self.end = end
        #: The high watermark, and its position once a reader has looked it up.
        self.high_watermark = LogPosition(log_start)
        #: The first offset of the earliest transaction that is open, or not yet replicated.
        self.first_unstable: int | None = None
        #: Where records may be missing since a crash; None if nowhere, or truncated since.
        self.gap: int | None = None
        #: How often the log was truncated.
        self.truncation_count = 0
        self._producers = producers
        self.refresh_first_unstable()

    def check_invariants(self) -> None:
        """Asserts the order of the offsets."""
        start, stable, mark, end = (
            self.log_start,
            self.last_stable,
            self.high_watermark.offset,
            self.end.offset,
        )
        assert start <= stable <= mark <= end, f"offsets {start} {stable} {mark} {end}"
        assert self.recovery_point <= end, f"recovery point {self.recovery_point}, end {end}"
        assert self.gap is None or self.gap < end, f"gap at {self.gap}, end {end}"

    @property
    def last_stable(self) -> int:
        """The last stable offset, exclusive: no record below it is of an open transaction."""
        unstable, mark = self.first_unstable, self.high_watermark.offset
        return mark if unstable is None or unstable > mark else unstable

    def refresh_first_unstable(self) -> None:
        """Updates the first unstable offset from the producers."""
        first = self._producers.first_unstable_offset
        self.first_unstable = None if first is None else max(first, self.log_start)

    def set_high_watermark(self, position: LogPosition) -> None:
        """Sets the high watermark, also below the known one."""
        self.high_watermark = position
        self._producers.on_high_watermark_updated(position.offset)
        self.refresh_first_unstable()

    def update_high_watermark(self, offset: int) -> int:
        """Sets the high watermark to an offset within log start and end; returns it."""
        end = self.end
        bounded = min(max(offset, self.log_start), end.offset)
        if bounded != self.high_watermark.offset:
            self.set_high_watermark(end if bounded == end.offset else LogPosition(bounded))
        return bounded

    def set_end(self, offset: int, active: LogSegment) -> None:
        """Sets the log end offset, at the end of the active segment."""
        if self.gap is not None and offset <= self.gap:
            self.gap = None
        self.end = LogPosition(offset, active.base_offset, active.size_bytes)

    def begin_truncation(self, offset: int) -> None:
        """Notes a truncation: a crash in the middle must not leave a log that looks flushed."""
        self.truncation_count += 1
        self.recovery_point = min(self.recovery_point, offset)
