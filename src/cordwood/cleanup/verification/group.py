"""The comparison of a rewritten group with its sources, before it is announced.

It knows the sources, the staged files and the evidence (`cordwood.cleanup.verification.evidence`);
nothing of what the rewriter has decided. docs/design/cleanup-verification.md says what is
independent of what.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from cordwood.cleanup.plan.compaction_values import SEGMENT_BYTES_MAX, Manifest
from cordwood.cleanup.plan.key_secrets import Secrets
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec
from cordwood.cleanup.verification.batches import SegmentCheck
from cordwood.cleanup.verification.contents import Ahead, Chunk, ContentReader
from cordwood.cleanup.verification.findings import Findings, Rule
from cordwood.cleanup.verification.indexes import IndexCheck
from cordwood.format.batch_header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)
from cordwood.format.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from cordwood.format.native import batches as rows_of
from cordwood.format.native import contents
from cordwood.format.transaction_index import AbortedTransaction, parse_transaction_index
from cordwood.model.errors import CorruptError, NoSpaceError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.block import Flags, Ints
from cordwood.storage.reading.source import SegmentSource

# What a rewritten batch keeps of its attributes: all but the horizon; without records, no codec.
_KINDS = TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
_KINDS_AND_CODEC = _KINDS | 0x07
_KEPT_FIELDS = (
    rows_of.PRODUCER_ID,
    rows_of.PRODUCER_EPOCH,
    rows_of.BASE_SEQUENCE,
    rows_of.LEADER_EPOCH,
)


def verify_group(spec: RewriteSpec, manifest: Manifest, *, fs: FileSystem = OS) -> None:
    """Compares the staged segments of a group with their sources and the evidence.

    Raises:
        CorruptError: a rule is broken; names it. The staged files are removed.
        OSError: a file cannot be read.
    """
    check = _GroupCheck(spec, manifest, fs)
    try:
        check.check_staged(manifest)
        check.compare()
        check.check_transaction_index()
    except CorruptError:
        for each in manifest.segments:
            for path in spec.staged.at(each.base_offset).paths().values():
                with suppress(OSError, NoSpaceError):
                    fs.remove(path)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    """A staged segment: its files by suffix, and its log."""

    paths: dict[str, Path]
    log: SegmentSource


class _GroupCheck:
    def __init__(self, spec: RewriteSpec, manifest: Manifest, fs: FileSystem) -> None:
        self._spec = spec
        self._fs = fs
        self._findings = Findings(per_file_max=1)
        bases = [each.base_offset for each in manifest.segments]
        follows = [*bases[1:], spec.segments[-1].source.next_base_offset]
        self._staged = [
            self._staged_at(base, after) for base, after in zip(bases, follows, strict=True)
        ]
        #: What a finding names that is not of one of them.
        self._path = self._staged[0].log.path
        self._markers: set[int] = set()
        #: Where the sources have records of aborted transactions, by producer: base offsets.
        self._aborted: dict[int, list[int]] = {}
        self._lasts = {
            each.producer_id: each for each in spec.compaction.producers if each.producer_id >= 0
        }
        self._ids = np.array(sorted(self._lasts), dtype=np.int64)

    def _staged_at(self, base_offset: int, next_base_offset: int) -> _Staged:
        paths = self._spec.staged.at(base_offset).paths()
        log = SegmentSource(
            path=str(paths[LOG_SUFFIX]),
            base_offset=base_offset,
            next_base_offset=next_base_offset,
            size_bytes=self._fs.facts_of(paths[LOG_SUFFIX]).size_bytes,
            modified_ns=0,
        )
        return _Staged(paths=paths, log=log)

    def _require_none(self) -> None:
        """Raises the first finding, if there is one."""
        for finding in self._findings.found:
            of = "" if finding.offset is None else f" (offset {finding.offset})"
            raise CorruptError(
                f"the cleaning was refused, rule {finding.rule.code}: {finding.reason}{of}",
                path=finding.path,
                position=finding.position,
                remedy=Rule.COUNTS.remedy,
            )

    # ---- the staged files alone

    def check_staged(self, manifest: Manifest) -> None:
        """Checks the rules of any segment, the sizes, and the counts of the manifest."""
        batches = records = 0
        for staged in self._staged:
            segment = self._check_segment(staged)
            batches += segment.batches
            records += segment.records
        counted = batches, records
        if counted != (manifest.batches_after, manifest.records_after):
            self._findings.add(
                Rule.COUNTS,
                self._path,
                f"it holds {counted[0]} batches and {counted[1]} records, not "
                f"{manifest.batches_after} and {manifest.records_after}",
            )
        self._require_none()

    def _check_segment(self, staged: _Staged) -> SegmentCheck:
        log, path = staged.log, staged.paths[LOG_SUFFIX]
        files = {
            suffix: self._fs.read_bytes(staged.paths[suffix])
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        }
        indexes = IndexCheck(path, log.base_offset, files, self._findings)
        segment = SegmentCheck(self._findings, fs=self._fs)
        for piece in segment.pieces(log, is_last=False):
            self._require_none()
            indexes.take(piece)
        self._require_none()
        indexes.finish(size_bytes=log.size_bytes, last_offset=segment.last_offset, is_closed=True)
        allowed = SEGMENT_BYTES_MAX if segment.batches == 1 else self._spec.segment_bytes_max
        if log.size_bytes > allowed:
            self._findings.add(
                Rule.SIZE, path, f"it takes {log.size_bytes} bytes, more than {allowed}"
            )
        self._require_none()
        return segment

    # ---- against the sources

    def compare(self) -> None:
        """Walks the sources and the staged log side by side."""
        spec = self._spec
        # Other secrets than those of the evidence: it does not matter which.
        secrets = Secrets.from_seed(
            spec.compaction.rules.now_ms ^ self._staged[0].log.size_bytes
        ).words
        readers = [
            ContentReader(secrets, bounds=spec.compaction.bounds, fs=self._fs) for _ in range(2)
        ]
        ahead = Ahead(chain.from_iterable(readers[0].chunks(each.log) for each in self._staged))
        for segment, evidence in zip(spec.segments, spec.evidence, strict=True):
            source = segment.source
            assert source.base_offset == evidence.base_offset, "evidence of another segment"
            must = _bits(evidence.must_stay)
            aborted = _bits(evidence.aborted)
            first = 0
            for chunk in readers[1].chunks(source):
                after = first + len(chunk.rows)
                output = ahead.take(int(chunk.table[-1, rows_of.LAST_OFFSET]))
                self._compare_batches(source, chunk, output)
                self._compare_records(
                    source, chunk, output, must[first:after], aborted[first:after]
                )
                self._note_aborted(chunk, aborted[first:after])
                self._require_none()
                first = after
        for row in ahead.take().table[:1].tolist():
            self._invented(row[rows_of.BASE_OFFSET], row[rows_of.LAST_OFFSET])
        self._require_none()

    def _invented(self, base_offset: int, last_offset: int) -> None:
        self._findings.add(
            Rule.INVENTED,
            self._path,
            f"a batch of offsets {base_offset} to {last_offset} that no source has",
            offset=base_offset,
        )

    def _compare_batches(self, source: SegmentSource, chunk: Chunk, output: Chunk) -> None:
        if chunk.is_legacy:
            return  # it becomes another batch, which holds what is left of its records
        lasts = chunk.table[:, rows_of.LAST_OFFSET]
        out = output.table
        place = np.minimum(np.searchsorted(lasts, out[:, rows_of.LAST_OFFSET]), len(lasts) - 1)
        matching = chunk.table[place]
        same = (matching[:, rows_of.LAST_OFFSET] == out[:, rows_of.LAST_OFFSET]) & (
            matching[:, rows_of.BASE_OFFSET] == out[:, rows_of.BASE_OFFSET]
        )
        for row in np.flatnonzero(~same)[:1].tolist():
            self._invented(int(out[row, rows_of.BASE_OFFSET]), int(out[row, rows_of.LAST_OFFSET]))
        self._compare_headers(matching[same], out[same])
        is_left = np.ones(len(lasts), dtype=np.bool_)
        is_left[place[same]] = False
        self._check_left_out(source, chunk, np.flatnonzero(is_left))

    def _compare_headers(self, before: Ints, after: Ints) -> None:
        changed = np.zeros(len(after), dtype=np.bool_)
        for column in _KEPT_FIELDS:
            changed |= before[:, column] != after[:, column]
        mask = np.where(after[:, rows_of.COUNT] > 0, _KINDS_AND_CODEC, _KINDS)
        attributes = before[:, rows_of.ATTRIBUTES], after[:, rows_of.ATTRIBUTES]
        changed |= ((attributes[0] ^ attributes[1]) & mask) != 0
        for row in np.flatnonzero(changed)[:1].tolist():
            self._findings.add(
                Rule.BATCH_CHANGED,
                self._path,
                "a batch with another producer, epoch, sequence, leader epoch or other attributes "
                "than its source",
                offset=int(after[row, rows_of.BASE_OFFSET]),
            )
        rules = self._spec.compaction.rules
        had = (attributes[0] & DELETE_HORIZON_BIT) != 0
        has = (attributes[1] & DELETE_HORIZON_BIT) != 0
        wanted = np.where(
            had,
            before[:, rows_of.BASE_TIMESTAMP],
            rules.now_ms + rules.delete_retention_ms,
        )
        wrong = (had & ~has) | (has & (after[:, rows_of.BASE_TIMESTAMP] != wanted))
        for row in np.flatnonzero(wrong & (after[:, rows_of.COUNT] > 0))[:1].tolist():
            self._findings.add(
                Rule.HORIZON,
                self._path,
                f"a batch whose delete horizon is not {wanted[row]}",
                offset=int(after[row, rows_of.BASE_OFFSET]),
            )

    def _check_left_out(self, source: SegmentSource, chunk: Chunk, rows: Ints) -> None:
        """Checks the batches whose headers have to stay, with or without records."""
        table = chunk.table[rows]
        lasts = table[:, rows_of.LAST_OFFSET]
        for row in np.flatnonzero(lasts + 1 == self._spec.compaction.retained_end).tolist():
            self._findings.add(
                Rule.TAIL_LOST,
                source.path,
                "the last batch of the compaction is left out",
                position=int(chunk.positions[rows[row]]),
                offset=int(lasts[row]),
            )
        known = np.isin(table[:, rows_of.PRODUCER_ID], self._ids)
        for row in np.flatnonzero(known).tolist():
            producer = self._lasts[int(table[row, rows_of.PRODUCER_ID])]
            is_last = int(lasts[row]) == producer.last_data_offset
            if producer.last_data_offset is None:
                is_last = (
                    bool(table[row, rows_of.ATTRIBUTES] & CONTROL_BIT)
                    and int(table[row, rows_of.PRODUCER_EPOCH]) == producer.producer_epoch
                )
            if is_last:
                self._findings.add(
                    Rule.PRODUCER_LOST,
                    source.path,
                    f"the last batch of producer {producer.producer_id} is left out",
                    position=int(chunk.positions[rows[row]]),
                    offset=int(lasts[row]),
                )

    def _compare_records(
        self, source: SegmentSource, chunk: Chunk, output: Chunk, must: Flags, aborted: Flags
    ) -> None:
        offsets, out = chunk.offsets, output.offsets
        if not len(offsets):
            for row in np.flatnonzero(out >= 0)[:1].tolist():
                self._invented(int(out[row]), int(out[row]))
            return
        place = np.minimum(np.searchsorted(offsets, out), len(offsets) - 1)
        invented = offsets[place] != out
        changed = (chunk.rows[place] != output.rows).any(axis=1) & ~invented
        kept_aborted = aborted[place] & ~invented
        for rule, wrong, reason in (
            (Rule.INVENTED, invented, "a record that no source has"),
            (Rule.CHANGED, changed, "a record whose key, value, headers or timestamp differ"),
            (Rule.ABORTED_KEPT, kept_aborted, "a record of a transaction that was aborted"),
        ):
            for row in np.flatnonzero(wrong)[:1].tolist():
                self._findings.add(rule, self._path, reason, offset=int(out[row]))
        is_found = np.zeros(len(offsets), dtype=np.bool_)
        is_found[place[~invented]] = True
        self._check_lost(source, chunk, must & ~is_found)
        controls = (output.table[:, rows_of.ATTRIBUTES] & CONTROL_BIT) != 0
        self._markers.update(output.offsets[controls[output.batch_of]].tolist())

    def _check_lost(self, source: SegmentSource, chunk: Chunk, lost: Flags) -> None:
        for record in np.flatnonzero(lost)[:1].tolist():
            batch = int(chunk.batch_of[record])
            is_null = bool(int(chunk.rows[record, contents.FLAGS]) & contents.HAS_NULL_VALUE)
            rule, what = Rule.NEWEST_LOST, "the newest record of its key"
            if int(chunk.table[batch, rows_of.ATTRIBUTES]) & CONTROL_BIT:
                rule, what = Rule.MARKER_LOST, "a marker that is not to be removed yet"
            elif is_null:
                rule, what = Rule.TOMBSTONE_LOST, "a tombstone that is not past its delete horizon"
            self._findings.add(
                rule,
                source.path,
                f"{what} is left out",
                position=int(chunk.positions[batch]),
                offset=int(chunk.offsets[record]),
            )

    # ---- the transaction index

    def _note_aborted(self, chunk: Chunk, aborted: Flags) -> None:
        batches = chunk.table[np.unique(chunk.batch_of[aborted])]
        columns = batches[:, [rows_of.PRODUCER_ID, rows_of.BASE_OFFSET]]
        for producer_id, base_offset in columns.tolist():
            self._aborted.setdefault(producer_id, []).append(base_offset)

    def check_transaction_index(self) -> None:
        """Checks that the index has the entries of the markers that are there, and no others.

        One may be missing whose transaction has no record in the sources: an earlier cleaning has
        discarded them.
        """
        known = set(self._spec.aborted)
        found: set[AbortedTransaction] = set()
        for staged in self._staged:
            path = staged.paths[TXN_INDEX_SUFFIX]
            data = self._fs.read_bytes(path) if self._fs.exists(path) else b""
            markers = range(staged.log.base_offset, staged.log.next_base_offset)
            for entry in parse_transaction_index(data):
                found.add(entry)
                is_there = entry.last_offset in self._markers and entry.last_offset in markers
                if entry not in known or not is_there:
                    self._findings.add(
                        Rule.TXN_INDEX,
                        path,
                        f"an entry for producer {entry.producer_id} that no source has, or whose "
                        "marker is left out",
                        offset=entry.last_offset,
                    )
        for entry in sorted(known - found, key=lambda each: each.last_offset):
            if entry.last_offset in self._markers and self._has_records(entry):
                self._findings.add(
                    Rule.TXN_INDEX,
                    self._staged[0].paths[TXN_INDEX_SUFFIX],
                    f"no entry for the transaction of producer {entry.producer_id} with offsets "
                    f"{entry.first_offset} to {entry.last_offset}, which was aborted",
                    offset=entry.last_offset,
                )
        self._require_none()

    def _has_records(self, entry: AbortedTransaction) -> bool:
        offsets = self._aborted.get(entry.producer_id, [])
        place = bisect_left(offsets, entry.first_offset)
        return place < len(offsets) and offsets[place] <= entry.last_offset


def _bits(data: bytes) -> Flags:
    bits: Flags = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little").astype(
        np.bool_
    )
    return bits
