"""Reads of a log's segments: by offset, by timestamp, up to a bound. No lock is taken.

A reader sees the log's segments and offsets as they are at one moment. It returns ranges of open
files: a file that is renamed or removed meanwhile stays readable through them. If a file is gone
before it could be opened, it begins again with the segments of the next moment.

Source: org.apache.kafka.storage.internals.log.UnifiedLog.read, LocalLog.read,
fetchOffsetByTimestamp, collectAbortedTransactions.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.errors import CorruptError, OversizedRecordError
from cordwood.model.kafka_errors import InvalidRecordError, OffsetOutOfRangeError, StorageError
from cordwood.storage.log.damage import DamageReports
from cordwood.storage.log.log_offsets import LogPosition
from cordwood.storage.log.log_state import LogState
from cordwood.storage.reading.batch_heads import FileRange
from cordwood.storage.segment.log_segment import LogSegment
from cordwood.storage.segment.segment_list import SegmentList

_READ_TRIES = 5

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
        """The number of bytes to send."""
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
    segments: SegmentList,
    timestamp: int,
    *,
    log_start_offset: int,
    record_bytes_max: int,
    rebuilds: int,
) -> ListedOffset | None:
    """The first record at or after `timestamp` (ms) and the log start; None if there is none.

    For `MAX_TIMESTAMP` the first record with the log's largest timestamp.

    Args:
        segments: of the log.
        timestamp: in ms.
        log_start_offset: inclusive.
        record_bytes_max: of a record of a compressed batch.
        rebuilds: how often indexes of the process have been rebuilt, as `SegmentList` takes it.

    Raises:
        FileNotFoundError: a segment's file has been removed.
        OversizedRecordError: a record on the way is larger.
    """
    if timestamp == MAX_TIMESTAMP:
        newest: LogSegment | None = None
        for segment in segments:
            if newest is None or segment.max_timestamp_so_far > newest.max_timestamp_so_far:
                newest = segment
        if newest is None:
            return None
        found = newest.find_max_timestamp(record_bytes_max=record_bytes_max)
    else:
        target = segments.first_reaching(timestamp, rebuilds=rebuilds)
        if target is None:
            return None
        found = target.find_offset_by_timestamp(
            timestamp, log_start_offset, record_bytes_max=record_bytes_max
        )
    if found is None:
        return None
    return ListedOffset(found.timestamp, found.offset, found.leader_epoch)


class LogReader:
    """Reads one log; any number of threads may call it."""

    def __init__(self, log: LogState) -> None:
        """Reads nothing yet."""
        self._log = log
        self._damage = DamageReports(log.topic_partition, log.context.clock)

    def position_of_high_watermark(self) -> LogPosition:
        """The high watermark and where it lies; looked up once, and remembered."""
        offsets = self._log.offsets
        known = offsets.high_watermark
        if known.position < 0:
            found = self.position_of(known.offset)
            if offsets.high_watermark.offset == known.offset:
                offsets.high_watermark = found
            return found
        return known

    def position_of(self, offset: int) -> LogPosition:
        """The position of the first batch that ends at or after `offset`, or the log's end."""
        log = self._log
        segments, end = log.segments, log.offsets.end
        if offset < end.offset or end.position < 0:
            segment: LogSegment | None = segments.floor(offset) or segments.first
            while segment is not None:
                found = segment.translate_offset(offset)
                if found is not None:
                    return LogPosition(offset, segment.base_offset, found.position)
                segment = segments.higher(segment.base_offset)
        if end.position < 0:
            return LogPosition(offset, segments.active.base_offset, segments.active.size_bytes)
        return end._replace(offset=offset)

    def read(
        self,
        start_offset: int,
        max_bytes: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        min_one: bool = True,
    ) -> Fetched:
        """The batches from the one that holds `start_offset` on, or the next there is.

        Args:
            start_offset: the first offset wanted.
            max_bytes: how many bytes at most, a last partial batch included.
            isolation: how far the reader sees.
            min_one: give one whole batch even if it is larger than `max_bytes`.

        Raises:
            OffsetOutOfRangeError: `start_offset` is below the log start or above the log end.
            CorruptMessageError: the log is damaged there; its cause names the file and the byte.
            StorageError: the directory is offline, or has just failed.
        """
        log = self._log
        with log.guard("reading from"):
            for _ in range(_READ_TRIES):
                segments = log.segments
                end = log.offsets.end.offset
                if start_offset < log.offsets.log_start:
                    raise OffsetOutOfRangeError(
                        f"Received request for offset {start_offset} for partition "
                        f"{log.topic_partition}, but we only have log segments starting from "
                        f"offset: {log.offsets.log_start}."
                    )
                if start_offset > end or segments.floor(start_offset) is None:
                    raise OffsetOutOfRangeError(
                        f"Received request for offset {start_offset} for partition "
                        f"{log.topic_partition}, but we only have log segments upto {end}."
                    )
                try:
                    return self._read_once(
                        segments, start_offset, max_bytes, isolation, min_one=min_one
                    )
                except CorruptError as error:
                    raise self._damage.answer(error) from error
                except FileNotFoundError:
                    # Its file was removed behind this reader's back: the segments have changed.
                    if log.segments is segments:
                        log.require_open()  # a log that was deleted has no files: no disk failed
                        raise
            raise self._segments_keep_changing()

    def _read_once(
        self,
        segments: SegmentList,
        start_offset: int,
        max_bytes: int,
        isolation: Isolation,
        *,
        min_one: bool,
    ) -> Fetched:
        log = self._log
        is_committed = isolation is Isolation.TXN_COMMITTED
        nothing: tuple[AbortedTransaction, ...] | None = () if is_committed else None
        bound = self._bound_position(isolation)
        if start_offset == bound.offset:
            return Fetched(position=bound, range=None, aborted=nothing)
        if start_offset > bound.offset:
            return Fetched(position=self.position_of(start_offset), range=None, aborted=nothing)
        found = read_batches(
            segments,
            start_offset,
            max_bytes,
            bound=bound,
            # Looked up after the bound, so that it is not below it.
            aborted_up_to=log.offsets.end.offset if is_committed else None,
            min_one=min_one,
        )
        # Beyond the last batch, where compaction or a roll has left a gap before the log's end.
        return found or Fetched(position=log.offsets.end, range=None, aborted=nothing)

    def _bound_position(self, isolation: Isolation) -> LogPosition:
        """The position at which a reader of that isolation stops."""
        log = self._log
        if isolation is Isolation.LOG_END:
            end = log.offsets.end
            return end if end.position >= 0 else self.position_of(end.offset)
        mark = self.position_of_high_watermark()
        if isolation is Isolation.HIGH_WATERMARK:
            return mark
        stable = log.offsets.last_stable
        return mark if stable >= mark.offset else self.position_of(stable)

    def _bound_of(self, isolation: Isolation) -> int:
        """The offset that a reader of that isolation does not go beyond, exclusive."""
        log = self._log
        if isolation is Isolation.LOG_END:
            return log.offsets.end.offset
        if isolation is Isolation.HIGH_WATERMARK:
            return log.offsets.high_watermark.offset
        return log.offsets.last_stable

    def _segments_keep_changing(self) -> StorageError:
        log = self._log
        return StorageError(f"the segments of {log.topic_partition} changed at every attempt")

    def list_offset(
        self, timestamp: int, *, isolation: Isolation = Isolation.HIGH_WATERMARK
    ) -> ListedOffset | None:
        """The answer of ListOffsets for a timestamp in ms, or a special value.

        None where there is no such record, or it lies beyond what the reader may see.

        Raises:
            CorruptMessageError: the log is damaged there; its cause names the file and the byte.
            InvalidRecordError: a record on the way is larger than max.decompressed.message.bytes.
            StorageError: the directory is offline, or has just failed.
        """
        log = self._log
        with log.guard("looking up a timestamp in"):
            if timestamp == LATEST_TIMESTAMP:
                epoch = log.leader_epochs.latest_epoch
                return ListedOffset(-1, self._bound_of(isolation), -1 if epoch is None else epoch)
            if timestamp in {EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP}:
                first = log.leader_epochs.earliest_entry
                start = log.offsets.log_start
                epoch = first[0] if first is not None and first[1] <= start else -1
                return ListedOffset(-1, start, epoch)
            if timestamp in {LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP}:
                return ListedOffset(-1, -1, -1)
            for _ in range(_READ_TRIES):
                segments = log.segments
                try:
                    found = find_by_timestamp(
                        segments,
                        timestamp,
                        log_start_offset=log.offsets.log_start,
                        record_bytes_max=log.config.max_decompressed_message_bytes,
                        rebuilds=log.context.resources.rebuilds,
                    )
                except OversizedRecordError as error:
                    raise InvalidRecordError(error.reason) from error
                except CorruptError as error:
                    raise self._damage.answer(error) from error
                except FileNotFoundError:
                    if log.segments is segments:
                        log.require_open()
                        raise
                    continue
                if found is None or found.offset >= self._bound_of(isolation):
                    return None
                return found
            raise self._segments_keep_changing()

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of OffsetForLeaderEpoch; (-1, -1) when undefined."""
        log = self._log
        return log.leader_epochs.end_offset_for(leader_epoch, log.offsets.end.offset)
