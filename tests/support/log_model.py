"""Model of a partition's log: a list of batches, and offsets that bound it.

Every answer is computed from the whole list. The model does not decide where segments begin; the
caller passes it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.format.control_record import ControlType, parse_end_txn_marker
from cordwood.format.record_batch import Record, RecordBatch, iter_batches
from cordwood.storage.log.log_reader import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
    ListedOffset,
)

KNOWN_BATCHES_MAX = 5


class Stored(NamedTuple):
    """A batch as it lies in the log, and what is in it."""

    batch: RecordBatch
    raw: bytes
    records: tuple[Record, ...]

    @property
    def base(self) -> int:
        """The first offset."""
        return self.batch.base_offset

    @property
    def last(self) -> int:
        """The last offset, inclusive."""
        return self.batch.last_offset

    @property
    def producer_id(self) -> int:
        """-1 without one."""
        return self.batch.header.producer_id

    @property
    def is_control(self) -> bool:
        """Whether it is a marker."""
        return self.batch.header.is_control

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return self.batch.header.is_transactional

    @property
    def is_abort(self) -> bool:
        """Whether it is the marker of an aborted transaction."""
        if not self.is_control or not self.records:
            return False
        record = self.records[0]
        marker = parse_end_txn_marker(record.key or b"", record.value or b"")
        return marker.control_type is ControlType.ABORT


def parse_batches(data: bytes) -> list[Stored]:
    """Every batch of these bytes, all of magic 2."""
    found = []
    for _, batch in iter_batches(data):
        assert isinstance(batch, RecordBatch), batch
        found.append(Stored(batch, bytes(batch.raw), tuple(batch.records())))
    return found


class Transaction(NamedTuple):
    """One that has ended; `last` is its marker's offset."""

    producer_id: int
    first: int
    last: int
    is_aborted: bool


@dataclass
class ProducerModel:
    """A producer: (first sequence, last sequence, first offset) of its newest batches."""

    epoch: int = -1
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    open_since: int | None = None
    last_timestamp: int = -1

    def note(self, stored: Stored) -> Transaction | None:
        """Takes note of a batch of its."""
        header = stored.batch.header
        self.last_timestamp = header.max_timestamp
        if header.producer_epoch != self.epoch:
            self.epoch, self.batches = header.producer_epoch, []
        if not stored.is_control:
            known = (header.base_sequence, header.last_sequence, stored.base)
            self.batches = [*self.batches, known][-KNOWN_BATCHES_MAX:]
            if stored.is_transactional and self.open_since is None:
                self.open_since = stored.base
            return None
        first, self.open_since = self.open_since, None
        if first is None:
            return None
        return Transaction(stored.producer_id, first, stored.base, stored.is_abort)


