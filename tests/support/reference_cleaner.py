"""The slow and obvious cleaner: what the fast one must give, byte for byte.

One batch at a time, one record at a time, with a dict for the offset map and Kafka's own sequential
bookkeeping of transactions. Nothing here is compiled, split up or run side by side, and no bits are
counted: what it gives is right because it can be read.

Source: org.apache.kafka.storage.internals.log.Cleaner (buildOffsetMap, cleanSegments, cleanInto,
shouldDiscardBatch, shouldRetainRecord), CleanedTransactionMetadata, LogSegment.append,
org.apache.kafka.common.record.MemoryRecords.filterTo; KIP-98, KIP-534.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cordwood.cleanup.compaction_values import LastRecord, VersionRule
from cordwood.cleanup.log_compaction import LogCompaction
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
    CREATE_TIME,
    LOG_APPEND_TIME,
    Record,
    RecordBatch,
    build_batch,
    build_empty_batch,
    iter_batches,
)
from cordwood.format.time_index import build_time_index
from cordwood.format.transaction_index import AbortedTransaction, build_transaction_index
from cordwood.storage.filesystem import OS, FileSystem
from support.log_builder import index_entries
from support.reference_rules import (
    Action,
    Highest,
    decide_batch,
    has_expired,
    is_last_of_producer,
    should_discard_records,
    should_retain_tombstone,
)

Batch = RecordBatch | LegacyBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRound:
    """A compaction of the segments in `directory`; `groups` holds base offsets, a tuple each."""

    directory: Path
    first_dirty: int
    first_uncleanable: int
    groups: tuple[tuple[int, ...], ...]
    now_ms: int
    delete_retention_ms: int
    index_interval_bytes: int
    legacy_horizon_ms: int = 0
    producers: tuple[LastRecord, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    versions: VersionRule | None = None
    ttl_header: str = ""
    fs: FileSystem = OS

    @classmethod
    def of(cls, compaction: LogCompaction, *, fs: FileSystem = OS) -> ReferenceRound:
        """The same compaction, as the fast cleaner is given it."""
        return cls(
            directory=Path(compaction.directory),
            first_dirty=compaction.first_dirty,
            first_uncleanable=compaction.first_uncleanable,
            groups=compaction.groups,
            now_ms=compaction.now_ms,
            delete_retention_ms=compaction.delete_retention_ms,
            index_interval_bytes=compaction.index_interval_bytes,
            legacy_horizon_ms=compaction.legacy_horizon_ms,
            producers=compaction.producers,
            aborted=compaction.aborted,
            versions=compaction.versions,
            ttl_header=compaction.ttl_header,
            fs=fs,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedSegment:
    """What a group becomes: the bytes of its files by suffix, without a file that is not there.

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
        for fact in self.facts:
            if pieces[-1] and sum(size for size, *_ in pieces[-1]) + fact[0] > segment_bytes:
                pieces.append([])
            pieces[-1].append(fact)
        found: list[CleanedSegment] = []
        begin, log = 0, self.files[LOG_SUFFIX]
        for piece in pieces:
            data = log[begin : begin + sum(size for size, *_ in piece)]
            base = int.from_bytes(data[:8]) if begin else self.base_offset
            last = piece[-1][1] if piece else base
            begin += len(data)
            found.append(
                _segment_of(
                    base,
                    data,
                    piece,
                    interval_bytes=interval_bytes,
                    aborted=[each for each in self.aborted if base <= each.last_offset <= last],
                    modified_ns=self.modified_ns,
                    offsets=[each for each in self.offsets if base <= each <= last],
                )
            )
        return found


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

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, AbortedTransaction]] = []
        self._ongoing_committed: set[int] = set()
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
            self._ongoing_aborted.setdefault(entry.producer_id, (entry, False))

    def data_batch(self, producer_id: int, last_offset: int, *, transactional: bool) -> bool:
        """Whether a data batch may be discarded."""
        self._begin_up_to(last_offset)
        if not transactional:
            return False
        if producer_id in self._ongoing_aborted:
            self._ongoing_aborted[producer_id] = (self._ongoing_aborted[producer_id][0], True)
            return True
        self._ongoing_committed.add(producer_id)
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
            seen = producer_id in self._ongoing_committed
            self._ongoing_committed.discard(producer_id)
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


