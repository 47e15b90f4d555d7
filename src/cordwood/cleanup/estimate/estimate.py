"""Estimates what a compaction would free: one walk over its records, and a rewrite of a sample.

1. Every batch is read, and its CRC checked. The keys of the batches of a `WatchedSample` are
   watched from there on; those of all others above the first dirty offset are looked up among them.
   Where records have versions, every batch is read once more, to find the highest of each key.
2. The batches of the sample are read again, and rewritten by the code that cleans, to nowhere:
   which records go is known by then. So their headers, their compression, delete horizons, times
   to live, aborted transactions and markers count as a cleaning has them.

What the sample loses stands for all. The error is that of a sample with one point in each stratum:
half of the squared differences of neighbours, added up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from cordwood.cleanup.engine.rewrite import GroupRewriter
from cordwood.cleanup.engine.survivors import Progress, discardable, no_progress
from cordwood.cleanup.estimate import watched_sample as sample_of
from cordwood.cleanup.estimate.watched_sample import (
    SampleLimits,
    Verdicts,
    Walked,
    WatchedSample,
)
from cordwood.cleanup.plan.estimates import CompactionEstimate
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.plan.log_compaction import LogCompaction
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec
from cordwood.cleanup.rules.record_longs import RecordLongs, RemovalReader
from cordwood.cleanup.rules.transactions import TransactionSummary, TransactionTracker
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, File, FileSystem
from cordwood.storage.reading.aborted import AbortedTransactions
from cordwood.storage.reading.block import Block, Bytes, Ints
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import SegmentSource
from cordwood.storage.replace import StagedSegment

_SLACK = 64
# So many bytes of the sample are read at once, but at least a batch.
_READ_BYTES = 4 << 20
# 95 of 100 results of a normal distribution are within so many standard errors.
_DEVIATIONS = 1.96
# If none of n samples has something, it may be in 3 of n: so many points are the least error.
_POINTS_UNSEEN = 3


def estimate_compaction(
    compaction: LogCompaction,
    *,
    limits: SampleLimits | None = None,
    progress: Progress = no_progress,
    fs: FileSystem = OS,
) -> CompactionEstimate:
    """Estimates what a compaction would free. Nothing is written.

    Args:
        compaction: with its seed, of the sample and of the hashes of keys.
        limits: of the sample, and so of memory.
        progress: receives how many bytes were read, of those of the segments.
        fs: where they are.

    Raises:
        CorruptError: a segment is damaged, or was changed while it was read.
        BatchTooLargeError: a batch takes more memory than it may.
        OversizedRecordError: a record of a compressed batch is larger than it may be.
        OSError: a segment cannot be read.
    """
    return _Estimate(compaction, limits or SampleLimits(), progress, fs).made()


@dataclass(slots=True)
class _Lost:
    """Losses of the batches of the sample, int64 by batch."""

    bytes: Ints
    records: Ints
    tombstones: Ints


class _Estimate:
    """One call of `estimate_compaction`."""

    def __init__(
        self, compaction: LogCompaction, limits: SampleLimits, progress: Progress, fs: FileSystem
    ) -> None:
        secrets = Secrets.from_seed(compaction.seed)
        self._compaction = compaction
        self._progress = progress
        self._fs = fs
        self._sample = WatchedSample(seed=compaction.seed, secrets=secrets.words, limits=limits)
        self._reader = SegmentReader(bounds=compaction.bounds, fs=fs)
        rules = compaction.rules
        self._versions = None
        if rules.versions is not None:
            self._versions = RecordLongs.of_versions(rules.versions)
        self._removals = RemovalReader.of(rules)
        # The base offsets of the segments that are rewritten: the others are read, and stay.
        self._rewritten = {each for group in compaction.groups for each in group}
        self._records = 0
        self._records_rewritten = 0
        self._bytes_read = 0

    def made(self) -> CompactionEstimate:
        walks = 1 if self._versions is None else 2
        for walked in self._walk(walks):
            levels = self._sample.levels_of(walked.start, walked.sizes)
            self._watch(walked, levels)
            self._sample.add(walked, levels)
        if self._versions is not None:
            self._sample.begin_versions()
            for walked in self._walk(walks):
                self._note_versions(walked, self._versions)
        size_bytes = self._compaction.size_bytes
        sample = self._sample
        lost = self._lost()
        freed_by_point = sample.by_point(size_bytes, lost.bytes)
        freed = round(float(freed_by_point.sum()))
        error = 0
        if sample.level:
            differences = float((np.diff(freed_by_point) ** 2).sum()) / 2
            error = round(max(_DEVIATIONS * differences**0.5, _POINTS_UNSEEN * (1 << sample.level)))
        return CompactionEstimate(
            bytes_before=size_bytes,
            bytes_freed=freed,
            bytes_freed_low=freed - error,
            bytes_freed_high=min(size_bytes, freed + error),
            records_before=self._records_rewritten,
            records_discarded=self._share(lost.records),
            tombstones_discarded=self._share(lost.tombstones),
            keys=sample.keys(),
            bytes_read=self._bytes_read,
            is_exact=not sample.level,
        )

    def _share(self, values: Ints) -> int:
        found = self._sample.by_point(self._compaction.size_bytes, values).sum()
        return min(self._records_rewritten, round(float(found)))

    # ---- the walk over all

    def _walk(self, walks: int) -> Iterator[Walked]:
        """Yields all batches once, in one of `walks` walks."""
        compaction = self._compaction
        self._records = self._records_rewritten = 0
        tracker = TransactionTracker(
            AbortedTransactions(compaction.aborted), TransactionSummary.from_json(compaction.before)
        )
        start = 0
        for number, source in enumerate(compaction.segments):
            for block in self._reader.blocks(source):
                walked = self._walked(block, number, start + block.position_of(0), tracker)
                yield walked
                self._bytes_read += int(walked.sizes.sum())
                self._progress(int(walked.sizes.sum()) // walks)
            start += source.size_bytes

    def _walked(
        self, block: Block, segment: int, start: int, tracker: TransactionTracker
    ) -> Walked:
        can_discard = discardable(tracker, block)
        numbers = block.ordinals(self._records)
        self._records += block.records_count
        if self._is_rewritten(segment):
            self._records_rewritten += block.records_count
        sizes = block.table[:, rows_of.SIZE].copy()
        if block.legacy is not None:
            sizes[0] = block.legacy.size_bytes
        return Walked(
            block=block,
            segment=segment,
            start=start,
            sizes=sizes,
            numbers=numbers,
            # Data that is not of an aborted transaction may stay.
            wanted=block.has_data & ~can_discard,
            can_discard=can_discard,
        )

    def _watch(self, walked: Walked, levels: Ints) -> None:
        """Walks over what is above the first dirty offset, and over what is sampled below it."""
        first_dirty = self._compaction.first_dirty
        is_dirty = walked.block.table[:, rows_of.LAST_OFFSET] >= first_dirty
        wanted = walked.wanted & (is_dirty | (levels >= 0))
        for payload in self._reader.payloads(walked.block, wanted):
            self._sample.watch(payload, walked, levels, first_dirty)

    def _note_versions(self, walked: Walked, longs: RecordLongs) -> None:
        for payload in self._reader.payloads(walked.block, walked.wanted):
            longs.read(payload)
            self._sample.note_versions(payload, walked, self._compaction.first_dirty, longs)

    # ---- the sample again

    def _lost(self) -> _Lost:
        """Losses of the batches of the sample when they are rewritten."""
        rows = self._sample.rows()
        lost = _Lost(*np.zeros((3, len(rows)), dtype=np.int64))
        rewriter = GroupRewriter(fs=self._fs)
        spec = _spec_of(self._compaction)
        for segment in np.unique(rows[:, sample_of.SEGMENT]).tolist():
            if not self._is_rewritten(segment):
                continue
            first, last = np.searchsorted(rows[:, sample_of.SEGMENT], [segment, segment + 1])
            source = self._compaction.segments[segment]
            at = int(first)
            for block in self._again(source, rows[first:last]):
                those = slice(at, at + block.rows)
                self._rewrite(spec, block, rows[those], rewriter, lost, those)
                at += block.rows
            assert at == last, f"{at - int(first)} of {last - first} batches were read again"
        return lost

    def _is_rewritten(self, segment: int) -> bool:
        return self._compaction.segments[segment].base_offset in self._rewritten

    def _rewrite(
        self,
        spec: RewriteSpec,
        block: Block,
        rows: Ints,
        rewriter: GroupRewriter,
        lost: _Lost,
        those: slice,
    ) -> None:
        counts = block.counts
        if not np.array_equal(counts, rows[:, sample_of.COUNT]):
            raise _changed(block.source)
        verdicts = Verdicts(block.records_count)
        wanted = rows[:, sample_of.IS_WANTED] != 0
        for payload in self._reader.payloads(block, wanted):
            try:
                self._sample.judge(payload, rows[:, sample_of.NUMBER].copy(), verdicts)
            except CorruptError as error:
                raise _changed(block.source) from error
            if self._removals is not None:
                verdicts.let_go(self._removals.gone(payload))
        by_key = _kept_by_key(block, verdicts.keep, verdicts.nulls)
        left = rewriter.rewritten(
            spec,
            block,
            verdicts.keep,
            (verdicts.nulls, verdicts.nulls & ~verdicts.pinned),
            rows[:, sample_of.CAN_DISCARD] != 0,
        )
        lost.bytes[those] = rows[:, sample_of.SIZE] - left.sizes
        lost.records[those] = counts - left.kept
        lost.tombstones[those] = np.where(wanted, by_key - left.kept, 0)

    def _again(self, source: SegmentSource, rows: Ints) -> Iterator[Block]:
        """The batches of the sample in one segment, as blocks."""
        with closing(self._fs.open(Path(source.path))) as file:
            first = 0
            while first < len(rows):
                if rows[first, sample_of.IS_LEGACY]:
                    start = int(rows[first, sample_of.FILE_POSITION])
                    end = start + int(rows[first, sample_of.SIZE])
                    yield from self._reader.blocks(replace(source, size_bytes=end), start=start)
                    first += 1
                    continue
                others = np.flatnonzero(rows[first:, sample_of.IS_LEGACY])
                sizes = np.cumsum(rows[first:, sample_of.SIZE])
                count = max(1, int(np.searchsorted(sizes, _READ_BYTES, side="right")))
                count = min(count, int(others[0]) if len(others) else count)
                yield self._gathered(source, file, rows[first : first + count])
                first += count

    def _gathered(self, source: SegmentSource, file: File, rows: Ints) -> Block:
        """Some batches of a segment beside each other."""
        sizes, positions = rows[:, sample_of.SIZE], rows[:, sample_of.FILE_POSITION]
        total = int(sizes.sum())
        buffer = np.zeros(total + _SLACK, dtype=np.uint8)
        # Neighbours in the file are read at once.
        apart = np.flatnonzero(positions[1:] != positions[:-1] + sizes[:-1]) + 1
        begins = [0, *apart.tolist(), len(rows)]
        have = 0
        for first, after in pairwise(begins):
            wanted = int(sizes[first:after].sum())
            _fill(source, file, buffer.data[have : have + wanted], int(positions[first]))
            have += wanted
        self._bytes_read += total
        table = np.empty((len(rows) + 1, rows_of.COLUMNS), dtype=np.int64)
        found, after, _ = kernels.scan_batches(buffer, 0, total, table, True)
        if found != len(rows) or after != total:
            raise _changed(source)
        return Block(source, buffer, table[:found], int(positions[0]))


def _fill(source: SegmentSource, file: File, view: memoryview, position: int) -> None:
    have = 0
    while have < len(view):
        came = file.read_into(view[have:], position + have)
        if came == 0:
            raise _changed(source)
        have += came


def _changed(source: SegmentSource) -> CorruptError:
    return CorruptError("the segment has changed since it was read", path=source.path)


def _kept_by_key(block: Block, keep: Bytes, nulls: Bytes) -> Ints:
    """The number of records of each batch that no later one supersedes."""
    counts = block.table[:, rows_of.COUNT]
    kept, kept_nulls = np.empty((2, block.rows), dtype=np.int64)
    none = np.zeros(block.rows, dtype=np.uint8)
    kernels.count_survivors(
        block.table, block.rows, np.cumsum(counts) - counts, keep, nulls, none, kept, kept_nulls
    )
    return kept


def _spec_of(compaction: LogCompaction) -> RewriteSpec:
    """The rules by which batches of any segment of a compaction are rewritten."""
    return RewriteSpec(
        compaction=replace(compaction, attempt=replace(compaction.attempt, is_measured=True)),
        staged=StagedSegment(directory=compaction.directory, base_offset=0, token=""),
        segments=(),
        before=TransactionSummary(),
        after=TransactionSummary(),
    )
