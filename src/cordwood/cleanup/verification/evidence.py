"""Evidence of which records must stay and which must go, found before a rewrite.

A second index of the whole compaction, independent of the one that decides: its own secrets, its
own walk over records, the clean and the dirty section alike, no chunks that are merged, and the
fate of transactions from their markers. If the keys do not fit its memory, it is made in several
passes, of a share of the keys each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.plan.compaction_values import SegmentEvidence
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.rules.record_longs import RecordLongs, RemovalReader
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.cleanup.rules.transactions import TransactionSummary
from cordwood.cleanup.rules.versions import VersionRule
from cordwood.cleanup.verification.transactions import Transactions
from cordwood.format.batch_header import DELETE_HORIZON_BIT
from cordwood.format.native import batches as rows_of
from cordwood.format.native import contents, kernels, key_table, records
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.block import Block, Bytes, Flags, Ints, Payload
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

_OTHER_SECRETS = 0x9E3779B97F4A7C15
_SLOTS_MIN = 1 << 12
_SHARDS_MAX = 1 << 12
_OFFSET_MAX = (1 << 63) - 1
# A record to be sorted: identity, ordinal, whether it has a version, and the version.
_SORTED_COLUMNS = 6
_MIX = np.uint64(0x9E3779B97F4A7C15)

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Input of the evidence of a compaction, beside its segments; fields as there."""

    rules: RecordRules
    seed: int
    log_start_offset: int = 0
    aborted: tuple[AbortedTransaction, ...] = ()
    before: TransactionSummary = field(default_factory=TransactionSummary)
    bounds: ReadBounds = WIDEST

    @classmethod
    def of(cls, compaction: LogCompaction) -> Scope:
        """The scope of a compaction."""
        return cls(
            rules=compaction.rules,
            seed=compaction.seed,
            log_start_offset=compaction.log_start_offset,
            aborted=compaction.aborted,
            # Where records have versions, the segments in place are looked at as well.
            before=TransactionSummary.from_json(compaction.before)
            if compaction.rules.versions is None
            else TransactionSummary(),
            bounds=compaction.bounds,
        )


