"""The slow and obvious cleaner: what the fast one must give, byte for byte.

One batch at a time, one record at a time, with a dict for the offset map and Kafka's own sequential
bookkeeping of transactions. Nothing here is compiled, split up or run side by side, and no bits are
counted: what it gives is right because it can be read. It needs no package but those of the base
installation, so that a broker in a test compacts with it (`cordwood.testing.in_process_engine`).

Source: org.apache.kafka.storage.internals.log.Cleaner (buildOffsetMap, cleanSegments, cleanInto,
shouldDiscardBatch, shouldRetainRecord), CleanedTransactionMetadata, LogSegment.append,
org.apache.kafka.common.record.MemoryRecords.filterTo; KIP-98, KIP-534.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.cleanup.engine.denser_batch import denser, has_grown
from cordwood.cleanup.plan.compaction_values import Discarded, LastRecord
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.cleanup.rules.transactions import TransactionSummary
from cordwood.format.batch_header import CREATE_TIME, LOG_APPEND_TIME
from cordwood.format.control_record import ControlType, parse_control_key
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file_name,
)
from cordwood.format.legacy import LegacyBatch
from cordwood.format.offset_index import build_offset_index
from cordwood.format.record_batch import (
    Record,
    RecordBatch,
    build_batch,
    build_empty_batch,
    iter_batches,
)
from cordwood.format.time_index import build_time_index
from cordwood.format.transaction_index import AbortedTransaction, build_transaction_index
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.source import WIDEST, ReadBounds
from cordwood.testing.reference_rules import (
    Action,
    Highest,
    decide_batch,
    is_last_of_producer,
    is_removed,
    should_discard_records,
    should_retain_tombstone,
)

Batch = RecordBatch | LegacyBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRound:
    """A compaction of the segments in `directory`; `groups` holds base offsets, a tuple each.

    `read` are the base offsets of all segments that are read, also of those that stay as they are;
    those of the groups if it is empty. `indexed` are those whose keys are indexed; likewise. With
    `before`, the compaction was interrupted, and that is the state of the transactions behind the
    groups that are in place. With `recompresses`, a batch that has grown is compressed once more,
    which Kafka does not do.
    """

    directory: Path
    first_dirty: int
    first_uncleanable: int
    retained_end: int
    groups: tuple[tuple[int, ...], ...]
    rules: RecordRules
    index_interval_bytes: int
    producers: tuple[LastRecord, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    read: tuple[int, ...] = ()
    indexed: tuple[int, ...] = ()
    before: TransactionSummary | None = None
    bounds: ReadBounds = WIDEST
    recompresses: bool = False
    fs: FileSystem = OS

    @classmethod
    def of(
        cls, compaction: LogCompaction, *, recompresses: bool = False, fs: FileSystem = OS
    ) -> ReferenceRound:
        """The same compaction, as the fast cleaner is given it, without the groups in place."""
        done = compaction.groups[: compaction.groups_done]
        first_left = done[-1][-1] + 1 if done else 0
        is_versioned = compaction.rules.versions is not None
        return cls(
            directory=Path(compaction.directory),
            first_dirty=compaction.first_dirty,
            first_uncleanable=compaction.first_uncleanable,
            retained_end=compaction.retained_end,
            groups=compaction.groups[compaction.groups_done :],
            rules=compaction.rules,
            index_interval_bytes=compaction.index_interval_bytes,
            producers=compaction.producers,
            aborted=compaction.aborted,
            read=tuple(
                each.base_offset for each in compaction.segments if each.base_offset >= first_left
            ),
            indexed=tuple(
                each.base_offset
                for each in compaction.dirty
                if is_versioned or each.base_offset >= first_left
            ),
            before=TransactionSummary.from_json(compaction.before),
            bounds=compaction.bounds,
            recompresses=recompresses,
            fs=fs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """The output of a group: the bytes of its files by suffix, without a file that is not there.

    `modified_ns` is the modification time of the log and both indexes. `offsets` are those of the
    records that are left, control records included. `facts` has size, last offset and maximum
    timestamp of each batch, `aborted` what the transaction index has.
    """

    base_offset: int
    files: dict[str, bytes]
    modified_ns: int
    offsets: tuple[int, ...]
    facts: tuple[tuple[int, int, int], ...]
    aborted: tuple[AbortedTransaction, ...]

    def divided(self, segment_bytes: int, *, interval_bytes: int) -> list[CleanedSegment]:
        """The same batches in as many segments as are needed, of at most so many bytes.

        A batch that is larger has a segment of its own; an aborted transaction is where its marker
        is. `interval_bytes` is index.interval.bytes.
        """
        pieces: list[list[tuple[int, int, int]]] = [[]]
        piece_bytes = 0
        for fact in self.facts:
            if pieces[-1] and piece_bytes + fact[0] > segment_bytes:
                pieces.append([])
                piece_bytes = 0
            pieces[-1].append(fact)
            piece_bytes += fact[0]
        found: list[CleanedSegment] = []
        begin, log = 0, self.files[LOG_SUFFIX]
        for piece in pieces:
            data = log[begin : begin + sum(size for size, *_ in piece)]
            base = int.from_bytes(data[:8]) if begin else self.base_offset
            last = piece[-1][1] if piece else base
            begin += len(data)
            first, end = bisect_left(self.offsets, base), bisect_right(self.offsets, last)
            found.append(
                _segment_of(
                    base,
                    data,
                    piece,
                    interval_bytes=interval_bytes,
                    aborted=[each for each in self.aborted if base <= each.last_offset <= last],
                    modified_ns=self.modified_ns,
                    offsets=self.offsets[first:end],
                )
            )
        return found


def index_entries(
    batches: Sequence[tuple[int, int, int]], *, interval_bytes: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Offset and time index entries of a segment that was appended to, and then closed.

    Args:
        batches: (size in bytes, last offset, maximum timestamp in ms) of each, in order.
        interval_bytes: index.interval.bytes.

    Returns:
        ((offset, position) each, (timestamp in ms, offset) each).

    Source: LogSegment.append, LogSegment.onBecomeInactiveSegment.
    """
    offsets: list[tuple[int, int]] = []
    times: list[tuple[int, int]] = []
    newest = (-1, -1)
    position = since = 0

    def add_time() -> None:
        if newest[0] > (times[-1][0] if times else -1):
            times.append(newest)

    for size_bytes, last_offset, max_timestamp in batches:
        if max_timestamp > newest[0]:
            newest = (max_timestamp, last_offset)
        if since > interval_bytes:
            offsets.append((last_offset, position))
            add_time()
            since = 0
        position += size_bytes
        since += size_bytes
    add_time()
    return offsets, times