class LogModel:
    """A log as a list.

    `start`, `high_watermark` and `end` are its offsets; `epochs` are (epoch, start offset), `ended`
    the transactions whose marker is in the log, `unreplicated` those that hold back the last stable
    offset, None where that is not known for a while.
    """

    def __init__(self) -> None:
        self.batches: list[Stored] = []
        self.start = self.high_watermark = self.end = 0
        self.epochs: list[tuple[int, int]] = []
        self.producers: dict[int, ProducerModel] = {}
        self.ended: list[Transaction] = []
        self.unreplicated: list[Transaction] | None = []

    # ---- changes

    def append(self, stored: Sequence[Stored]) -> None:
        """Takes batches at the log's end, or further on."""
        for one in stored:
            assert one.base >= self.end, "offsets ascend"
            self.batches.append(one)
            self.end = one.last + 1
            if one.producer_id >= 0:
                ended = self.producers.setdefault(one.producer_id, ProducerModel()).note(one)
                if ended is not None:
                    self.ended.append(ended)
                    if self.unreplicated is not None:
                        self.unreplicated.append(ended)

    def assign_epoch(self, epoch: int, offset: int) -> None:
        """An epoch that is not below the last one begins."""
        if not self.epochs or epoch > self.epochs[-1][0]:
            self.epochs = [entry for entry in self.epochs if entry[1] < offset]
            self.epochs.append((epoch, offset))

    def move_high_watermark(self, offset: int) -> None:
        """Sets the high watermark, within the log."""
        moved = min(max(offset, self.start), self.end)
        if moved == self.high_watermark:
            return
        self.high_watermark = moved
        if self.unreplicated is not None:
            self.unreplicated = [txn for txn in self.unreplicated if txn.last >= moved]
        elif all(txn.last < moved for txn in self.ended):
            self.unreplicated = []

    def raise_start(self, offset: int) -> None:
        """Records below `offset` are gone for readers."""
        if offset > self.start:
            self.start = offset
            self._cut_epochs(offset)

    def _cut_epochs(self, offset: int) -> None:
        below = [entry for entry in self.epochs if entry[1] <= offset]
        if below:
            rest = [entry for entry in self.epochs if entry[1] > offset]
            self.epochs = [(below[-1][0], offset), *rest]

    def drop_below(self, offset: int) -> None:
        """Batches below `offset` are gone from disk."""
        self.batches = [one for one in self.batches if one.base >= offset]
        self._forget_ended()

    def _forget_ended(self) -> None:
        there = {one.base for one in self.batches}
        self.ended = [txn for txn in self.ended if txn.last in there]

    def truncate(self, offset: int) -> None:
        """Batches that reach to `offset` or above go, wholly; producers have to be looked at."""
        if offset < self.end:
            self.batches = [one for one in self.batches if one.last < offset]
            self.end = offset
            self.start = min(self.start, offset)
            self.unreplicated = None
            self._forget_ended()
            self.high_watermark = min(self.high_watermark, offset)
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]

    def empty(self, offset: int, *, start: int | None = None) -> None:
        """Nothing is left; the next record gets `offset`."""
        self.batches, self.producers, self.ended, self.epochs = [], {}, [], []
        self.unreplicated = []
        self.end = offset
        self.start = offset if start is None else start
        self.high_watermark = max(offset, self.start)

    def reload(self, start: int, high_watermark: int, *, active: int) -> None:
        """The log was opened again; producers have to be checked.

        Where it was cut inside a batch, its end is now that of the batch before.

        Args:
            start: the log start offset that is known.
            high_watermark: likewise.
            active: the base offset of the last segment.
        """
        self.end = max([active, *[one.last + 1 for one in self.batches[-1:]]])
        self.start = start
        self.high_watermark = min(max(start, high_watermark), self.end)
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end]
        self._find_first_epochs()
        self.unreplicated = None

    def _find_first_epochs(self) -> None:
        """Records that were deleted have come back, and their epochs with them."""
        known = self.epochs[0][1] if self.epochs else self.end
        found: list[tuple[int, int]] = []
        for one in self.batches:
            epoch, offset = one.batch.header.partition_leader_epoch, max(one.base, self.start)
            if one.last >= self.start and offset < known and epoch not in dict(found):
                found.append((epoch, offset))
        self.epochs = found + [entry for entry in self.epochs if entry[0] not in dict(found)]

    def replace(self, batches: Sequence[Stored]) -> None:
        """Compaction has left these."""
        self.batches = list(batches)

    # ---- answers

    def bound(self, isolation: Isolation, last_stable_offset: int) -> int:
        """The bound of a reader, exclusive."""
        return {
            Isolation.LOG_END: self.end,
            Isolation.HIGH_WATERMARK: self.high_watermark,
            Isolation.TXN_COMMITTED: last_stable_offset,
        }[isolation]

    def last_stable_between(self) -> tuple[int, int]:
        """The least and the greatest that the last stable offset may be."""
        opened = [p.open_since for p in self.producers.values() if p.open_since is not None]
        held = self.ended if self.unreplicated is None else self.unreplicated
        least = min([self.high_watermark, *opened, *[txn.first for txn in held]])
        most = least
        if self.unreplicated is None:
            most = min([self.high_watermark, *opened])
        return max(self.start, least), max(self.start, most)

    def read(
        self, offset: int, max_bytes: int, *, bound: int, min_one: bool, bases: Sequence[int]
    ) -> bytes:
        """The batches of a read: of one segment, the last perhaps in part."""
        rest = [one for one in self.batches if one.last >= offset]
        if offset >= bound or not rest:
            return b""
        segment = segment_of(bases, rest[0].base)
        seen = [one for one in rest if segment_of(bases, one.base) == segment and one.last < bound]
        data = b"".join([one.raw for one in seen])
        return data[: max(max_bytes, len(rest[0].raw)) if min_one else max_bytes]

    def listed(
        self, timestamp: int, *, bound: int, bases: Sequence[int], idle: Sequence[int]
    ) -> ListedOffset | None:
        """The answer of ListOffsets; `idle` are the segments' times where no record has one."""
        if timestamp == LATEST_TIMESTAMP:
            return ListedOffset(-1, bound, self.epochs[-1][0] if self.epochs else -1)
        if timestamp in {EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP}:
            knows = self.epochs and self.epochs[0][1] <= self.start
            return ListedOffset(-1, self.start, self.epochs[0][0] if knows else -1)
        if timestamp in {LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP}:
            return ListedOffset(-1, -1, -1)
        newest = [self.newest_in(bases, number) for number in range(len(bases))]
        if timestamp == MAX_TIMESTAMP:
            largest = max(newest)
            number = newest.index(largest)
            found = self._first_with(self.in_segment(bases, number), largest, largest, 0)
        else:
            times = [one if one >= 0 else idle[number] for number, one in enumerate(newest)]
            reaching = [number for number, time in enumerate(times) if time >= timestamp]
            if not reaching:
                return None
            there = self.in_segment(bases, reaching[0])
            found = self._first_with(there, timestamp, 1 << 63, self.start)
        return found if found is not None and found.offset < bound else None

    def newest_in(self, bases: Sequence[int], number: int) -> int:
        """The largest timestamp of a segment, -1 without one."""
        there = self.in_segment(bases, number)
        return max([one.batch.header.max_timestamp for one in there], default=-1)

    def in_segment(self, bases: Sequence[int], number: int) -> list[Stored]:
        """The batches of a segment."""
        return [one for one in self.batches if segment_of(bases, one.base) == bases[number]]

    @staticmethod
    def _first_with(
        batches: Iterable[Stored], least: int, most: int, start: int
    ) -> ListedOffset | None:
        for one in batches:
            for record in one.records:
                if least <= record.timestamp <= most and record.offset >= start:
                    epoch = one.batch.header.partition_leader_epoch
                    return ListedOffset(record.timestamp, record.offset, epoch)
        return None

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of OffsetForLeaderEpoch."""
        if not self.epochs or epoch > self.epochs[-1][0] or epoch < 0:
            return -1, -1
        later = [entry for entry in self.epochs if entry[0] > epoch]
        known = [entry[0] for entry in self.epochs if entry[0] <= epoch]
        return known[-1] if known else epoch, later[0][1] if later else self.end

    def committed(self, last_stable_offset: int) -> list[Record]:
        """The records that a read_committed consumer gets, from the log start on."""
        return [
            record
            for one in self.batches
            if not one.is_control and one.last < last_stable_offset and not self.is_aborted(one)
            for record in one.records
            if record.offset >= self.start
        ]

    def is_aborted(self, one: Stored) -> bool:
        """Whether a batch belongs to a transaction that was aborted."""
        return one.is_transactional and any(
            txn.is_aborted
            and txn.producer_id == one.producer_id
            and txn.first <= one.base < txn.last
            for txn in self.ended
        )

    def replayed(self) -> dict[int, ProducerModel]:
        """The producers in the records from the log start on."""
        found: dict[int, ProducerModel] = {}
        for one in self.batches:
            if one.producer_id >= 0 and one.last >= self.start:
                found.setdefault(one.producer_id, ProducerModel()).note(one)
        return found


def segment_of(bases: Sequence[int], offset: int) -> int:
    """The base offset of the segment that holds an offset."""
    return bases[max(bisect_right(bases, offset) - 1, 0)]
