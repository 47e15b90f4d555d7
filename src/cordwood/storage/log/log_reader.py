"""Reads of a log's segments: by offset, by timestamp, up to a bound. No lock is taken.

A reader gets the segments and offsets of one moment from `PartitionLog`. What it returns are ranges
of open files: a file that is renamed or removed meanwhile stays readable through them.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.read, LocalLog.read,
fetchOffsetByTimestamp, collectAbortedTransactions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.format.transaction_index import AbortedTransaction
from cordwood.storage.log.append_result import LogPosition
from cordwood.storage.reading.batch_heads import FileRange
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_list import SegmentList

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6


class Isolation(enum.Enum):
    """The upper bound of a read: the log end for followers, a lower one for consumers.

    Source: org.apache.kafka.server.storage.log.FetchIsolation.
    """

    LOG_END = "log end"
    HIGH_WATERMARK = "read_uncommitted"
    TXN_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """The result of a read.

    `position` is where the first batch begins, or where it would. `range` is None when there is
    nothing: at the bound, or for zero bytes. It may begin with a batch that starts below the offset
    asked for, and end in part of a batch; `first_entry_incomplete` says that not even the first is
    whole. `aborted` is None unless read_committed was asked for.
    """

    position: LogPosition
    range: FileRange | None
    aborted: tuple[AbortedTransaction, ...] | None = None
    first_entry_incomplete: bool = False

    @property
    def size_bytes(self) -> int:
        """How many bytes there are to send."""
        return self.range.size_bytes if self.range is not None else 0

    def read(self) -> bytes:
        """The bytes themselves."""
        return self.range.read() if self.range is not None else b""


class ListedOffset(NamedTuple):
    """An answer of ListOffsets; -1 stands for none in each field."""

    timestamp: int
    offset: int
    leader_epoch: int


def read_batches(
    segments: SegmentList,
    start_offset: int,
    max_bytes: int,
    *,
    bound: LogPosition,
    aborted_up_to: int | None,
    min_one: bool,
) -> Fetched | None:
    """The batches from the one that holds `start_offset` on; None if there are none up to the end.

    Args:
        segments: of the log.
        start_offset: the first offset wanted, below the bound.
        max_bytes: how many bytes at most, a last partial batch included.
        bound: where the reader stops.
        aborted_up_to: the log's end offset, at or above the bound, for a reader that gets aborted
            transactions; None for one that does not.
        min_one: give one whole batch even if it is larger than `max_bytes`.

    Raises:
        FileNotFoundError: a segment's file has been removed.
    """
    segment = segments.floor(start_offset)
    while segment is not None:
        max_position = _max_position(segment, bound)
        found = segment.read(start_offset, max_bytes, max_position=max_position, min_one=min_one)
        if found is None:
            segment = segments.higher(segment.base_offset)
            continue
        span, batch = found
        size = span.size_bytes if span is not None else 0
        aborted = None
        if aborted_up_to is not None:
            upper = segment.fetch_upper_bound_offset(batch, size)
            if upper is None:
                following = segments.higher(segment.base_offset)
                upper = aborted_up_to if following is None else following.base_offset
            aborted = tuple(collect_aborted(segments, segment, start_offset, upper))
        return Fetched(
            position=LogPosition(start_offset, segment.base_offset, batch.position),
            range=span if size else None,
            first_entry_incomplete=0 < size < batch.size_bytes,
            aborted=aborted,
        )
    return None


def _max_position(segment: LogSegment, bound: LogPosition) -> int:
    if bound.segment_base_offset < 0 or segment.base_offset < bound.segment_base_offset:
        return segment.size_bytes
    if segment.base_offset == bound.segment_base_offset:
        return bound.position
    return 0


def collect_aborted(
    segments: SegmentList, first: LogSegment | None, start_offset: int, upper_bound: int
) -> list[AbortedTransaction]:
    """Aborted transactions with an offset in [`start_offset`, `upper_bound`), from `first` on."""
    found: list[AbortedTransaction] = []
    segment = first
    while segment is not None:
        entries, complete = segment.indexes.transactions.collect_aborted(start_offset, upper_bound)
        found += entries
        if complete:
            break
        segment = segments.higher(segment.base_offset)
    return found


def find_by_timestamp(
    segments: SegmentList, timestamp: int, *, log_start_offset: int, rebuilds: int
) -> ListedOffset | None:
    """The first record at or after `timestamp` (ms) and the log start; None if there is none.

    For `MAX_TIMESTAMP` the first record with the log's largest timestamp.

    Args:
        segments: of the log.
        timestamp: in ms.
        log_start_offset: inclusive.
        rebuilds: how often indexes of the process have been rebuilt, as `SegmentList` takes it.

    Raises:
        FileNotFoundError: a segment's file has been removed.
    """
    if timestamp == MAX_TIMESTAMP:
        newest: LogSegment | None = None
        for segment in segments:
            if newest is None or segment.max_timestamp_so_far > newest.max_timestamp_so_far:
                newest = segment
        if newest is None or newest.max_timestamp_so_far < 0:
            return None
        found = newest.find_max_timestamp()
    else:
        target = segments.first_reaching(timestamp, rebuilds=rebuilds)
        if target is None:
            return None
        found = target.find_offset_by_timestamp(timestamp, log_start_offset)
    if found is None:
        return None
    return ListedOffset(found.timestamp, found.offset, found.leader_epoch)