@dataclass(slots=True)
class Tally:
    """Numbers of a group before and after, for the report.

    `stays` says that the group is one segment of which nothing has to change. `after` is the state
    of the transactions behind it.
    """

    stays: bool
    records_before: int = 0
    records_after: int = 0
    batches_before: int = 0
    batches_after: int = 0
    discarded: Discarded = field(default_factory=Discarded)
    after: TransactionSummary = field(default_factory=TransactionSummary)

    def discard(self, reason: str, count: int = 1) -> None:
        """Counts records that go, by the field of `Discarded`."""
        self.stays = False
        setattr(self.discarded, reason, getattr(self.discarded, reason) + count)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedGroup:
    """A group as one segment, however large, and what was counted."""

    segment: CleanedSegment
    tally: Tally


def _segment_of(
    base_offset: int,
    data: bytes,
    facts: Sequence[tuple[int, int, int]],
    *,
    interval_bytes: int,
    aborted: Sequence[AbortedTransaction],
    modified_ns: int,
    offsets: Sequence[int],
) -> CleanedSegment:
    entries, times = index_entries(list(facts), interval_bytes=interval_bytes)
    files = {
        LOG_SUFFIX: data,
        INDEX_SUFFIX: build_offset_index(entries, base_offset),
        TIME_INDEX_SUFFIX: build_time_index(times, base_offset),
    }
    if aborted:
        files[TXN_INDEX_SUFFIX] = build_transaction_index(aborted)
    return CleanedSegment(
        base_offset=base_offset,
        files=files,
        modified_ns=modified_ns,
        offsets=tuple(offsets),
        facts=tuple(facts),
        aborted=tuple(aborted),
    )


