"""Two copies of log directories, before and after a cleaning, as a consumer of both would see them.

Every record of the second is in the first, at the same offset and unchanged; the newest value of
each key, or that of the highest version, is in both, or is a tombstone that has gone together with
all it deleted, or has expired; transactions are
committed in both, aborted in both, or open in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cordwood.cleanup.access.offline.directories import Place, find_places, open_log_dirs
from cordwood.cleanup.plan.compaction_values import SegmentEvidence
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.rules.record_longs import RemovalReader
from cordwood.cleanup.rules.record_rules import RecordRules
from cordwood.cleanup.rules.transactions import TransactionSummary
from cordwood.cleanup.rules.versions import VersionRule
from cordwood.cleanup.verification.contents import Ahead, Chunk, ContentReader
from cordwood.cleanup.verification.directories import (
    CheckedLog,
    Verification,
    VerificationProgress,
    chosen,
)
from cordwood.cleanup.verification.evidence import Scope, find_evidence
from cordwood.cleanup.verification.findings import Findings, Rule
from cordwood.cleanup.verification.log import LogFacts
from cordwood.cleanup.verification.transactions import Transactions
from cordwood.configs.log_config import LogConfig
from cordwood.format.batch_header import CONTROL_BIT, DELETE_HORIZON_BIT
from cordwood.format.file_names import LOG_SUFFIX, base_offset_of, is_log_file, segment_file_name
from cordwood.format.native import batches as rows_of
from cordwood.format.native import contents
from cordwood.model.clock import Clock
from cordwood.model.errors import CorruptError, OversizedRecordError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.block import Flags, Ints
from cordwood.storage.reading.segment_reader import SegmentReader
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

_ENTRIES_MAX = 1 << 22
_OFFSET_MAX = (1 << 63) - 1
_SEED = 77
_BEFORE_ALL_MS = -1


def compare_copies(
    before: Path,
    after: Path,
    *,
    topics: Sequence[str] = (),
    clock: Clock,
    config_of: Callable[[str], LogConfig | None] = lambda _: None,
    progress: VerificationProgress | None = None,
    fs: FileSystem = OS,
) -> Verification:
    """Compares the partitions of two log directories; changes nothing.

    `config_of` gives the settings of a topic, or None where they are not known: they say which
    record of a key is the newest, which records rules remove whatever their keys, for how long a
    marker stays behind its data, and how large a record may be.

    Raises:
        NotALogDirError: a path is no log directory, nor a partition's.
        ConfigError: no topic has such a name.
        OSError: a directory cannot be read.
    """
    begun = clock.monotonic_s()
    progress = progress or VerificationProgress()
    result = Verification()
    (old_dir,), (new_dir,) = open_log_dirs([before]), open_log_dirs([after])
    there = {place.partition.topic_partition: place for place in _in_use(find_places([new_dir]))}
    old_starts, starts = (each.checkpoints()[0].log_start for each in (old_dir, new_dir))
    places = chosen(_in_use(find_places([old_dir])), topics, [before])
    cleaned_at_ms = clock.now_ms()
    if fs.exists(new_dir.cleaner_offsets.path):
        cleaned_at_ms = min(cleaned_at_ms, fs.facts_of(new_dir.cleaner_offsets.path).modified_ms)
    progress.begin(sum(_size_of(place.partition.path, fs) for place in places))
    for place in places:
        name = place.partition.topic_partition
        findings, facts = Findings(), None
        path = place.partition.path
        old = _sources(path, fs)
        new = _sources(there[name].partition.path, fs) if name in there else []
        if old and not new:
            what = "no segment of" if name in there else "no partition"
            findings.add(Rule.COPY_MISSING, path, f"AFTER has {what} {name}")
        elif old:
            try:
                config = config_of(name.topic)
                rules, bounds = RecordRules(now_ms=clock.now_ms()), WIDEST
                if config is not None:
                    rules = RecordRules.of(config, now_ms=rules.now_ms, legacy_horizon_ms=0)
                    bounds = ReadBounds(record_bytes_max=config.max_decompressed_message_bytes)
                start = starts.get(name, 0)
                comparison = _Comparison(old, new, start, rules, findings, bounds, fs)
                comparison.keep_markers(
                    None if config is None else config.delete_retention_ms, cleaned_at_ms
                )
                comparison.note_start(old_starts.get(name, 0))
                facts = comparison.run(partial(progress.advance, str(name)))
            except CorruptError as error:
                is_oversized = isinstance(error, OversizedRecordError)
                rule = Rule.RECORD_SIZE if is_oversized else Rule.UNREADABLE
                findings.add(rule, error.path or path, error.reason, position=error.position)
        result.logs.append(
            CheckedLog(
                directory=path,
                partition=name,
                findings=tuple(findings.found),
                unlisted=findings.unlisted,
                facts=facts,
                skipped=None if old else "it has no segment",
            )
        )
    result.elapsed_s = clock.monotonic_s() - begun
    return result


def _in_use(places: Sequence[Place]) -> list[Place]:
    """The partitions without directories that Kafka is about to delete or to move."""
    return [
        each for each in places if each.partition.path.name == str(each.partition.topic_partition)
    ]


def _size_of(directory: Path, fs: FileSystem) -> int:
    return sum(source.size_bytes for source in _sources(directory, fs))


def _sources(directory: Path, fs: FileSystem) -> list[SegmentSource]:
    bases = sorted(base_offset_of(name) for name in fs.names_in(directory) if is_log_file(name))
    sources = []
    for base, following in zip(bases, [*bases, _OFFSET_MAX][1:], strict=True):
        path = directory / segment_file_name(base, LOG_SUFFIX)
        sources.append(
            SegmentSource(
                path=str(path),
                base_offset=base,
                next_base_offset=following,
                size_bytes=fs.facts_of(path).size_bytes,
                modified_ns=0,
            )
        )
    return sources


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the copies: its segments, which records are the newest of a key, its transactions."""

    sources: Sequence[SegmentSource]
    evidence: dict[int, SegmentEvidence]
    transactions: Transactions

    @classmethod
    def of(
        cls,
        sources: Sequence[SegmentSource],
        log_start: int,
        versions: VersionRule | None,
        bounds: ReadBounds,
        fs: FileSystem,
    ) -> _Side:
        transactions = Transactions(log_start_offset=log_start, before=TransactionSummary())
        for source in sources:
            for block in SegmentReader(bounds=bounds, fs=fs).blocks(source):
                transactions.note(block)
        transactions.end(())
        # No horizon has passed then: a tombstone counts as any record.
        scope = Scope(
            rules=RecordRules(
                now_ms=_BEFORE_ALL_MS, legacy_horizon_ms=_BEFORE_ALL_MS, versions=versions
            ),
            seed=_SEED,
            log_start_offset=log_start,
            bounds=bounds,
        )
        evidence = find_evidence(scope, sources, entries_max=_ENTRIES_MAX, fs=fs)
        return cls(sources, evidence, transactions)

    def newest_of(self, source: SegmentSource) -> Flags:
        data = np.frombuffer(self.evidence[source.base_offset].must_stay, dtype=np.uint8)
        bits: Flags = np.unpackbits(data, bitorder="little").astype(np.bool_)
        return bits

    def fates(self, chunk: Chunk) -> tuple[Flags, Flags]:
        """Flags of each record: whether it was aborted, and whether its transaction is open."""
        return (
            self.transactions.aborted(chunk.table)[chunk.batch_of],
            self.transactions.undecided(chunk.table)[chunk.batch_of],
        )