class ReferenceCleaner:
    """Cleans one compaction in memory; touches no file."""

    def __init__(self, compaction: ReferenceRound) -> None:
        self._round = compaction
        self._transactions = SequentialTransactions()
        self._last_records = {p.producer_id: p for p in compaction.producers}

    def clean(self) -> list[CleanedSegment]:
        """What each group becomes, in order."""
        newest = self._offset_map()
        return [self._clean_group(group, newest) for group in self._round.groups]

    # ---- first pass

    def _offset_map(self) -> Highest:
        """The newest record of each key of the dirty section, or that of the highest version."""
        compaction = self._round
        newest = Highest(compaction.versions)
        transactions = SequentialTransactions()
        transactions.add(self._aborted_in(compaction.first_dirty, compaction.first_uncleanable))
        for base in (base for group in compaction.groups for base in group):
            for batch in self._batches(base):
                if batch.last_offset < compaction.first_dirty:
                    continue
                if transactions.read(batch) or _is_control(batch):
                    continue
                for record in batch.records():
                    if record.key is not None and record.offset >= compaction.first_dirty:
                        newest.add(record.key, record)
        return newest

    # ---- second pass

    def _clean_group(self, group: tuple[int, ...], newest: Highest) -> CleanedSegment:
        compaction = self._round
        written = _Written()
        self._transactions.kept_aborted = []
        modified_ns = 0
        for number, base in enumerate(group):
            batches = self._batches(base)
            end = batches[-1].next_offset if batches else base
            if number + 1 < len(group):
                end = group[number + 1]
            self._transactions.add(self._aborted_in(base, end))
            modified_ns = compaction.fs.facts_of(self._path(base)).modified_ns
            keep_legacy_tombstones = modified_ns // 1_000_000 > compaction.legacy_horizon_ms
            for batch in batches:
                self._clean_batch(batch, newest, written, keep_legacy_tombstones)
        return _segment_of(
            group[0],
            bytes(written.data),
            written.facts,
            interval_bytes=compaction.index_interval_bytes,
            aborted=self._transactions.kept_aborted,
            modified_ns=modified_ns // 1_000_000 * 1_000_000,
            offsets=written.offsets,
        )

    def _clean_batch(
        self,
        batch: Batch,
        newest: Highest,
        written: _Written,
        keep_legacy_tombstones: bool,  # named as in Kafka
    ) -> None:
        compaction = self._round
        can_discard = self._transactions.read(batch)
        horizon = None if isinstance(batch, LegacyBatch) else batch.header.delete_horizon_ms
        discard_records = should_discard_records(
            can_discard=can_discard,
            is_control=_is_control(batch),
            delete_horizon_ms=horizon,
            now_ms=compaction.now_ms,
        )
        keep_tombstones = keep_legacy_tombstones
        if not isinstance(batch, LegacyBatch):
            keep_tombstones = should_retain_tombstone(
                delete_horizon_ms=horizon, now_ms=compaction.now_ms
            )
        records = batch.records()
        kept = (
            []
            if discard_records
            else [
                record
                for record in records
                if _is_control(batch) or self._should_retain(record, newest, keep_tombstones)
            ]
        )
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
            delete_horizon_ms=horizon,
            now_ms=compaction.now_ms,
            delete_retention_ms=compaction.delete_retention_ms,
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

    def _should_retain(
        self,
        record: Record,
        newest: Highest,
        keep_tombstones: bool,  # named as in Kafka
    ) -> bool:
        if record.offset >= self._round.first_uncleanable:
            return True
        if record.key is None:
            return False
        is_below = record.offset < self._round.first_dirty
        if newest.beats(record.key, record) or (is_below and self._round.versions is not None):
            return False
        is_pinned = newest.is_pinned(record.key, record)
        if has_expired(record, self._round.ttl_header, self._round.now_ms) and not is_pinned:
            return False
        keep_tombstones = keep_tombstones or is_pinned
        return record.value is not None or keep_tombstones

    def _must_leave_header(self, batch: RecordBatch) -> bool:
        header = batch.header
        if header.has_producer_id and is_last_of_producer(
            self._last_records.get(header.producer_id),
            last_offset=header.last_offset,
            producer_epoch=header.producer_epoch,
            is_control=header.is_control,
        ):
            return True
        return header.next_offset == self._round.first_uncleanable

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
        data = self._round.fs.read_bytes(self._path(base_offset))
        batches = [batch for _, batch in iter_batches(data)]
        assert sum(b.size_bytes for b in batches) == len(data), f"a torn batch in {base_offset}"
        for batch in batches:
            batch.require_valid()
        return batches

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
    """What each group of a compaction becomes, in one segment however large."""
    return ReferenceCleaner(ReferenceRound.of(compaction)).clean()


def segments_by_reference(compaction: LogCompaction) -> list[list[CleanedSegment]]:
    """What each group of a compaction becomes: several segments if it outgrows its sources."""
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
