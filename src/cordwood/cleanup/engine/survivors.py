"""Finds surviving records, as one bit a record: indexes the dirty section, probes the clean one.

The key of every record of the dirty section goes into a table that keeps its newest record. Within
a chunk (some consecutive segments that one task reads) records are numbered by their order: the
*ordinal*, which starts again at a multiple of 8 at each segment so that the bits of a segment are
whole bytes. A chunk whose keys outgrow the table's budget spills: the table is emptied into entries
by shard, as a *generation*, and filled again. `merge` then finds, over all chunks and generations
of a shard, the entries that a newer one supersedes.

Where records have versions (KIP-280), the table keeps the record of the highest version of each
key, of the whole log, and the merge compares them.

Source: org.apache.kafka.storage.internals.log.Cleaner.buildOffsetMap, with no limit on the number
of keys, so that one compaction always covers the whole dirty section.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.engine.merge import TABLE_SLOTS_MIN
from cordwood.cleanup.engine.segment_facts import SegmentFacts
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.rules.record_longs import RecordLongs, RemovalReader
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.cleanup.rules.transactions import TransactionTracker
from cordwood.format.control_record import parse_control_type_id
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels, key_table, records
from cordwood.format.record_batch import (
    CONTROL_RECORDS_BYTES_MAX,
)
from cordwood.model.errors import CorruptError, EngineError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.aborted import AbortedTransactions
from cordwood.storage.reading.block import Block, Bytes, Flags, Ints, Payload
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

_OFFSETS_PER_SEGMENT = 1 << 31
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_HORIZON = 0x40
#: Bytes of one entry of a spill.
ENTRY_BYTES = key_table.SLOT_BYTES
# A table is made with space for so many keys at most; beyond that it grows as keys come.
_ENTRIES_AT_FIRST = 1 << 21
_ENTRIES_A_PIECE = 1 << 14
# A table grows when a log has fewer records of a key than this: less work than a table too large
# for the processor's cache.
_RECORDS_A_KEY = 8

Progress = Callable[[int], None]


def no_progress(_bytes: int) -> None:
    """Ignores progress."""


class TableFullError(EngineError):
    """A log has more keys than the memory of one task holds."""


class _Bits:
    """A growing array of bits, all clear at first."""

    def __init__(self) -> None:
        self.bytes = np.zeros(1 << 12, dtype=np.uint8)

    def require(self, bits: int) -> None:
        if bits > 8 * self.bytes.shape[0]:
            bigger = np.zeros(max(bits // 8 + 64, 2 * self.bytes.shape[0]), dtype=np.uint8)
            bigger[: self.bytes.shape[0]] = self.bytes
            self.bytes = bigger


@dataclass(slots=True)
class Spill:
    """The keys of one generation: `entries` is uint64 (n, 4), shard `s` at `starts[s]`."""

    generation: int
    entries: npt.NDArray[np.uint64]
    starts: Ints


class Walk:
    """Walks segments in order and learns which of their records survive.

    The same walk serves both sections: above `first_dirty` keys go into the table, below it they
    are looked up in it, or spilled as well when `spill_clean` is set.
    """

    def __init__(
        self,
        *,
        first_dirty: int,
        aborted: AbortedTransactions,
        secrets: Secrets,
        progress: Progress = no_progress,
        bounds: ReadBounds = WIDEST,
        rules: RecordRules,
        fs: FileSystem = OS,
    ) -> None:
        """Creates a walk; with versions in `rules` the table has the highest one of each key."""
        versions = rules.versions
        self._removals = RemovalReader.of(rules)
        self._versions = None if versions is None else RecordLongs.of_versions(versions)
        self._words = key_table.SLOT_WORDS
        if versions is not None:
            self._words = key_table.VERSIONED_SLOT_WORDS
        self._first_dirty = first_dirty
        self._aborted = aborted
        self._secrets = secrets.words
        self._progress = progress
        self._reader = SegmentReader(bounds=bounds, fs=fs)
        self.table = key_table.new_table(TABLE_SLOTS_MIN, self._words)
        self.used = np.zeros(1, dtype=np.int64)

    def index(
        self,
        segments: Sequence[SegmentSource],
        *,
        entries_max: int,
        spills: bool = True,
        shards: int = 1,
    ) -> Generator[Spill, None, list[SegmentFacts]]:
        """Inserts the keys of `segments` into the table; returns the newest records so far.

        Args:
            segments: in offset order.
            entries_max: the table is emptied into a spill before it holds many more, and at the
                end.
            spills: whether there may be spills; if not, all keys are kept in the table.
            shards: how many parts a spill is split into.

        Yields:
            Generations, oldest first.

        Returns:
            The facts of each segment.

        Raises:
            TableFullError: there may be no spills, and one would be due.
            CorruptError: a segment is damaged.
        """
        newest, keyed, nulls, pinned = _Bits(), _Bits(), _Bits(), _Bits()
        facts: list[SegmentFacts] = []
        ordinal = generation = 0
        starts: list[int] = []
        entries_max = self._capacity(entries_max)
        offsets = sum(s.next_base_offset - s.base_offset for s in segments)
        self._make_room(min(offsets, entries_max, _ENTRIES_AT_FIRST) // _RECORDS_A_KEY)
        for segment in segments:
            ordinal = -(-ordinal // 8) * 8
            starts.append(ordinal)
            walk = _SegmentWalk(segment, self._aborted)
            for block in self._reader.blocks(segment):
                wanted, ordinals, after = walk.begin(block, ordinal)
                for bits in (newest, keyed, nulls, pinned):
                    bits.require(after)
                for payload in self._read(block, wanted, walk):
                    row = payload.first
                    while row < payload.last:
                        status, row = self._insert(payload, row, ordinals, keyed.bytes, nulls.bytes)
                        if status == records.BAD_RECORD:
                            raise block.bad_record(row)
                        if status == records.TABLE_FULL:
                            if self.used[0] >= entries_max:
                                if not spills:
                                    raise TableFullError(f"more than {entries_max} keys")
                                yield self._empty_table(newest.bytes, generation, shards)
                                generation += 1
                            self._make_room(int(block.counts[row]))
                walk.end(block, ordinals, wanted, keyed.bytes, nulls.bytes)
                ordinal = after
                self._progress(block.size_bytes)
            facts.append(walk.done())
        if not spills:
            self._mark(newest.bytes, pinned.bytes)
        else:
            yield self._empty_table(newest.bytes, generation, shards)
        for fact, first in zip(facts, starts, strict=True):
            fact.keep = _bits_from(newest.bytes, first, fact.records)
            fact.nulls = _bits_from(nulls.bytes, first, fact.records)
            fact.pinned = _bits_from(pinned.bytes, first, self._pinned_of(fact))
        return facts

    def _capacity(self, entries_max: int) -> int:
        """The number of keys that fit where `entries_max` do; versions need wider slots."""
        return entries_max if self._versions is None else max(1, entries_max // 2)

    def _read(self, block: Block, wanted: Flags, walk: _SegmentWalk) -> Iterator[Payload]:
        """The payloads of a block; what rules need of their records has been read."""
        for payload in self._reader.payloads(block, wanted):
            if self._versions is not None:
                self._versions.read(payload)
            if self._removals is not None:
                walk.note_expired(block, self._removals.gone(payload))
            yield payload

    def _mark(self, newest: Bytes, pinned: Bytes) -> None:
        kernels.mark_newest(self.table, newest)
        if self._versions is not None:
            kernels.mark_pinned(self.table, pinned)

    def _pinned_of(self, fact: SegmentFacts) -> int:
        """The number of bits for pinned records."""
        return 0 if self._versions is None else fact.records

    def _insert(
        self, payload: Payload, row: int, ordinals: Ints, keyed: Bytes, nulls: Bytes
    ) -> tuple[int, int]:
        """Puts the keys of a payload's batches from `row` on into the table; as the kernels."""
        where = *payload.where_from(row), self._first_dirty
        into = self.table, self.used, keyed, nulls, self._secrets
        if self._versions is None:
            return kernels.index_batches(*where, ordinals, *into)
        values, known = self._versions.values, self._versions.known
        return kernels.index_versions(*where, ordinals, values, known, *into)

    def _empty_table(self, newest: Bytes, generation: int, shards: int) -> Spill:
        kernels.mark_newest(self.table, newest)
        entries, starts = kernels.split_table(self.table, shards, self._secrets)
        self.table[:] = 0
        self.used[0] = 0
        return Spill(generation, entries, starts)

    def probe(self, segments: Sequence[SegmentSource]) -> list[SegmentFacts]:
        """Marks records below the first dirty offset that have no newer one in the table.

        Records at or above it are left clear; `index` has judged them.
        """
        facts: list[SegmentFacts] = []
        for segment in segments:
            keep, nulls = _Bits(), _Bits()
            walk = _SegmentWalk(segment, self._aborted)
            ordinal = 0
            for block in self._reader.blocks(segment):
                wanted, ordinals, after = walk.begin(block, ordinal)
                keep.require(after)
                nulls.require(after)
                for payload in self._read(block, wanted, walk):
                    status, row = kernels.probe_batches(
                        *payload.where,
                        self._first_dirty,
                        ordinals,
                        self.table,
                        keep.bytes,
                        nulls.bytes,
                        self._secrets,
                    )
                    if status == records.BAD_RECORD:
                        raise block.bad_record(row)
                walk.end(block, ordinals, wanted, None, nulls.bytes)
                ordinal = after
                self._progress(block.size_bytes)
            walk.facts.keep = _bits_from(keep.bytes, 0, walk.facts.records)
            walk.facts.nulls = _bits_from(nulls.bytes, 0, walk.facts.records)
            facts.append(walk.done())
        return facts

    def spill_clean(
        self, segments: Sequence[SegmentSource], *, entries_max: int, shards: int
    ) -> Generator[Spill, None, list[SegmentFacts]]:
        """Spills the key of every record below the first dirty offset, for a merge to look up.

        In the facts returned every keyed record below the first dirty offset is kept; the merge
        says which are not. Arguments and results are those of `index`.
        """
        keep, nulls = _Bits(), _Bits()
        entries = np.empty((entries_max, key_table.SLOT_WORDS), dtype=np.uint64)
        used = np.zeros(1, dtype=np.int64)
        facts: list[SegmentFacts] = []
        ordinal = generation = 0
        starts: list[int] = []
        for segment in segments:
            ordinal = -(-ordinal // 8) * 8
            starts.append(ordinal)
            walk = _SegmentWalk(segment, self._aborted)
            keyed = _Bits()
            for block in self._reader.blocks(segment):
                wanted, ordinals, after = walk.begin(block, ordinal)
                for bits in (keep, nulls, keyed):
                    bits.require(after)
                for payload in self._read(block, wanted, walk):
                    row = payload.first
                    while row < payload.last:
                        status, row = kernels.list_batches(
                            *payload.where_from(row),
                            self._first_dirty,
                            ordinals,
                            entries,
                            used,
                            keyed.bytes,
                            nulls.bytes,
                            self._secrets,
                        )
                        if status == records.BAD_RECORD:
                            raise block.bad_record(row)
                        if status == records.TABLE_FULL:
                            yield self._listed(entries, used, keep.bytes, generation, shards)
                            generation += 1
                            count = int(block.counts[row])
                            if count > entries.shape[0]:
                                entries = np.empty((count, key_table.SLOT_WORDS), dtype=np.uint64)
                walk.end(block, ordinals, wanted, keyed.bytes, nulls.bytes)
                ordinal = after
                self._progress(block.size_bytes)
            facts.append(walk.done())
        yield self._listed(entries, used, keep.bytes, generation, shards)
        for fact, first in zip(facts, starts, strict=True):
            fact.keep = _bits_from(keep.bytes, first, fact.records)
            fact.nulls = _bits_from(nulls.bytes, first, fact.records)
        return facts

    def _listed(
        self,
        entries: npt.NDArray[np.uint64],
        used: Ints,
        keep: Bytes,
        generation: int,
        shards: int,
    ) -> Spill:
        count = int(used[0])
        kernels.set_bits(keep, np.ascontiguousarray(entries[:count, 3]))
        used[0] = 0
        return Spill(generation, *kernels.split_entries(entries, count, shards, self._secrets))

    def release_entries(self) -> npt.NDArray[np.uint64]:
        """Empties the table; what was in it, as uint64 (n, 4)."""
        entries, _ = kernels.split_table(self.table, 1, self._secrets)
        self.table = key_table.new_table(TABLE_SLOTS_MIN, self._words)
        self.used[0] = 0
        return entries

    def add_older(self, entries: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        """Adds the entries of an older chunk; the ordinals of those that the table supersedes."""
        dead = np.empty(len(entries), dtype=np.uint64)
        count = 0
        # In pieces: most are in the table already, which then need not grow.
        for first in range(0, len(entries), _ENTRIES_A_PIECE):
            piece = entries[first : first + _ENTRIES_A_PIECE]
            self._make_room(len(piece))
            count += kernels.merge_entries(
                piece, self.table, self.used, dead[count:], self._secrets, True
            )
        return dead[:count]

    def load_entries(self, entries: npt.NDArray[np.uint64]) -> None:
        """Adds the identities in `entries` (uint64, at least 3 columns) to the table."""
        self._make_room(len(entries))
        rows = np.zeros((len(entries), key_table.SLOT_WORDS), dtype=np.uint64)
        rows[:, :3] = entries[:, :3]
        dead = np.empty(len(entries), dtype=np.uint64)
        kernels.merge_entries(rows, self.table, self.used, dead, self._secrets, True)

    def _make_room(self, count: int) -> None:
        slots = self.table.shape[0]
        while (int(self.used[0]) + count) * 2 > slots:
            slots *= 2
        if slots == self.table.shape[0]:
            return
        if not self.used[0]:
            self.table = key_table.new_table(slots, self._words)
        else:
            self.table = kernels.grow_table(self.table, slots, self._secrets)


class _SegmentWalk:
    """Per-segment bookkeeping of a walk: ordinals, transactions, order of offsets."""

    def __init__(self, source: SegmentSource, aborted: AbortedTransactions) -> None:
        self._source = source
        self._tracker = TransactionTracker(aborted)
        self._next_offset = source.base_offset
        self._expired: list[Ints] = []
        self.facts = SegmentFacts(source.base_offset, transactions=self._tracker.summary)

    def begin(self, block: Block, ordinal: int) -> tuple[npt.NDArray[np.bool_], Ints, int]:
        """(rows with keys to look at, each row's first ordinal, the ordinal after the block)."""
        table = block.table
        self._require_order(block)
        counts, ordinals, wanted = block.counts, block.ordinals(ordinal), block.has_data
        attributes = table[:, rows_of.ATTRIBUTES]
        facts = self.facts
        facts.batches += block.rows
        special = block.legacy is not None or bool(
            np.any(attributes & (_CONTROL | _TRANSACTIONAL)) or np.any(counts == 0)
        )
        facts.special |= special
        for row in np.flatnonzero(attributes & (_CONTROL | _TRANSACTIONAL)).tolist():
            if verdict_of(self._tracker, block, row) and not attributes[row] & _CONTROL:
                wanted[row] = False
                facts.aborted += int(counts[row])
        records = block.records_count
        facts.records += records
        return wanted, ordinals, ordinal + records

    def end(
        self,
        block: Block,
        ordinals: Ints,
        wanted: npt.NDArray[np.bool_],
        keyed: Bytes | None,
        nulls: Bytes,
    ) -> None:
        """Counts what the kernels marked."""
        if not block.rows:
            return
        first = int(ordinals[0])
        count = block.records_count
        if keyed is not None:
            total = int(block.counts[wanted].sum())
            self.facts.unkeyed += total - kernels.count_bits(keyed, first, count)
        if not self.facts.special and kernels.count_bits(nulls, first, count):
            # A tombstone: its batch is stamped with a horizon, or is past it.
            self.facts.special = True

    def note_expired(self, block: Block, found: Ints) -> None:
        """Notes records of the block that `begin` was last called with, by number within it."""
        if len(found):
            first = self.facts.records - block.records_count
            self._expired.append(first + found)

    def done(self) -> SegmentFacts:
        """The facts about the segment, when all of it has been read."""
        if self._expired:
            bits = np.zeros(self.facts.records, dtype=np.bool_)
            bits[np.concatenate(self._expired)] = True
            self.facts.expired = np.packbits(bits, bitorder="little").tobytes()
        return self.facts

    def _require_order(self, block: Block) -> None:
        bases = block.table[:, rows_of.BASE_OFFSET]
        lasts = block.table[:, rows_of.LAST_OFFSET]
        previous = np.concatenate(([self._next_offset - 1], lasts[:-1]))
        wrong = np.flatnonzero(bases <= previous)
        # Old brokers could write offsets out of an index's reach: the loader splits such a segment.
        end = min(self._source.next_base_offset, self._source.base_offset + _OFFSETS_PER_SEGMENT)
        beyond = np.flatnonzero(lasts >= end)
        if len(wrong) or len(beyond):
            row = int(min([*wrong[:1], *beyond[:1]]))
            raise block.bad_record(
                row,
                f"a batch of offsets {bases[row]} to {lasts[row]} where offsets from "
                f"{previous[row] + 1} to {end - 1} belong",
            )
        if block.rows:
            self._next_offset = int(lasts[-1]) + 1


def verdict_of(tracker: TransactionTracker, block: Block, row: int) -> bool:
    """Whether a transactional or control batch may be discarded.

    Raises:
        CorruptError: a control batch cannot be read.
    """
    attributes = int(block.table[row, rows_of.ATTRIBUTES])
    producer_id = int(block.table[row, rows_of.PRODUCER_ID])
    base_offset = int(block.table[row, rows_of.BASE_OFFSET])
    last_offset = int(block.table[row, rows_of.LAST_OFFSET])
    if not attributes & _CONTROL:
        return bool(attributes & _TRANSACTIONAL) and tracker.data_batch(
            producer_id, base_offset, last_offset
        )
    control = None
    if int(block.counts[row]):
        record = next(block.records(row, size_max=CONTROL_RECORDS_BYTES_MAX))
        try:
            control = parse_control_type_id(record.key)
        except CorruptError as error:
            raise block.located(error, row) from error
    return tracker.control_batch(producer_id, last_offset, control)


def discardable(tracker: TransactionTracker, block: Block) -> Flags:
    """Flags the batches of a block by `verdict_of`, each as the tracker's next. Raises as that."""
    found = np.zeros(block.rows, dtype=np.bool_)
    attributes = block.table[:, rows_of.ATTRIBUTES]
    for row in np.flatnonzero(attributes & (_CONTROL | _TRANSACTIONAL)).tolist():
        found[row] = verdict_of(tracker, block, row)
    return found


def _bits_from(bits: Bytes, first: int, count: int) -> bytes:
    assert first % 8 == 0, f"a segment's bits start inside a byte: {first}"
    return bits[first // 8 : (first + count + 7) // 8].tobytes()