class SequentialTransactions:
    """Kafka's bookkeeping of transactions, in the order batches are read.

    Source: CleanedTransactionMetadata.
    """

    def __init__(self, before: TransactionSummary | None = None) -> None:
        """Begins at the start of a log, or behind what `before` sums up."""
        self._waiting: list[tuple[int, int, AbortedTransaction]] = []
        self.summary = TransactionSummary().followed_by(before or TransactionSummary())
        #: By producer: the aborted transaction, and whether a batch of it was read.
        self._ongoing_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._added = 0
        #: The transaction index of the segment being written.
        self.kept_aborted: list[AbortedTransaction] = []

    def add(self, aborted: Sequence[AbortedTransaction]) -> None:
        """Adds aborted transactions that the segment to be read next overlaps."""
        for entry in aborted:
            heapq.heappush(self._waiting, (entry.first_offset, self._added, entry))
            self._added += 1

    def _begin_up_to(self, offset: int) -> None:
        while self._waiting and self._waiting[0][0] <= offset:
            entry = heapq.heappop(self._waiting)[2]
            seen = (entry.producer_id, entry.last_offset) in self.summary.observed
            self._ongoing_aborted.setdefault(entry.producer_id, (entry, seen))

    def data_batch(self, producer_id: int, last_offset: int, *, transactional: bool) -> bool:
        """Whether a data batch may be discarded."""
        self._begin_up_to(last_offset)
        if not transactional:
            return False
        if producer_id in self._ongoing_aborted:
            entry, _ = self._ongoing_aborted[producer_id]
            self._ongoing_aborted[producer_id] = (entry, True)
            self.summary.observed.add((producer_id, entry.last_offset))
            return True
        self.summary.committed[producer_id] = True
        return False

    def control_batch(
        self, producer_id: int, last_offset: int, control_type: ControlType | None
    ) -> bool:
        """Whether a control batch may be discarded; the type is None when it has no record."""
        self._begin_up_to(last_offset)
        if control_type is None:
            return True
        if control_type is ControlType.ABORT:
            entry, seen = self._ongoing_aborted.pop(producer_id, (None, False))
            if entry is not None and seen:
                self.kept_aborted.append(entry)
                return False
            return True
        if control_type is ControlType.COMMIT:
            seen = self.summary.committed.get(producer_id, False)
            self.summary.committed[producer_id] = False
            return not seen
        return False

    def read(self, batch: Batch) -> bool:
        """Whether a batch may be discarded."""
        if isinstance(batch, LegacyBatch):
            return self.data_batch(-1, batch.last_offset, transactional=False)
        header = batch.header
        if not header.is_control:
            return self.data_batch(
                header.producer_id, header.last_offset, transactional=header.is_transactional
            )
        records = batch.records()
        control_type = parse_control_key(records[0].key) if records else None
        return self.control_batch(header.producer_id, header.last_offset, control_type)


@dataclass(slots=True)
class _Written:
    """The segment being written."""

    data: bytearray = field(default_factory=bytearray)
    facts: list[tuple[int, int, int]] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def append(self, data: bytes, batch_last_offset: int, max_timestamp: int) -> None:
        self.data += data
        self.facts.append((len(data), batch_last_offset, max_timestamp))


