"""Model of what one log may and must hold during a workload: a list of batches.

The model knows each batch by its bytes. A log that is found after a crash is right when its batches
are those of the model, of which only a beginning that was deleted and an end that was not flushed
may be missing: so nothing is lost, invented, altered, given twice or out of order, and no record
has another offset. As in Kafka, the end of a segment that was not flushed may be missing before a
later one: the check counts how often.

While a step is under way its outcome is open: a batch that is being appended may be there, a group
that is being cleaned may be the old one or the new one, as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cordwood.format.batch_header import HEADER_BYTES, BatchHeader, build_header
from cordwood.format.control_record import ControlType, parse_control_key
from cordwood.format.record_batch import Record, RecordBatch, iter_batches


class Stored(NamedTuple):
    """A batch as it lies on disk; `marker` is what it says if it ends a transaction."""

    header: BatchHeader
    raw: bytes
    marker: ControlType | None

    @property
    def base_offset(self) -> int:
        """Its first offset."""
        return self.header.base_offset

    @property
    def next_offset(self) -> int:
        """One past its last."""
        return self.header.next_offset

    @property
    def is_data(self) -> bool:
        """Whether it is there for consumers."""
        return not self.header.is_control

    @property
    def sent(self) -> bytes:
        """The batch as its producer sent it."""
        header = self.header._replace(base_offset=0, partition_leader_epoch=-1)
        return build_header(header) + self.raw[HEADER_BYTES:]

    def records(self) -> list[Record]:
        """Its records."""
        return RecordBatch(self.header, self.raw).records()


class Found(NamedTuple):
    """A segment of a log, and the batches in it."""

    base_offset: int
    batches: list[Stored]

    @property
    def offsets(self) -> list[int]:
        """The base offsets of its batches."""
        return [batch.base_offset for batch in self.batches]


class Producer(NamedTuple):
    """A producer, by what lies in a log: its newest data batch, and its transaction's first offset.

    `epoch` is that of the batch or marker that came last; `next_sequence` follows the newest batch
    of that epoch.
    """

    epoch: int
    newest: Stored | None = None
    open_since: int | None = None

    @property
    def next_sequence(self) -> int:
        """The sequence that it sends next."""
        if self.newest is None or self.newest.header.producer_epoch != self.epoch:
            return 0
        return self.newest.header.last_sequence + 1


def stored_in(data: bytes) -> list[Stored]:
    """The batches of a log's bytes, which end with a whole batch.

    Raises:
        AssertionError: they do not.
    """
    found = []
    end = 0
    for position, batch in iter_batches(data):
        assert isinstance(batch, RecordBatch), f"an entry of magic {batch.magic}"
        marker = None
        if batch.header.is_control and batch.header.records_count:
            marker = parse_control_key(batch.records()[0].key)
        found.append(Stored(batch.header, bytes(batch.raw), marker))
        end = position + batch.size_bytes
    assert end == len(data), f"{len(data) - end} bytes behind the last whole batch"
    return found


def producers_of(batches: Iterable[Stored]) -> dict[int, Producer]:
    """The producers of a log that holds these batches."""
    found: dict[int, Producer] = {}
    for batch in batches:
        header = batch.header
        if header.producer_id < 0:
            continue
        known = found.get(header.producer_id, Producer(header.producer_epoch))
        if batch.is_data:
            since = known.open_since
            if header.is_transactional and since is None:
                since = header.base_offset
            known = Producer(header.producer_epoch, batch, since)
        else:
            known = Producer(header.producer_epoch, known.newest, None)
        found[header.producer_id] = known
    return found


@dataclass(slots=True)
class LogModel:
    """One log; offsets are exclusive where they end something.

    `batches` is what it holds when all is well, `history` every batch it was ever given and that
    was not cut off, cleaned or deleted though it may be. Records below `start` may be gone, those
    below `start_min` must be. The batches whose base offsets are in `lasting` must be there unless
    deleted, and the log's end is at least `end_min`.

    `appending` may lie behind `batches`, `replacing` or `half_replaced` may be in their place. Of
    the producers in `doubtful` nobody knows what the log remembers: their records were deleted, and
    not flushed.
    """

    batches: list[Stored] = field(default_factory=list)
    history: list[Stored] = field(default_factory=list)
    lasting: set[int] = field(default_factory=set)
    start: int = 0
    start_min: int = 0
    end: int = 0
    #: Where the log ends for one who opens it: a truncation inside a batch takes all of it.
    solid_end: int = 0
    end_min: int = 0
    appending: list[Stored] = field(default_factory=list)
    replacing: list[Stored] | None = None
    half_replaced: list[Stored] | None = None
    doubtful: dict[int, int] = field(default_factory=dict)
    #: A log that is being made or deleted need not be there.
    may_be_missing: bool = True
    #: Whether records are being cut off just now.
    is_losing: bool = False
    #: Whether all records are.
    begins_anew: bool = False

    # ---- appends

    def begin_append(self, batches: Sequence[Stored]) -> None:
        """Notes batches that may be there from now on."""
        self.appending = list(batches)

    def end_append(self) -> None:
        """Notes that the batches are there."""
        self.batches += self.appending
        self.history += self.appending
        self.end = self.solid_end = self.appending[-1].next_offset
        self.appending = []

    def flushed(self) -> None:
        """All there is has been made to last."""
        self.flushed_below(self.end)
        self.end_min = max(self.end_min, self.solid_end)

    def flushed_below(self, offset: int) -> None:
        """Notes that the log below `offset`, as far as it is not deleted, is durable."""
        lasting = [b for b in self.batches if self.start < b.next_offset <= offset]
        self.lasting.update(batch.base_offset for batch in lasting)
        self.end_min = max([self.end_min, *[b.next_offset for b in lasting[-1:]]])

    def claimed(self, recovery_point: int) -> None:
        """The log says that it has made to last what is below `recovery_point`, if not deleted."""
        if not self.is_losing:
            self.flushed_below(recovery_point)

    # ---- what takes records away

    def begin_deletion(self, start: int) -> None:
        """Records below `start` may go from now on."""
        self.start = max(self.start, start)

    def begin_truncation(self, offset: int) -> None:
        """Batches that reach `offset` or beyond may go from now on."""
        kept = [b for b in self.batches if b.next_offset <= offset]
        self.solid_end = kept[-1].next_offset if kept else 0
        self.lasting.intersection_update(batch.base_offset for batch in kept)
        self.end_min = min(self.end_min, self.solid_end)
        self.is_losing = True

    def end_truncation(self, offset: int) -> None:
        """Notes that the truncated batches are gone."""
        self.batches = [b for b in self.batches if b.next_offset <= offset]
        self.history = [b for b in self.history if b.next_offset <= offset]
        self.end = offset
        self.is_losing = False

    def begin_anew(self) -> None:
        """All records may go from now on, and the log may end anywhere."""
        self.begin_truncation(0)
        self.start_min = 0
        self.begins_anew = True

    def end_anew(self, offset: int) -> None:
        """Notes that all batches are gone, and the producers with them."""
        self.batches, self.history = [], []
        self.doubtful = {}
        self.start = self.end = self.solid_end = offset
        self.begins_anew = self.is_losing = False

    # ---- cleaning

    def begin_replacing(self, sources: Sequence[int], end: int, cleaned: Sequence[Stored]) -> None:
        """`cleaned` may be in the place of the segments at `sources` from now on, up to `end`.

        As in Kafka, a loader that finds it complete, and the sources too, removes those that begin
        below its end. Of others all records were superseded: they may come back.
        """
        before = [b for b in self.batches if b.next_offset <= sources[0]]
        behind = [b for b in self.batches if b.base_offset >= end]
        self.replacing = [*before, *cleaned, *behind]
        cleaned_end = cleaned[-1].next_offset if cleaned else sources[0]
        left = next((base for base in sources[1:] if base >= cleaned_end), end)
        old = [b for b in self.batches if left <= b.base_offset < end]
        self.half_replaced = [*before, *cleaned, *old, *behind]

    def begin_moving(self, copy: Sequence[Found]) -> None:
        """The copy in another directory may be in the log's place from now on.

        As in Kafka, a copy is not cleaned: it still has what a cleaning removed after it was read.

        Raises:
            AssertionError: it lacks a batch, or has one that the log never had.
        """
        copied = [batch for segment in copy for batch in segment.batches]
        offsets = {batch.base_offset for batch in copied}
        lost = [b for b in self.batches if b.base_offset not in offsets]
        lost = [b for b in lost if b.next_offset > self.start]
        assert not lost, f"the copy lacks {[b.base_offset for b in lost]}"
        known = {batch.raw for batch in [*self.history, *self.batches]}
        invented = [b.base_offset for b in copied if b.raw not in known]
        assert not invented, f"the batches at {invented} of the copy were never there"
        self.replacing = copied

    def end_replacing(self) -> None:
        """Notes that the batches are replaced."""
        assert self.replacing is not None, "a cleaning or a move has begun"
        self.batches = self.replacing
        self.replacing = self.half_replaced = None

    # ---- after a crash

    def state(self) -> tuple[object, ...]:
        """The part of the model that decides about a log that is found."""
        return (
            len(self.batches),
            len(self.history),
            len(self.lasting),
            len(self.appending),
            self.replacing is None,
            (self.start, self.start_min, self.end, self.end_min),
            (self.may_be_missing, self.is_losing, self.begins_anew, *self.doubtful),
        )

    def find(self, found: Sequence[Found]) -> bool:
        """Refuses a log of these segments if it could not have come about.

        Returns:
            Whether what is missing is a beginning and an end; otherwise the end of a segment that
            was never flushed is missing before another.

        Raises:
            AssertionError: what is wrong.
        """
        errors = []
        for wanted in self._candidates():
            try:
                return self._compare(found, wanted)
            except AssertionError as error:
                errors.append(str(error))
        raise AssertionError("; or else ".join(errors))

    def require(self, found: Sequence[Found]) -> None:
        """Refuses a log that runs with these segments: only deleted batches may be missing.

        Raises:
            AssertionError: what is wrong.
        """
        kept, self.lasting = self.lasting, {batch.base_offset for batch in self.batches}
        try:
            self.find(found)
        finally:
            self.lasting = kept

    def _candidates(self) -> Iterator[list[Stored]]:
        yield self.batches + self.appending
        for other in (self.replacing, self.half_replaced):
            if other is not None:
                yield other + self.appending

    def _compare(self, found: Sequence[Found], wanted: Sequence[Stored]) -> bool:
        offsets = [batch.base_offset for batch in wanted]
        at = sum(offset < found[0].base_offset for offset in offsets) if found else 0
        missing = [b for b in wanted[:at] if b.next_offset > self.start]
        lost = missing.copy() if any(segment.batches for segment in found) else []
        has_hole = False
        for number, segment in enumerate(found):
            for batch in segment.batches:
                assert batch.base_offset in offsets[at:], (
                    f"the batch at {batch.base_offset} was never there"
                )
                expected = wanted[at]
                assert batch.raw == expected.raw, (
                    f"found {batch.header} where {expected.header} belongs"
                )
                at += 1
            # The rest of a segment may not have lasted, though the next one did.
            bases = [other.base_offset for other in found[number + 1 : number + 2]]
            end = bases[0] if bases else 1 << 63
            while at < len(wanted) and wanted[at].base_offset < end:
                has_hole = has_hole or (bool(bases) and wanted[at].next_offset > self.start)
                missing.append(wanted[at])
                at += 1
        lost += [b for b in missing if b.base_offset in self.lasting and b.next_offset > self.start]
        assert not lost, (
            f"lost: {[b.base_offset for b in lost]} of {offsets}, lasting: {sorted(self.lasting)}, "
            f"deleted to {self.start}; found {[f.offsets for f in found]}"
        )
        return not has_hole

    def known(self, found: Sequence[Found]) -> list[Stored]:
        """The batches that a log of these segments was ever given and may still have."""
        there = {offset for segment in found for offset in segment.offsets}
        return [
            batch
            for batch in [*self.history, *self.appending]
            if batch.base_offset in self.lasting
            or batch.base_offset in there
            or batch.next_offset <= self.start
        ]

    def _doubt(self, producer_id: int, epoch: int) -> None:
        self.doubtful[producer_id] = max(self.doubtful.get(producer_id, 0), epoch)

    def adopt(self, found: Sequence[Found], *, start: int, end: int) -> None:
        """Continues with the state after a crash."""
        there = {offset for segment in found for offset in segment.offsets}
        history = []
        for batch in self.known(found):
            header = batch.header
            if batch.base_offset in there or batch.base_offset in self.lasting:
                history.append(batch)
            elif header.producer_id >= 0:
                self._doubt(header.producer_id, header.producer_epoch)
        # The marker of a transaction whose records were cleaned away may be lost: the producer
        # snapshot below the marker has it open.
        given = producers_of(batch for batch in self.history if batch.next_offset <= end)
        for producer_id, producer in given.items():
            if producer.open_since is not None and producer.open_since not in there:
                self._doubt(producer_id, producer.epoch)
        self.batches = [batch for segment in found for batch in segment.batches]
        self.history = history if self.batches or not self.begins_anew else []
        self.lasting.intersection_update(batch.base_offset for batch in self.batches)
        self.start, self.end, self.solid_end = start, end, end
        self.end_min = min(self.end_min, end)
        self.appending, self.replacing, self.half_replaced = [], None, None
        self.is_losing = self.may_be_missing = self.begins_anew = False
