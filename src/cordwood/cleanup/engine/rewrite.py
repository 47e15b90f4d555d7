"""Rewrites one group of segments into one, by the bits that say which records survive.

A batch that keeps everything is copied with its CRC; one that loses records, or is stamped with a
delete horizon, is rebuilt with its own codec. The output goes to staged files whose names no
Kafka knows; the owner of the log puts them in place (`cordwood.storage.replace`).

Source: org.apache.kafka.storage.internals.log.Cleaner.cleanSegments, cleanInto.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cordwood.cleanup.engine.output import Output, OutputLimits
from cordwood.cleanup.engine.recompression import without_growth
from cordwood.cleanup.engine.segment_files import CountedFiles, SegmentFiles, StagedFiles
from cordwood.cleanup.engine.survivors import Progress, discardable, no_progress
from cordwood.cleanup.engine.verdicts import BatchRules, Verdicts
from cordwood.cleanup.plan.compaction_values import SEGMENT_BYTES_MAX, Manifest
from cordwood.cleanup.plan.rewrite_spec import RewriteSpec, SurvivingSegment
from cordwood.cleanup.rules.transactions import TransactionTracker
from cordwood.format.compression import Codec, compress, decompress_into
from cordwood.format.legacy import LegacyBatch
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels, rebuild
from cordwood.format.native.codecs import Codecs
from cordwood.format.record_batch import build_batch
from cordwood.model.errors import CorruptError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.aborted import AbortedTransactions
from cordwood.storage.reading.block import Block, Bytes, Ints
from cordwood.storage.reading.segment_reader import SegmentReader

_CONTROL = 0x20
_HORIZON = 0x40
_CHANGED = "the segment has changed since it was read"
_OUT_BYTES = 8 << 20
_SCRATCH_BYTES = 1 << 20
# A batch's header, and what decoders and encoders want beyond the data: 4 MiB is LZ4's block.
_ROOM_FOR_ONE = (4 << 20) + 512


class _Batches(Protocol):
    """Takes the batches that a rewrite retains, as `Output` does."""

    def append(self, data: memoryview, written: Ints, count: int) -> None:
        """Appends `count` batches, described by the rows of `written`."""


@dataclass(slots=True)
class RewrittenBlock:
    """Bytes and records that a rewrite leaves of each batch of a block, int64[rows]."""

    sizes: Ints
    kept: Ints


class _Sizes:
    """`_Batches` of which only the sizes are wanted."""

    def __init__(self) -> None:
        self.sizes: list[Ints] = []

    def append(self, data: memoryview, written: Ints, count: int) -> None:
        self.sizes.append(written[:count, 0].copy())


def _output_of(spec: RewriteSpec, *, fs: FileSystem) -> Output:
    """The output of the rewrite, still empty.

    Raises:
        NoSpaceError, StagingError: the staged log cannot be created.
    """
    modified_ns = spec.segments[-1].source.modified_ns // 1_000_000 * 1_000_000

    def files(base_offset: int) -> SegmentFiles:
        if spec.compaction.attempt.is_measured:
            return CountedFiles()
        staged = spec.staged.at(base_offset)
        return StagedFiles(staged, model=spec.compaction.model, modified_ns=modified_ns, fs=fs)

    manifest = Manifest(spec.staged.base_offset, spec.staged.token, after=spec.after.to_json())
    return Output(
        files,
        manifest,
        index_interval_bytes=spec.compaction.index_interval_bytes,
        limits=OutputLimits(
            # The journal of an erasure names segments: each stays one.
            segment_bytes=SEGMENT_BYTES_MAX if spec.erases else spec.segment_bytes_max,
            may_split=not spec.erases,
            space_bytes=spec.compaction.attempt.limits.space_max,
        ),
    )


class GroupRewriter:
    """Rewrites groups, one after the other, with buffers it keeps.

    `progress` receives the number of bytes read, `wrote` the number of bytes written.
    """

    def __init__(
        self,
        progress: Progress = no_progress,
        wrote: Progress = no_progress,
        *,
        fs: FileSystem = OS,
    ) -> None:
        self._fs = fs
        self._codecs = Codecs()
        self._out = np.zeros(_OUT_BYTES, dtype=np.uint8)
        self._make_scratch(_SCRATCH_BYTES, _SCRATCH_BYTES)
        self._progress = progress
        self._wrote = wrote

    def write(self, spec: RewriteSpec) -> Output:
        """Writes the surviving batches of a group to its staged log; `finish` is left to do.

        Raises:
            CorruptError: a source changed or is damaged.
            OSError: a source cannot be read.
            NoSpaceError, StagingError: the staged log cannot be written; it is removed again.
        """
        output = _output_of(spec, fs=self._fs)
        try:
            reader = SegmentReader(bounds=spec.compaction.bounds, fs=self._fs)
            tracker = TransactionTracker(AbortedTransactions(spec.aborted), spec.before)
            for segment in spec.segments:
                self._copy(spec, segment, reader, tracker, output)
            output.kept_aborted = tracker.kept_aborted
            if spec.erases:
                output.kept_aborted = spec.aborted_in(spec.segments[0].source)
            output.flush()
        except BaseException:
            output.discard()
            raise
        return output

    def rewrite(self, spec: RewriteSpec) -> Manifest:
        """`write`, and `finish` at once."""
        return self.write(spec).finish()

    def _copy(
        self,
        spec: RewriteSpec,
        segment: SurvivingSegment,
        reader: SegmentReader,
        tracker: TransactionTracker,
        output: Output,
    ) -> None:
        keep = np.frombuffer(segment.keep + b"\0" * 8, dtype=np.uint8).copy()
        nulls = np.frombuffer(segment.nulls + b"\0" * 8, dtype=np.uint8)
        mortal = nulls
        if any(segment.pinned):
            pinned = np.frombuffer(segment.pinned + b"\0" * 8, dtype=np.uint8)
            mortal = np.frombuffer((nulls & ~pinned).tobytes(), dtype=np.uint8)
        manifest = output.manifest
        manifest.bytes_before += segment.source.size_bytes
        manifest.discarded.aborted += segment.aborted
        manifest.discarded.unkeyed += segment.unkeyed
        manifest.discarded.superseded -= segment.unkeyed + segment.aborted
        if segment.expired:
            expired = np.frombuffer(segment.expired, dtype=np.uint8)
            gone = int(np.bitwise_count(keep[: len(expired)] & expired).sum())
            keep[: len(expired)] &= ~expired
            manifest.discarded.expired += gone
            manifest.discarded.superseded -= gone
        rules = BatchRules(spec.compaction, segment.source)
        ordinal = 0
        for block in reader.blocks(segment.source):
            before = output.appended_bytes
            ordinals = block.ordinals(ordinal)
            ordinal += block.records_count
            if ordinal > 8 * len(segment.keep):
                raise CorruptError(_CHANGED, path=segment.source.path)
            if spec.erases:
                verdicts = rules.decide_by_bits(block, ordinals, keep, manifest)
            else:
                can_discard = discardable(tracker, block)
                verdicts = rules.decide(
                    block, ordinals, keep, (nulls, mortal), can_discard, manifest
                )
            if block.legacy is not None and spec.erases and verdicts.actions[0] == rebuild.COPY:
                self._copy_legacy(block.legacy, output)
            elif block.legacy is not None:
                self._rebuild_legacy(block, int(ordinals[0]), keep, output)
            else:
                self._write(spec, block, ordinals, keep, verdicts, output)
            self._progress(block.size_bytes)
            self._wrote(output.appended_bytes - before)

    def rewritten(
        self,
        spec: RewriteSpec,
        block: Block,
        keep: Bytes,
        nulls: tuple[Bytes, Bytes],
        can_discard: npt.NDArray[np.bool_],
    ) -> RewrittenBlock:
        """Sizes of some batches of a segment after a rewrite; they need not be consecutive.

        Args:
            spec: of the compaction; its segments are not looked at.
            block: the batches.
            keep: uint8, a bit for each record of the block in order; changed as a rewrite does.
            nulls: uint8, the same for null values, and for those that may go past their horizon.
            can_discard: bool[rows], as `discardable` says.

        Raises:
            CorruptError: a batch is damaged.
        """
        ordinals = block.ordinals()
        rules = BatchRules(spec.compaction, block.source)
        unused = Manifest(0, "")
        verdicts = rules.decide(block, ordinals, keep, nulls, can_discard, unused)
        sink = _Sizes()
        if block.legacy is not None:
            self._rebuild_legacy(block, 0, keep, sink)
        else:
            self._write(spec, block, ordinals, keep, verdicts, sink)
        sizes = np.zeros(block.rows, dtype=np.int64)
        left = verdicts.actions != rebuild.DISCARD
        sizes[left] = np.concatenate([np.empty(0, dtype=np.int64), *sink.sizes])
        return RewrittenBlock(sizes, verdicts.kept)

    def _write(
        self,
        spec: RewriteSpec,
        block: Block,
        ordinals: Ints,
        keep: Bytes,
        verdicts: Verdicts,
        output: _Batches,
    ) -> None:
        written = np.empty((block.rows, 3), dtype=np.int64)
        if self._out.shape[0] > _OUT_BYTES:  # one large batch: the next need less memory
            self._out = np.zeros(_OUT_BYTES, dtype=np.uint8)
        row = 0
        before = block.table[verdicts.actions != rebuild.DISCARD, rows_of.SIZE]
        while row < block.rows:
            filled, count, row, status = kernels.assemble(
                block.buffer,
                block.table,
                row,
                block.rows,
                verdicts.actions,
                verdicts.kept,
                verdicts.stamp,
                verdicts.horizons,
                ordinals,
                keep,
                self._out,
                written,
                self._plain,
                self._retained,
                self._codecs.table,
            )
            output.append(
                *without_growth(self._out.data[:filled], written[:count], before[:count]), count
            )
            before = before[count:]
            if status == rebuild.OUT_FULL and not filled:
                self._make_out(spec, int(verdicts.kept[row]))
            elif status == rebuild.SCRATCH_FULL:
                room = spec.compaction.batch_bytes_max + _ROOM_FOR_ONE
                self._make_scratch(room, room + _growth(int(verdicts.kept[row])))
            elif status == rebuild.BY_PYTHON:
                self._rebuild_by_python(spec, block, row, ordinals, keep, verdicts, output)
                row += 1
                before = before[1:]
            elif status == rebuild.BAD_RECORD:
                raise block.bad_record(row, _CHANGED)

    def _make_out(self, spec: RewriteSpec, kept: int) -> None:
        """Allocates buffers for the largest batch; memory is taken as it is written to."""
        plain = spec.compaction.batch_bytes_max + _growth(kept)
        self._out = np.zeros(plain + plain // 128 + _ROOM_FOR_ONE, dtype=np.uint8)

    def _make_scratch(self, plain_bytes: int, retained_bytes: int) -> None:
        """Allocates buffers for the records of one batch; memory is taken as it is written to."""
        self._plain = np.zeros(plain_bytes, dtype=np.uint8)
        self._retained = np.zeros(retained_bytes, dtype=np.uint8)

    def _rebuild_by_python(
        self,
        spec: RewriteSpec,
        block: Block,
        row: int,
        ordinals: Ints,
        keep: Bytes,
        verdicts: Verdicts,
        output: _Batches,
    ) -> None:
        """Rebuilds one batch of a codec that compiled code does not speak."""
        codec = Codec(block.codec_of(row))
        room = spec.compaction.batch_bytes_max
        if self._plain.shape[0] < room:
            self._make_scratch(room, room)
        try:
            size = decompress_into(codec, block.stored_records(row), self._plain.data[:room])
        except CorruptError as error:
            raise block.located(error, row) from error
        wanted = (size or 0) + _growth(int(verdicts.kept[row]))
        if wanted > self._retained.shape[0]:
            self._retained = np.zeros(wanted, dtype=np.uint8)
        meta = np.empty(3, dtype=np.int64)
        stamped = bool(verdicts.stamp[row])
        after = kernels.retained_records(
            self._plain,
            0,
            size or 0,
            block.table,
            row,
            int(ordinals[row]),
            keep,
            int(verdicts.horizons[row]),
            stamped,
            self._retained,
            0,
            meta,
        )
        if size is None or after < 0:
            raise block.bad_record(row, _CHANGED)
        payload = compress(codec, self._retained.data[:after])
        total = rows_of.HEADER_SIZE + len(payload)
        batch = np.empty(total + 8, dtype=np.uint8)
        batch[rows_of.HEADER_SIZE : total] = np.frombuffer(payload, dtype=np.uint8)
        attributes = int(block.table[row, rows_of.ATTRIBUTES])
        kernels.put_header(
            batch,
            0,
            block.buffer,
            int(block.table[row, rows_of.POSITION]),
            total,
            (attributes & 0x3F) | (_HORIZON if stamped else 0),
            int(meta[0]),
            int(meta[1]),
            int(meta[2]),
        )
        last_offset = block.table[row, rows_of.LAST_OFFSET]
        written = np.array([[total, last_offset, meta[1]]], dtype=np.int64)
        before = block.table[row : row + 1, rows_of.SIZE]
        output.append(*without_growth(batch.data[:total], written, before), 1)

    def _copy_legacy(self, entry: LegacyBatch, output: Output) -> None:
        """A magic 0 or 1 entry that an erasure leaves as it is."""
        written = np.array([[entry.size_bytes, entry.offset, entry.max_timestamp]], dtype=np.int64)
        output.append(memoryview(entry.raw), written, 1)

    def _rebuild_legacy(self, block: Block, ordinal: int, keep: Bytes, output: _Batches) -> None:
        """A magic 0 or 1 entry becomes a magic 2 batch of what survives of it."""
        entry = block.legacy
        assert entry is not None, "called for a legacy block"
        records = [
            record
            for i, record in enumerate(entry.records())
            if keep[(ordinal + i) >> 3] >> ((ordinal + i) & 7) & 1
        ]
        if not records:
            return
        append_time = entry.timestamp_type == "LogAppendTime"
        data = build_batch(
            records,
            base_offset=records[0].offset,
            codec=entry.codec,
            timestamp_type="LogAppendTime" if append_time else "CreateTime",
            log_append_time_ms=entry.max_timestamp if append_time else -1,
        )
        newest = entry.max_timestamp if append_time else max(r.timestamp for r in records)
        written = np.array([[len(data), records[-1].offset, newest]], dtype=np.int64)
        output.append(memoryview(data), written, 1)


def _growth(records: int) -> int:
    """The number of bytes by which so many records may grow when they are encoded again."""
    return rebuild.GROWTH_PER_RECORD * records