def find_evidence(
    scope: Scope,
    segments: Sequence[SegmentSource],
    *,
    entries_max: int,
    progress: Sequence[Progress] = (lambda _: None,),
    fs: FileSystem = OS,
) -> dict[int, SegmentEvidence]:
    """The evidence for each of the last segments of a compaction, by base offset.

    Args:
        scope: of the compaction.
        segments: all that are not replaced yet.
        entries_max: how many keys a thread holds at once.
        progress: of each thread, and so many passes are made side by side: gets the bytes read. It
            may raise what ends the search.
        fs: where they are.

    Raises:
        CorruptError: a segment is damaged.
        OSError: one cannot be read.
    """
    transactions = Transactions(
        log_start_offset=scope.log_start_offset,
        before=scope.before,
    )
    starts, total = [], 0
    reader = SegmentReader(bounds=scope.bounds, fs=fs)
    for segment in segments:
        starts.append(total)
        for block in reader.blocks(segment):
            transactions.note(block)
            total += block.records_count
            progress[0](block.size_bytes)
        total = -(-total // 8) * 8
    end = segments[-1].next_base_offset if segments else 0
    transactions.end(each for each in scope.aborted if each.last_offset >= end)
    free: SimpleQueue[Progress] = SimpleQueue()
    for each in progress:
        free.put(each)
    shards = len(progress)
    while True:
        walks = [
            _Walk(scope, segments, starts, total, transactions, free, fs) for _ in range(shards)
        ]
        with ThreadPoolExecutor(len(progress), thread_name_prefix="evidence") as pool:
            fits = list(
                pool.map(lambda n, w=walks, s=shards: w[n].run(n, s, entries_max), range(shards))
            )
        if all(fits) or shards >= _SHARDS_MAX:
            break
        shards *= 2
    newest = np.bitwise_or.reduce([walk.newest for walk in walks])
    pinned = np.bitwise_or.reduce([walk.pinned for walk in walks])
    return walks[0].evidence(newest, pinned)


class _Walk:
    """A walk over all records, for one shard of the keys.

    Of the records with versions, `pinned` has the highest of a key that is not the newest.
    """

    def __init__(
        self,
        scope: Scope,
        segments: Sequence[SegmentSource],
        starts: Sequence[int],
        records: int,
        transactions: Transactions,
        free: SimpleQueue[Progress],
        fs: FileSystem,
    ) -> None:
        self._scope = scope
        self._segments = segments
        self._starts = starts
        self._transactions = transactions
        self._free = free
        self._fs = fs
        self._secrets = Secrets.from_seed(scope.seed ^ _OTHER_SECRETS).words
        self.newest, self.pinned, self._unkeyed, self._nulls = (
            np.zeros(records // 8 + 8, dtype=np.uint8) for _ in range(4)
        )
        # Of records: markers that must stay, may go as tombstones, aborted, below the log start,
        # expired.
        self._markers, self._deletable, self._aborted, self._below, self._expired = (
            np.zeros(records, dtype=np.bool_) for _ in range(5)
        )
        self._removals = RemovalReader.of(scope.rules)

    def run(self, shard: int, shards: int, entries_max: int) -> bool:
        """Finds the newest records of the keys of a shard; False if there are too many."""
        progress = self._free.get()
        try:
            rule = self._scope.rules.versions
            if rule is not None:
                return self._run_versions(rule, shard, shards, entries_max, progress)
            return self._run_offsets(shard, shards, entries_max, progress)
        finally:
            self._free.put(progress)

    def _run_offsets(self, shard: int, shards: int, entries_max: int, progress: Progress) -> bool:
        reader = SegmentReader(bounds=self._scope.bounds, fs=self._fs)
        table, used = key_table.new_table(_SLOTS_MIN), np.zeros(1, dtype=np.int64)
        for segment, start in zip(self._segments, self._starts, strict=True):
            ordinal = start
            for block in reader.blocks(segment):
                ordinals = block.ordinals(ordinal)
                aborted = self._transactions.aborted(block.table)
                if shard == 0:
                    self._note_batches(block, aborted, ordinal)
                for payload in reader.payloads(block, block.has_data & ~aborted):
                    self._note_expired(payload, ordinal)
                    row = payload.first
                    while row < payload.last:
                        status, row = kernels.newest_of_shard(
                            *payload.where_from(row),
                            ordinals,
                            table,
                            used,
                            self._unkeyed,
                            self._nulls,
                            self._secrets,
                            shard,
                            shards,
                        )
                        if status == contents.FULL:
                            if used[0] >= entries_max and shards < _SHARDS_MAX:
                                return False
                            wide = int(block.counts[row])
                            table = self._grown(table, int(used[0]) + wide)
                        elif status != contents.SOUND:
                            raise block.bad_record(row)
                ordinal += block.records_count
                progress(block.size_bytes)
        kernels.mark_newest(table, self.newest)
        return True

    def _run_versions(
        self, rule: VersionRule, shard: int, shards: int, entries_max: int, progress: Progress
    ) -> bool:
        """The same by versions: the records of a shard are sorted, and the last of a key counts."""
        reader = SegmentReader(bounds=self._scope.bounds, fs=self._fs)
        versions = RecordLongs.of_versions(rule)
        found = [np.empty((0, _SORTED_COLUMNS), dtype=np.uint64)]
        for segment, start in zip(self._segments, self._starts, strict=True):
            ordinal, taken = start, 0
            for block in reader.blocks(segment):
                ordinals = block.ordinals(ordinal)
                aborted = self._transactions.aborted(block.table)
                if shard == 0:
                    self._note_batches(block, aborted, ordinal)
                for payload in reader.payloads(block, block.has_data & ~aborted):
                    self._note_expired(payload, ordinal)
                    versions.read(payload)
                    entries = self._listed(payload, ordinals)
                    mixed = (entries[:, 0] ^ entries[:, 1]) * _MIX ^ entries[:, 2] * _MIX
                    entries = entries[(mixed >> np.uint64(32)) % np.uint64(shards) == shard]
                    at = entries[:, 3].astype(np.int64) - ordinal
                    known = versions.known[at].astype(np.uint64)
                    # Ordered as unsigned numbers.
                    version = versions.values[at].astype(np.uint64) ^ np.uint64(1 << 63)
                    found.append(np.column_stack((entries, known, version * known)))
                    taken += len(entries)
                ordinal += block.records_count
                if taken > entries_max:
                    found = [np.concatenate(found)]
                    if len(found[0]) > entries_max and shards < _SHARDS_MAX:
                        return False
                progress(block.size_bytes)
        self._settle(np.concatenate(found))
        return True

    def _note_expired(self, payload: Payload, first: int) -> None:
        if self._removals is not None:
            self._expired[first + self._removals.gone(payload)] = True

    def _listed(self, payload: Payload, ordinals: Ints) -> npt.NDArray[np.uint64]:
        """Identity and ordinal of each keyed record from the log start on."""
        room = int(payload.block.counts[payload.first : payload.last].sum())
        lists = []
        for until in (_OFFSET_MAX, self._scope.log_start_offset):
            entries = np.empty((room, key_table.SLOT_WORDS), dtype=np.uint64)
            used = np.zeros(1, dtype=np.int64)
            status, row = kernels.list_batches(
                *payload.where,
                until,
                ordinals,
                entries,
                used,
                self._unkeyed,
                self._nulls,
                self._secrets,
            )
            if status != records.OK:
                raise payload.block.bad_record(row)
            lists.append(entries[: int(used[0])])
        every, below = lists
        return every[len(below) :]  # both are in offset order

    def _settle(self, found: npt.NDArray[np.uint64]) -> None:
        """Marks the highest version of each key, and whether a newer record has a lower one."""
        if not len(found):
            return
        one, two, three, ordinals, known, version = found.T
        order = np.lexsort((ordinals, version, known, three, two, one))
        found, ordinals = found[order], ordinals[order]
        is_first = np.ones(len(found), dtype=np.bool_)
        is_first[1:] = (found[1:, :3] != found[:-1, :3]).any(axis=1)
        firsts = np.flatnonzero(is_first)
        winners = ordinals[np.append(firsts[1:], len(found)) - 1]
        kernels.set_bits(self.newest, np.ascontiguousarray(winners))
        newest = np.maximum.reduceat(ordinals, firsts)
        kernels.set_bits(self.pinned, np.ascontiguousarray(winners[newest > winners]))

    def _grown(self, table: npt.NDArray[np.uint64], entries: int) -> npt.NDArray[np.uint64]:
        slots = table.shape[0]
        while 2 * entries > slots:
            slots *= 2
        return kernels.grow_table(table, slots, self._secrets)

    def _note_batches(self, block: Block, aborted: Flags, first: int) -> None:
        scope, table, counts = self._scope, block.table, block.counts
        if block.legacy is not None:
            modified_ms = block.source.modified_ns // 1_000_000
            is_past = np.full(block.rows, modified_ms <= scope.rules.legacy_horizon_ms)
        else:
            has_horizon = (table[:, rows_of.ATTRIBUTES] & DELETE_HORIZON_BIT) != 0
            is_past = has_horizon & (table[:, rows_of.BASE_TIMESTAMP] <= scope.rules.now_ms)
        is_below = table[:, rows_of.BASE_OFFSET] < scope.log_start_offset
        markers = self._transactions.markers_to_stay(block, scope.rules.now_ms)
        where = slice(first, first + block.records_count)
        self._markers[where] = np.repeat(markers, counts)
        self._aborted[where] = np.repeat(aborted, counts)
        self._deletable[where] = np.repeat(is_past, counts)
        # What is below the log start is read by nobody, and may go.
        self._below[where] = np.repeat(is_below, counts)

    def evidence(self, newest: Bytes, pinned: Bytes) -> dict[int, SegmentEvidence]:
        """The evidence of each segment, with the newest records of all shards."""
        count = len(self._markers)
        bits = [
            np.unpackbits(each, count=count, bitorder="little").astype(np.bool_)
            for each in (newest, self._nulls, pinned)
        ]
        may_go = ((bits[1] & self._deletable) | self._expired) & ~bits[2]
        must = (bits[0] & ~may_go) | self._markers
        must &= ~self._below
        ends = [*self._starts[1:], count]
        return {
            segment.base_offset: SegmentEvidence(
                base_offset=segment.base_offset,
                must_stay=np.packbits(must[first:last], bitorder="little").tobytes(),
                aborted=np.packbits(self._aborted[first:last], bitorder="little").tobytes(),
            )
            for segment, first, last in zip(self._segments, self._starts, ends, strict=True)
        }
