"""A frozen picture of one partition: all that a planner may see.

Planners ask for what the protocols here name, so that a running log's own segments do as well as
values read from a stopped one's files: what nobody asks for is not looked up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cordwood.model.config import LogConfig
from cordwood.model.topic_partition import TopicPartition


class RetainedSegment(Protocol):
    """What retention asks of a segment; see `SegmentView` for the meanings."""

    @property
    def base_offset(self) -> int:
        """The offset in its files' names."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its log."""

    @property
    def largest_record_timestamp(self) -> int:
        """The largest timestamp of a record (ms), -1 when none has one."""

    @property
    def largest_timestamp(self) -> int:
        """The largest record timestamp, else the modification time (ms)."""


class CleanedSegment(RetainedSegment, Protocol):
    """What the planners of a compaction ask of a segment."""

    @property
    def index_bytes(self) -> int:
        """Bytes of the entries of its offset index."""

    @property
    def time_index_bytes(self) -> int:
        """Bytes of the entries of its time index."""

    @property
    def first_batch_timestamp(self) -> int:
        """The maximum timestamp of its first batch (ms), -1 when unknown."""

    @property
    def modified_ms(self) -> int:
        """When its log was last written to (ms)."""


class Segments(Protocol):
    """Segments by number, the oldest first."""

    def __len__(self) -> int:
        """How many there are."""

    def __getitem__(self, number: int, /) -> RetainedSegment:
        """One of them."""


class RetainedLog(Protocol):
    """What retention asks of a log; see `LogView` for the meanings."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose."""

    @property
    def config(self) -> LogConfig:
        """The settings in force."""

    @property
    def segments(self) -> Segments:
        """Its segments; the last is active."""

    @property
    def size_bytes(self) -> int:
        """The sum of all segments' logs."""

    @property
    def log_start_offset(self) -> int:
        """The first offset readers may ask for."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""

    @property
    def high_watermark(self) -> int:
        """Records below it are on all in-sync replicas; exclusive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """One segment.

    `largest_record_timestamp` (ms) is -1 when no record has one; `modified_ms` stands in then.
    `first_batch_timestamp` (ms) is the maximum timestamp of its first batch, -1 when unknown.
    Sizes are in bytes: of the log, and of the entries of both indexes.
    """

    base_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    largest_record_timestamp: int
    first_batch_timestamp: int
    modified_ms: int

    @property
    def largest_timestamp(self) -> int:
        """The largest record timestamp, else the modification time (ms).

        Source: LogSegment.largestTimestamp.
        """
        if self.largest_record_timestamp >= 0:
            return self.largest_record_timestamp
        return self.modified_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """One partition at one moment.

    Offsets `log_end_offset`, `high_watermark` and `last_stable_offset` are exclusive bounds. After
    an unclean stop the high watermark is no higher than the recovery point, so that nothing above
    either is touched. `cleaner_checkpoint` is None where there is none.

    Invariant: segments ascend by base offset; there is at least one, the last is active.
    """

    topic_partition: TopicPartition
    segments: tuple[CleanedSegment, ...]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    cleaner_checkpoint: int | None
    config: LogConfig

    @property
    def active(self) -> CleanedSegment:
        """The active segment."""
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        """The sum of all segments' logs."""
        return sum(segment.size_bytes for segment in self.segments)

    def next_base(self, number: int) -> int:
        """The base of the segment after segment `number`, the log end offset for the last."""
        if number + 1 < len(self.segments):
            return self.segments[number + 1].base_offset
        return self.log_end_offset

    def values(self, start: int, end: int) -> Sequence[CleanedSegment]:
        """The segments from the one that holds `start` to `end`, exclusive.

        Source: LogSegments.values.
        """
        if start >= end:
            return ()
        first = max(0, bisect_right(self.segments, start, key=_base) - 1)
        return self.segments[first : bisect_left(self.segments, end, key=_base)]

    def floor(self, offset: int) -> CleanedSegment:
        """The segment that holds `offset`, the first where all lie above it."""
        return self.segments[max(0, bisect_right(self.segments, offset, key=_base) - 1)]


def _base(segment: CleanedSegment) -> int:
    return segment.base_offset
