"""A frozen view of one partition: the only input of the planners.

Planners use the protocols here, so a running log's own segments serve as well as values read from a
stopped log's files; properties that are not used are not read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from cordwood.cleanup.rules.due import NOTHING_DUE, DueMoments
from cordwood.cleanup.rules.group_guard import NOTHING_KNOWN, Consumed
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition


class RetainedSegment(Protocol):
    """The properties of a segment for retention; see `SegmentView` for their meaning."""

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

    @property
    def appended_ms(self) -> int:
        """Upper bound (ms) of the time at which the newest record was appended."""


class CleanedSegment(RetainedSegment, Protocol):
    """The properties of a segment for the planners of a compaction."""

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
        """Time (ms) of the last write to the segment's log file."""

    @property
    def due(self) -> DueMoments:
        """The moments at which parts become removable; NOTHING_DUE if no setting asks for them."""


class Segments(Protocol):
    """Segments by number, the oldest first."""

    def __len__(self) -> int:
        """The number of segments."""

    def __getitem__(self, number: int, /) -> RetainedSegment:
        """The segment with that number."""


class RetainedLog(Protocol):
    """The properties of a log for retention; see `LogView` for their meaning."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic partition."""

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

    @property
    def holds(self) -> tuple[str, ...]:
        """The ids of its legal holds: while there is one, nothing of it is removed."""

    @property
    def consumed(self) -> Consumed:
        """The known offsets that groups have committed for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    """One segment.

    `largest_record_timestamp` (ms) is -1 if no record has one; then `modified_ms` is used.
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
    due: DueMoments = NOTHING_DUE

    @property
    def largest_timestamp(self) -> int:
        """The largest record timestamp, else the modification time (ms).

        Source: LogSegment.largestTimestamp.
        """
        if self.largest_record_timestamp >= 0:
            return self.largest_record_timestamp
        return self.modified_ms

    @property
    def appended_ms(self) -> int:
        """Upper bound (ms) of the newest record's append: the modification time."""
        return self.modified_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """One partition at one moment.

    Offsets `log_end_offset`, `high_watermark` and `last_stable_offset` are exclusive bounds. After
    an unclean shutdown the high watermark is limited to the recovery point, so that nothing above
    either is changed. `cleaner_checkpoint` is None if there is none. `holds` are the ids of legal
    holds: while there is one, nothing of the partition is removed. `consumed` is what
    was known of the offsets that groups have committed, those of cordwood.retention.groups at
    least. `settled_ms` is when a cleaning of due segments has last shown which markers must stay
    although their delete horizon has passed (ms), -1 if there was none. `metadata_version` is the
    cluster's level, 0 if unknown: of which Kafka the cleaner is.

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
    holds: tuple[str, ...] = ()
    consumed: Consumed = NOTHING_KNOWN
    settled_ms: int = -1
    metadata_version: int = 0

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
        """The segment that contains `offset`, or the first if all are above it."""
        return self.segments[max(0, bisect_right(self.segments, offset, key=_base) - 1)]


def _base(segment: CleanedSegment) -> int:
    return segment.base_offset