@dataclass(frozen=True, slots=True, kw_only=True)
class _SegmentRules:
    """The input of verdicts on the records of a segment."""

    newest: Highest
    is_indexed: bool
    keeps_legacy_tombstones: bool


class ReferenceCleaner:
    """Cleans one compaction in memory; touches no file."""

    def __init__(self, compaction: ReferenceRound) -> None:
        self._round = compaction
        self._transactions = SequentialTransactions(compaction.before)
        self._last_records = {p.producer_id: p for p in compaction.producers}
        grouped = tuple(base for group in compaction.groups for base in group)
        self._read = compaction.read or grouped
        self._indexed = compaction.indexed or (() if compaction.read else grouped)

    def clean(self) -> list[CleanedSegment]:
        """The output of each group, in order.

        Raises:
            CorruptError: a segment is damaged.
            OSError: a segment cannot be read.
        """
        return [group.segment for group in self.groups()]

    def groups(self) -> Iterator[CleanedGroup]:
        """The same one by one: a group's files are read when it is asked for. Raises as `clean`."""
        newest = self._offset_map()
        left = list(self._read)
        for group in self._round.groups:
            while left and left[0] < group[0]:
                self._pass_over(left.pop(0))
            left = left[len(group) :]
            yield self._clean_group(group, newest)

    # ---- first pass

    def _offset_map(self) -> Highest:
        """The newest record of each key of the dirty section, or that of the highest version."""
        compaction = self._round
        newest = Highest(compaction.rules.versions)
        transactions = SequentialTransactions()
        # Of a compaction that was interrupted, markers in groups that are in place are not read: a
        # transaction that ends there would seem never to end.
        start = max((compaction.first_dirty, *self._indexed[:1]))
        transactions.add(self._aborted_in(start, compaction.first_uncleanable))
        for base in self._indexed:
            for batch in self._batches(base):
                if batch.last_offset < compaction.first_dirty:
                    continue
                if transactions.read(batch) or _is_control(batch):
                    continue
                for record in self._records(batch):
                    if record.key is not None and record.offset >= compaction.first_dirty:
                        newest.add(record.key, record)
        return newest

    # ---- second pass

    def _pass_over(self, base: int) -> None:
        """Notes the transactions of a segment that stays as it is."""
        batches = self._batches(base)
        self._transactions.add(self._aborted_in(base, batches[-1].next_offset if batches else base))
        for batch in batches:
            self._transactions.read(batch)

    def _clean_group(self, group: tuple[int, ...], newest: Highest) -> CleanedGroup:
        compaction = self._round
        written = _Written()
        tally = Tally(stays=len(group) == 1)
        self._transactions.kept_aborted = []
        modified_ns = 0
        for number, base in enumerate(group):
            batches = self._batches(base)
            end = batches[-1].next_offset if batches else base
            if number + 1 < len(group):
                end = group[number + 1]
            self._transactions.add(self._aborted_in(base, end))
            modified_ns = compaction.fs.facts_of(self._path(base)).modified_ns
            rules = _SegmentRules(
                newest=newest,
                is_indexed=base in self._indexed,
                keeps_legacy_tombstones=modified_ns // 1_000_000
                > compaction.rules.legacy_horizon_ms,
            )
            for batch in batches:
                self._clean_batch(batch, rules, written, tally)
        tally.batches_after = len(written.facts)
        tally.records_after = len(written.offsets)
        tally.after = TransactionSummary().followed_by(self._transactions.summary)
        segment = _segment_of(
            group[0],
            bytes(written.data),
            written.facts,
            interval_bytes=compaction.index_interval_bytes,
            aborted=self._transactions.kept_aborted,
            modified_ns=modified_ns // 1_000_000 * 1_000_000,
            offsets=written.offsets,
        )
        return CleanedGroup(segment=segment, tally=tally)

    def _clean_batch(
        self, batch: Batch, rules: _SegmentRules, written: _Written, tally: Tally
    ) -> None:
        compaction = self._round
        can_discard = self._transactions.read(batch)
        records = self._records(batch)
        tally.batches_before += 1
        tally.records_before += len(records)
        tally.stays &= _is_plain(batch, records)
        kept = self._kept_of(batch, records, rules, tally, can_discard=can_discard)
        if isinstance(batch, LegacyBatch):
            self._write_legacy(batch, kept, written)
            return
        header = batch.header
        verdict = decide_batch(
            count=len(records),
            kept=len(kept),
            kept_tombstones=sum(record.value is None for record in kept),
            can_discard=can_discard,
            is_control=header.is_control,
            must_leave_header=self._must_leave_header(batch),
            delete_horizon_ms=header.delete_horizon_ms,
            now_ms=compaction.rules.now_ms,
            delete_retention_ms=compaction.rules.delete_retention_ms,
        )
        if verdict.action is Action.DISCARD:
            return
        written.offsets += [record.offset for record in kept]
        if verdict.action is Action.COPY:
            written.append(bytes(batch.raw), header.last_offset, header.max_timestamp)
        elif verdict.action is Action.EMPTY:
            written.append(build_empty_batch(header), header.last_offset, header.max_timestamp)
        else:
            self._write_rebuilt(batch, kept, verdict.delete_horizon_ms, written)

    def _kept_of(
        self,
        batch: Batch,
        records: list[Record],
        rules: _SegmentRules,
        tally: Tally,
        *,
        can_discard: bool,
    ) -> list[Record]:
        """The records of a batch that stay; counts the others."""
        now_ms = self._round.rules.now_ms
        horizon = None if isinstance(batch, LegacyBatch) else batch.header.delete_horizon_ms
        if should_discard_records(
            can_discard=can_discard,
            is_control=_is_control(batch),
            delete_horizon_ms=horizon,
            now_ms=now_ms,
        ):
            tally.discard("marker" if _is_control(batch) else "aborted", len(records))
            return []
        if _is_control(batch):
            return records
        keep_tombstones = rules.keeps_legacy_tombstones
        if not isinstance(batch, LegacyBatch):
            keep_tombstones = should_retain_tombstone(delete_horizon_ms=horizon, now_ms=now_ms)
        kept = []
        for record in records:
            reason = self._reason_to_discard(record, rules, keep_tombstones)
            if reason is None:
                kept.append(record)
            else:
                tally.discard(reason)
        return kept

    def _reason_to_discard(
        self,
        record: Record,
        rules: _SegmentRules,
        keep_tombstones: bool,  # named as in Kafka
    ) -> str | None:
        """The field of `Discarded` that counts a record; None if it stays."""
        if record.offset >= self._round.first_uncleanable:
            return None
        if record.key is None:
            return "unkeyed" if rules.is_indexed else "superseded"
        newest = rules.newest
        is_below = record.offset < self._round.first_dirty
        if newest.beats(record.key, record) or (
            is_below and self._round.rules.versions is not None
        ):
            return "superseded"
        if newest.is_pinned(record.key, record):
            return None
        if is_removed(record, self._round.rules):
            return "expired"
        return None if record.value is not None or keep_tombstones else "tombstone"

    def _must_leave_header(self, batch: RecordBatch) -> bool:
        header = batch.header
        if header.has_producer_id and is_last_of_producer(
            self._last_records.get(header.producer_id),
            last_offset=header.last_offset,
            producer_epoch=header.producer_epoch,
            is_control=header.is_control,
        ):
            return True
        return header.next_offset == self._round.retained_end

    def _write_rebuilt(
        self, batch: RecordBatch, kept: list[Record], horizon: int | None, written: _Written
    ) -> None:
        header = batch.header
        data = build_batch(
            kept,
            base_offset=header.base_offset,
            codec=header.codec,
            timestamp_type=header.timestamp_type,
            log_append_time_ms=header.max_timestamp,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            partition_leader_epoch=header.partition_leader_epoch,
            last_offset=header.last_offset,
            delete_horizon_ms=horizon,
        )
        newest = max(-1, *(record.timestamp for record in kept))
        if header.timestamp_type == LOG_APPEND_TIME:
            newest = header.max_timestamp
        if self._round.recompresses and has_grown(batch.size_bytes, len(data)):
            data = bytes(denser(memoryview(data)))
        written.append(data, header.last_offset, newest)

    def _write_legacy(self, batch: LegacyBatch, kept: list[Record], written: _Written) -> None:
        """Records of magic 0 and 1 are written as magic 2, whether or not any was lost."""
        if not kept:
            return
        append_time = batch.timestamp_type == LOG_APPEND_TIME
        data = build_batch(
            kept,
            base_offset=kept[0].offset,
            codec=batch.codec,
            timestamp_type=LOG_APPEND_TIME if append_time else CREATE_TIME,
            log_append_time_ms=batch.max_timestamp if append_time else -1,
        )
        newest = max(-1, *(record.timestamp for record in kept))
        written.offsets += [record.offset for record in kept]
        written.append(data, kept[-1].offset, batch.max_timestamp if append_time else newest)

    # ---- reading

    def _path(self, base_offset: int) -> Path:
        return self._round.directory / segment_file_name(base_offset, LOG_SUFFIX)

    def _batches(self, base_offset: int) -> list[Batch]:
        path = self._path(base_offset)
        data = self._round.fs.read_bytes(path)
        found: list[Batch] = []
        position, next_offset = 0, base_offset
        try:
            for at, batch in iter_batches(data):
                position = at
                batch.require_valid()
                if batch.base_offset < next_offset:
                    raise CorruptError(f"a batch at offset {batch.base_offset}, out of order")
                next_offset = batch.next_offset
                found.append(batch)
            position = sum(batch.size_bytes for batch in found)
            if position != len(data):
                raise CorruptError("a batch that is cut off")
        except CorruptError as error:
            raise error.located(path=str(path), base_position=position) from error
        return found

    def _records(self, batch: Batch) -> list[Record]:
        if isinstance(batch, LegacyBatch):
            return batch.records(record_bytes_max=self._round.bounds.record_bytes_max)
        bounds = self._round.bounds
        return list(
            batch.iter_records(
                size_max=bounds.batch_bytes_max, record_bytes_max=bounds.record_bytes_max
            )
        )

    def _aborted_in(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [start, end).

        Source: UnifiedLog.collectAbortedTransactions, TransactionIndex.collectAbortedTxns.
        """
        return [
            entry
            for entry in self._round.aborted
            if entry.last_offset >= start and entry.first_offset < end
        ]


def clean_by_reference(compaction: LogCompaction) -> list[CleanedSegment]:
    """The output of each group of a compaction, in one segment however large."""
    return ReferenceCleaner(ReferenceRound.of(compaction)).clean()


def segments_by_reference(compaction: LogCompaction) -> list[list[CleanedSegment]]:
    """The output of each group of a compaction: several segments if it outgrows its sources."""
    return [
        cleaned.divided(
            max(
                compaction.segment_bytes, sum(each.size_bytes for each in compaction.group(number))
            ),
            interval_bytes=compaction.index_interval_bytes,
        )
        for number, cleaned in enumerate(clean_by_reference(compaction))
    ]


def _is_control(batch: Batch) -> bool:
    return not isinstance(batch, LegacyBatch) and batch.header.is_control


def _is_plain(batch: Batch, records: Sequence[Record]) -> bool:
    """Whether the bytes of a batch stay as they are if all its records stay."""
    if isinstance(batch, LegacyBatch) or not records:
        return False
    header = batch.header
    return not (
        header.is_control
        or header.is_transactional
        or any(record.value is None for record in records)
    )