class _Comparison:
    def __init__(
        self,
        old: Sequence[SegmentSource],
        new: Sequence[SegmentSource],
        log_start: int,
        rules: RecordRules,
        findings: Findings,
        bounds: ReadBounds,
        fs: FileSystem,
    ) -> None:
        self._log_start = max(log_start, new[0].base_offset)
        self._old = _Side.of(old, self._log_start, rules.versions, bounds, fs)
        self._new = _Side.of(new, self._log_start, rules.versions, bounds, fs)
        self._findings = findings
        self._removals = RemovalReader.of(rules)
        self._delete_retention_ms = 0
        self._stays_until_ms: int | None = None
        self._fs = fs
        self._bounds = bounds
        self._reader = ContentReader(Secrets.from_seed(_SEED).words, bounds=bounds, fs=fs)

    def keep_markers(self, delete_retention_ms: int | None, cleaned_at_ms: int) -> None:
        """Sets how long markers stay; the last cleaning was not later than `cleaned_at_ms`."""
        if delete_retention_ms is not None:
            self._delete_retention_ms, self._stays_until_ms = delete_retention_ms, cleaned_at_ms

    def note_start(self, log_start: int) -> None:
        """Notes where AFTER begins later than BEFORE, whose log start that is."""
        log_start = max(log_start, self._old.sources[0].base_offset)
        if self._log_start > log_start:
            self._findings.add(
                Rule.COPY_START,
                self._new.sources[0].path,
                f"AFTER begins at offset {self._log_start}, BEFORE at {log_start}: what is below "
                "was not compared",
                offset=self._log_start,
            )

    def run(self, progress: Callable[[int], None]) -> LogFacts:
        """Walks both logs side by side.

        Raises:
            CorruptError: a batch or record of either is damaged.
            OSError: a file cannot be read.
        """
        old = self._old.sources
        secrets = Secrets.from_seed(_SEED).words
        ahead = Ahead(
            chunk
            for source in self._new.sources
            for chunk in ContentReader(secrets, bounds=self._bounds, fs=self._fs).chunks(source)
        )
        self._after_newest = np.concatenate(
            [np.zeros(0, dtype=np.bool_), *map(self._trimmed, self._new.sources)]
        )
        self._at = records = batches = 0
        end = old[0].base_offset
        for source in old:
            newest, first = self._old.newest_of(source), 0
            expired = self._expired_in(source, len(newest))
            for chunk in self._reader.chunks(source):
                end = int(chunk.table[-1, rows_of.LAST_OFFSET]) + 1
                last = first + len(chunk.rows)
                verdicts = newest[first:last], expired[first:last]
                self._compare(source, chunk, ahead.take(end - 1), *verdicts)
                first, batches = last, batches + len(chunk.table)
                progress(int(chunk.table[:, rows_of.SIZE].sum()))
            records += first
        for offset in ahead.take().offsets[:1].tolist():
            path = self._new.sources[-1].path
            self._findings.add(
                Rule.COPY_INVENTED, path, f"BEFORE ends at offset {end}", offset=offset
            )
        size_bytes = sum(source.size_bytes for source in old)
        return LogFacts(
            segments=len(old),
            size_bytes=size_bytes,
            batches=batches,
            records=records,
            log_end_offset=end,
        )

    def _expired_in(self, source: SegmentSource, count: int) -> Flags:
        """Flags the records of a segment that rules remove whatever their keys."""
        found = np.zeros(count, dtype=np.bool_)
        if self._removals is None:
            return found
        first, reader = 0, SegmentReader(bounds=self._bounds, fs=self._fs)
        for block in reader.blocks(source):
            for payload in reader.payloads(block, block.has_data):
                found[first + self._removals.gone(payload)] = True
            first += block.records_count
        return found

    def _trimmed(self, source: SegmentSource) -> Flags:
        """The newest bits of a segment, as many as it has records."""
        reader = SegmentReader(bounds=self._bounds, fs=self._fs)
        count = sum(block.records_count for block in reader.blocks(source))
        return self._new.newest_of(source)[:count]

    def _compare(
        self,
        source: SegmentSource,
        chunk: Chunk,
        output: Chunk,
        newest: Flags,
        expired: Flags,
    ) -> None:
        offsets, out = chunk.offsets, output.offsets
        after_newest = self._after_newest[self._at : self._at + len(out)]
        self._at += len(out)
        found = np.zeros(len(offsets), dtype=np.bool_)
        path = self._new.sources[0].path
        if len(offsets):
            place = np.minimum(np.searchsorted(offsets, out), len(offsets) - 1)
            invented = offsets[place] != out
            found[place[~invented]] = True
            data = (output.table[:, rows_of.ATTRIBUTES] & CONTROL_BIT)[output.batch_of] == 0
            fates = [
                before[place] != after
                for before, after in zip(
                    self._old.fates(chunk), self._new.fates(output), strict=True
                )
            ]
            self._add(Rule.COPY_INVENTED, path, out, invented, "a record that BEFORE does not have")
            self._add(
                Rule.COPY_CHANGED,
                path,
                out,
                (chunk.rows[place] != output.rows).any(axis=1) & ~invented,
                "a record whose key, value, headers or timestamp differ",
            )
            self._add(
                Rule.COPY_TRANSACTION,
                path,
                out,
                (fates[0] | fates[1]) & ~invented,
                "a record whose transaction has ended otherwise: its marker was lost",
            )
            self._add(
                Rule.COPY_REVIVED,
                path,
                out,
                after_newest & ~newest[place] & data & ~invented,
                "an old value of a key, whose newer records are gone",
            )
        is_null = (chunk.rows[:, contents.FLAGS].astype(np.int64) & contents.HAS_NULL_VALUE) != 0
        control = (chunk.table[:, rows_of.ATTRIBUTES] & CONTROL_BIT)[chunk.batch_of] != 0
        lost = newest & ~found & ~is_null & ~control & ~expired
        self._add(
            Rule.COPY_LOST,
            source.path,
            offsets,
            lost,
            "the newest value of its key is not in AFTER",
        )
        _, undecided = self._old.fates(chunk)
        at_or_above = offsets >= self._log_start
        self._add(
            Rule.COPY_TRANSACTION,
            source.path,
            offsets,
            undecided & ~found & at_or_above & ~lost,
            "a record of an open transaction is not in AFTER",
        )
        is_marker = (chunk.table[:, rows_of.PRODUCER_ID])[chunk.batch_of] >= 0
        self._check_markers(source, chunk, control & is_marker & ~found & at_or_above)

    def _check_markers(self, source: SegmentSource, chunk: Chunk, lost: Flags) -> None:
        """Checks that a marker stays with its data, and for delete.retention.ms after that.

        Source: Cleaner.shouldDiscardBatch, CleanedTransactionMetadata.onControlBatchRead.
        """
        for record in np.flatnonzero(lost).tolist():
            row = chunk.table[int(chunk.batch_of[record])]
            producer_id, offset = int(row[rows_of.PRODUCER_ID]), int(chunk.offsets[record])
            before = self._old.transactions.marker_before(producer_id, offset)
            reason = None
            if self._new.transactions.has_data_between(producer_id, before, offset):
                reason = "the marker of a transaction, of which AFTER has data, is not in AFTER"
            elif self._stays_until_ms is not None:
                due = int(row[rows_of.MAX_TIMESTAMP]) + self._delete_retention_ms
                if int(row[rows_of.ATTRIBUTES]) & DELETE_HORIZON_BIT:
                    due = int(row[rows_of.BASE_TIMESTAMP])
                if due > self._stays_until_ms:
                    reason = "a marker that is younger than delete.retention.ms is not in AFTER"
            if reason is not None:
                self._findings.add(Rule.COPY_TRANSACTION, source.path, reason, offset=offset)

    def _add(self, rule: Rule, path: str, offsets: Ints, wrong: Flags, reason: str) -> None:
        for row in np.flatnonzero(wrong).tolist():
            self._findings.add(rule, path, reason, offset=int(offsets[row]))
