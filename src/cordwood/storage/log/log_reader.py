"""Reads of a log: by offset, by timestamp, up to a bound. No lock is taken.

A reader sees the segments and offsets of one moment. What it returns are ranges of open files: a
file that is renamed or removed meanwhile stays readable through them.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.read, LocalLog.read,
fetchOffsetByTimestamp, collectAbortedTransactions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.kafka_errors import OffsetOutOfRangeError, StorageError
from cordwood.storage.log.append_result import LogPosition
from cordwood.storage.segment.log_segment import BatchPosition, FileRange, LogSegment
from cordwood.storage.segment.segment_list import SegmentList

if TYPE_CHECKING:
    from cordwood.storage.log.partition_log import PartitionLog

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

_NONE = -1
_RETRIES = 5


class Isolation(enum.Enum):
    """How far a reader sees: followers to the log's end, consumers less far.

    Source: org.apache.kafka.server.storage.log.FetchIsolation.
    """

    LOG_END = "log end"
    HIGH_WATERMARK = "read_uncommitted"
    TXN_COMMITTED = "read_committed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What a read found.

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


def bound_of(log: PartitionLog, isolation: Isolation) -> int:
    """The offset that a reader of that isolation does not go beyond, exclusive."""
    if isolation is Isolation.LOG_END:
        return log.log_end_offset
    if isolation is Isolation.HIGH_WATERMARK:
        return log.high_watermark
    return log.last_stable_offset


def read(
    log: PartitionLog,
    start_offset: int,
    max_bytes: int,
    *,
    isolation: Isolation,
    min_one: bool,
) -> Fetched:
    """The batches from the one that holds `start_offset` on, or the next there is.

    Args:
        log: to read from.
        start_offset: the first offset wanted.
        max_bytes: how many bytes at most, a last partial batch included.
        isolation: how far the reader sees.
        min_one: give one whole batch even if it is larger than `max_bytes`.

    Raises:
        OffsetOutOfRangeError: `start_offset` is below the log start or above the log end.
        StorageError: the directory is offline, or has just failed.
    """
    with log.guard("reading from"):
        for _ in range(_RETRIES):
            segments = log.segments
            end = log.log_end_offset
            if start_offset < log.log_start_offset:
                raise OffsetOutOfRangeError(
                    f"Received request for offset {start_offset} for partition "
                    f"{log.topic_partition}, but we only have log segments starting from offset: "
                    f"{log.log_start_offset}."
                )
            segment = segments.floor(start_offset)
            if start_offset > end or segment is None:
                raise OffsetOutOfRangeError(
                    f"Received request for offset {start_offset} for partition "
                    f"{log.topic_partition}, but we only have log segments upto {end}."
                )
            try:
                return _read(log, segments, start_offset, max_bytes, isolation, min_one=min_one)
            except FileNotFoundError:
                # Its file was removed behind this reader's back: there are other segments now.
                if log.segments is segments:
                    log.require_open()  # of a log that was deleted nothing is there: no disk failed
                    raise
        raise StorageError(f"the segments of {log.topic_partition} changed at every attempt")


def _read(
    log: PartitionLog,
    segments: SegmentList,
    start_offset: int,
    max_bytes: int,
    isolation: Isolation,
    *,
    min_one: bool,
) -> Fetched:
    committed = isolation is Isolation.TXN_COMMITTED
    nothing: tuple[AbortedTransaction, ...] | None = () if committed else None
    bound = _bound_position(log, isolation)
    if start_offset == bound.offset:
        return Fetched(position=bound, range=None, aborted=nothing)
    if start_offset > bound.offset:
        return Fetched(position=log.position_of(start_offset), range=None, aborted=nothing)
    segment = segments.floor(start_offset)
    while segment is not None:
        max_position = _max_position(segment, bound)
        found = segment.read(start_offset, max_bytes, max_position=max_position, min_one=min_one)
        if found is None:
            segment = segments.higher(segment.base_offset)
            continue
        span, batch = found
        position = LogPosition(start_offset, segment.base_offset, batch.position)
        size = span.size_bytes if span is not None else 0
        return Fetched(
            position=position,
            range=span if size else None,
            first_entry_incomplete=0 < size < batch.size_bytes,
            aborted=_aborted(log, segments, segment, start_offset, batch, size)
            if committed
            else None,
        )
    # Beyond the last batch, where compaction or a roll has left a gap before the log's end.
    return Fetched(position=log.end, range=None, aborted=nothing)


def _bound_position(log: PartitionLog, isolation: Isolation) -> LogPosition:
    if isolation is Isolation.LOG_END:
        end = log.end
        return end if end.position >= 0 else log.position_of(end.offset)
    mark = log.position_of_high_watermark()
    if isolation is Isolation.HIGH_WATERMARK:
        return mark
    stable = log.last_stable_offset
    return mark if stable >= mark.offset else log.position_of(stable)


def _max_position(segment: LogSegment, bound: LogPosition) -> int:
    if bound.segment_base_offset < 0 or segment.base_offset < bound.segment_base_offset:
        return segment.size_bytes
    if segment.base_offset == bound.segment_base_offset:
        return bound.position
    return 0


def _aborted(
    log: PartitionLog,
    segments: SegmentList,
    segment: LogSegment,
    start_offset: int,
    batch: BatchPosition,
    size_bytes: int,
) -> tuple[AbortedTransaction, ...]:
    """Aborted transactions that overlap what was read, as far as the index tells."""
    upper = segment.fetch_upper_bound_offset(batch, size_bytes)
    if upper is None:
        following = segments.higher(segment.base_offset)
        upper = following.base_offset if following is not None else log.log_end_offset
    return tuple(collect_aborted(segments, segment, start_offset, upper))


def collect_aborted(
    segments: SegmentList, first: LogSegment | None, start_offset: int, upper_bound: int
) -> list[AbortedTransaction]:
    """Aborted transactions with an offset in [`start_offset`, `upper_bound`), from `first` on."""
    found: list[AbortedTransaction] = []
    segment = first
    while segment is not None:
        entries, complete = segment.transaction_index.collect_aborted(start_offset, upper_bound)
        found += entries
        if complete:
            break
        segment = segments.higher(segment.base_offset)
    return found


def list_offset(log: PartitionLog, timestamp: int, *, isolation: Isolation) -> ListedOffset | None:
    """What ListOffsets answers for a timestamp in ms, or one of its special values.

    None where there is no such record, or it lies beyond what the reader may see.

    Raises:
        StorageError: the directory is offline, or has just failed.
    """
    with log.guard("looking up a timestamp in"):
        if timestamp == LATEST_TIMESTAMP:
            epoch = log.leader_epochs.latest_epoch
            bound = bound_of(log, isolation)
            return ListedOffset(_NONE, bound, _NONE if epoch is None else epoch)
        if timestamp in {EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP}:
            first = log.leader_epochs.earliest_entry
            start = log.log_start_offset
            epoch = first[0] if first is not None and first[1] <= start else _NONE
            return ListedOffset(_NONE, start, epoch)
        if timestamp in {LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP}:
            return ListedOffset(_NONE, _NONE, _NONE)
        for _ in range(_RETRIES):
            segments = log.segments
            try:
                found = _by_timestamp(log, segments, timestamp)
            except FileNotFoundError:
                if log.segments is segments:
                    log.require_open()
                    raise
                continue
            if found is None or found.offset >= bound_of(log, isolation):
                return None
            return found
        raise StorageError(f"the segments of {log.topic_partition} changed at every attempt")


def _by_timestamp(log: PartitionLog, segments: SegmentList, timestamp: int) -> ListedOffset | None:
    if timestamp == MAX_TIMESTAMP:
        newest: LogSegment | None = None
        for segment in segments:
            if newest is None or segment.max_timestamp_so_far > newest.max_timestamp_so_far:
                newest = segment
        if newest is None or newest.max_timestamp_so_far < 0:
            return None
        found = newest.find_max_timestamp()
    else:
        target = segments.first_reaching(timestamp, rebuilds=log.context.resources.rebuilds)
        if target is None:
            return None
        found = target.find_offset_by_timestamp(timestamp, log.log_start_offset)
    if found is None:
        return None
    return ListedOffset(found.timestamp, found.offset, found.leader_epoch)
