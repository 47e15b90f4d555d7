"""A walk over one segment that checks every batch and record, and does not stop at damage.

Behind a batch whose length can be believed the walk continues; else the rest of the segment is not
looked at, and nothing is said about it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cordwood.cleanup.verification.findings import Findings, Rule
from cordwood.format.batch_header import CONTROL_BIT, TIMESTAMP_TYPE_BIT, TRANSACTIONAL_BIT
from cordwood.format.control_record import (
    ControlType,
    EndTxnMarker,
    parse_control_type_id,
    parse_end_txn_marker,
)
from cordwood.format.native import batches as rows_of
from cordwood.format.native import contents, kernels
from cordwood.format.record_batch import CONTROL_RECORDS_BYTES_MAX
from cordwood.model.errors import BatchTooLargeError, CorruptError, OversizedRecordError
from cordwood.storage.filesystem import OS, FileSystem
from cordwood.storage.reading.block import Block, Flags, Ints
from cordwood.storage.reading.segment_reader import CUT_OFF, BadBatchError, SegmentReader
from cordwood.storage.reading.source import WIDEST, ReadBounds, SegmentSource

_OFFSETS_PER_SEGMENT = 1 << 31

_RULE_OF_STATUS = {
    rows_of.BAD_LENGTH: Rule.BATCH_LENGTH,
    rows_of.BAD_MAGIC: Rule.BATCH_MAGIC,
    rows_of.BAD_CRC: Rule.BATCH_CRC,
    rows_of.BAD_COUNT: Rule.BATCH_COUNT,
    CUT_OFF: Rule.BATCH_CUT_OFF,
}
_RECORDS = {
    contents.MALFORMED: (Rule.RECORD_FORMAT, "a record, or a header of one, cannot be read"),
    contents.NOT_ASCENDING: (Rule.RECORD_ORDER, "the offsets of its records do not ascend"),
    contents.TOO_LONG: (Rule.RECORD_COUNT, "bytes are left behind the records that it counts"),
}


@dataclass(slots=True)
class Piece:
    """Some consecutive batches of a segment: those of `block`, at `positions` in the file.

    They end at byte `end`, exclusive, which is not where those of the block do if it is made of an
    old message.
    `lasts` and `timestamps` are their last offsets and maximum timestamps. `markers` are the
    transaction markers by row.
    """

    block: Block
    positions: Ints
    end: int
    lasts: Ints
    timestamps: Ints
    markers: dict[int, EndTxnMarker]


class SegmentCheck:
    """Checks the batches of segments, one after the other; keeps its buffers.

    `is_sound` says whether nothing was found in the segment at hand so far. What lies beside a log
    is compared only as far as it is. `records` and `batches` count those of all segments.
    """

    def __init__(
        self,
        findings: Findings,
        *,
        bounds: ReadBounds = WIDEST,
        is_settled: bool = True,
        fs: FileSystem = OS,
    ) -> None:
        """Takes where findings go, and whether the log's broker had stopped in good order."""
        self._findings = findings
        self._is_settled = is_settled
        self._fs = fs
        self._reader = SegmentReader(bounds=bounds, fs=fs)
        self._last_offset = -1
        self.is_sound = True
        self.records = 0
        self.batches = 0

    @property
    def last_offset(self) -> int:
        """The last offset so far."""
        return self._last_offset

    def pieces(self, source: SegmentSource, *, is_last: bool) -> Iterator[Piece]:
        """Checks the batches of a segment; yields them in order.

        Raises:
            OSError: the file cannot be read.
        """
        self.is_sound = True
        self._last_offset = source.base_offset - 1
        start: int | None = 0
        while start is not None:
            try:
                for block in self._reader.blocks(source, start=start):
                    yield self._checked(block)
                start = None
            except BadBatchError as error:
                start = self._bad_batch(source, error, is_last=is_last)
            except OversizedRecordError as error:
                start = self._oversized_set(source, error)
            except (CorruptError, BatchTooLargeError) as error:
                self._add(Rule.BATCH_LEGACY, source, error.reason, error.position or 0)
                start = None

    # ---- damaged batches

    def _bad_batch(
        self, source: SegmentSource, error: BadBatchError, *, is_last: bool
    ) -> int | None:
        """Notes it; where the next batch begins, None if that is not known."""
        at = error.position or 0
        rule = _RULE_OF_STATUS[error.status]
        if rule is Rule.BATCH_CUT_OFF and is_last and not self._is_settled:
            rule = Rule.TORN_TAIL
        size = self._size_at(source, at)
        reason = error.reason
        if rule in {Rule.BATCH_CUT_OFF, Rule.TORN_TAIL}:
            left = source.size_bytes - at
            reason = f"a batch of {size or 'unknown'} bytes, of which {left} are there"
        self._add(rule, source, reason, at, offset=self._last_offset + 1)
        if error.status in {rows_of.BAD_CRC, rows_of.BAD_COUNT} and size is not None:
            return at + size
        return None

    def _oversized_set(self, source: SegmentSource, error: OversizedRecordError) -> int | None:
        """Notes an old message whose set has too large a record; where the next batch begins."""
        at = error.position or 0
        self._add(Rule.RECORD_SIZE, source, error.reason, at)
        size = self._size_at(source, at)
        return None if size is None else at + size

    def _size_at(self, source: SegmentSource, position: int) -> int | None:
        with closing(self._fs.open(Path(source.path))) as file:
            head = file.read_at(12, position)
        return int.from_bytes(head[8:12], "big", signed=True) + 12 if len(head) == 12 else None

    # ---- batches that can be read

    def _checked(self, block: Block) -> Piece:
        self.batches += block.rows
        self.records += block.records_count
        self._check_offsets(block)
        self._check_records(block)
        return _piece(block, self._markers(block))

    def _check_offsets(self, block: Block) -> None:
        source = block.source
        bases = block.table[:, rows_of.BASE_OFFSET]
        lasts = block.table[:, rows_of.LAST_OFFSET]
        before = np.maximum.accumulate(np.concatenate(([self._last_offset], lasts[:-1])))
        end = min(source.next_base_offset, source.base_offset + _OFFSETS_PER_SEGMENT)
        outside = (bases < source.base_offset) | (lasts >= end)
        for row in np.flatnonzero(outside).tolist():
            self._add_batch(
                Rule.OFFSET_RANGE,
                block,
                row,
                f"a batch of offsets {bases[row]} to {lasts[row]} in a segment of offsets from "
                f"{source.base_offset} to {end - 1}",
            )
        for row in np.flatnonzero((bases <= before) & ~outside).tolist():
            reason = f"a batch of offsets {bases[row]} to {lasts[row]} behind offset {before[row]}"
            self._add_batch(Rule.OFFSET_ORDER, block, row, reason)
        inside = lasts[~outside]
        if len(inside):
            self._last_offset = max(self._last_offset, int(inside.max()))

    def _check_records(self, block: Block) -> None:
        found = np.empty((block.rows, contents.CHECKS), dtype=np.int64)
        found[:, contents.CHECK_STATUS] = contents.SOUND
        wanted = np.ones(block.rows, dtype=np.bool_)
        while True:
            try:
                for payload in self._reader.payloads(block, wanted):
                    kernels.check_batches(*payload.where, found)
                break
            except CorruptError as error:
                # One batch is left out, and the others are checked once more.
                row = _row_at(block, error.position or 0)
                wanted[row] = False
                is_oversized = isinstance(error, OversizedRecordError)
                rule = Rule.RECORD_SIZE if is_oversized else Rule.COMPRESSION
                self._add_batch(rule, block, row, error.reason)
        status = np.where(wanted, found[:, contents.CHECK_STATUS], contents.SOUND)
        for row in np.flatnonzero(status != contents.SOUND).tolist():
            rule, reason = _RECORDS[int(status[row])]
            self._add_batch(rule, block, row, reason)
        sound = wanted & (status == contents.SOUND) & (block.counts > 0)
        self._check_bounds(block, found, sound)

    def _check_bounds(self, block: Block, found: Ints, sound: Flags) -> None:
        """Checks last offsets and maximum timestamps against the records."""
        table = block.table
        lasts = found[:, contents.CHECK_LAST_OFFSET]
        for row in np.flatnonzero(sound & (lasts > table[:, rows_of.LAST_OFFSET])).tolist():
            self._add_batch(
                Rule.RECORD_ORDER,
                block,
                row,
                f"a record of offset {lasts[row]} in a batch that ends at "
                f"{table[row, rows_of.LAST_OFFSET]}",
            )
        if block.legacy is not None:
            return
        create_time = (table[:, rows_of.ATTRIBUTES] & TIMESTAMP_TYPE_BIT) == 0
        newest = found[:, contents.CHECK_MAX_TIMESTAMP]
        stated = table[:, rows_of.MAX_TIMESTAMP]
        for row in np.flatnonzero(sound & create_time & (newest != stated)).tolist():
            self._add_batch(
                Rule.MAX_TIMESTAMP,
                block,
                row,
                f"a batch of maximum timestamp {stated[row]}, whose newest record has "
                f"{newest[row]}",
            )

    def _markers(self, block: Block) -> dict[int, EndTxnMarker]:
        table = block.table
        markers: dict[int, EndTxnMarker] = {}
        for row in np.flatnonzero(table[:, rows_of.ATTRIBUTES] & CONTROL_BIT).tolist():
            try:
                marker = marker_in(block, row)
            except CorruptError as error:
                self._add_batch(Rule.CONTROL_BATCH, block, row, error.reason)
                continue
            if marker is not None:
                markers[row] = marker
        return markers

    def _add_batch(self, rule: Rule, block: Block, row: int, reason: str) -> None:
        offset = int(block.table[row, rows_of.BASE_OFFSET])
        self._add(rule, block.source, reason, block.position_of(row), offset=offset)

    def _add(
        self,
        rule: Rule,
        source: SegmentSource,
        reason: str,
        position: int,
        *,
        offset: int | None = None,
    ) -> None:
        self.is_sound = False
        self._findings.add(rule, source.path, reason, position=position, offset=offset)


def _piece(block: Block, markers: dict[int, EndTxnMarker]) -> Piece:
    table = block.table
    timestamps = table[:, rows_of.MAX_TIMESTAMP]
    end = block.position_of(-1) + int(table[-1, rows_of.SIZE])
    if block.legacy is not None:
        timestamps = np.array([block.legacy.max_timestamp], dtype=np.int64)
        end = block.position_of(0) + block.legacy.size_bytes
    return Piece(
        block=block,
        positions=block.position + table[:, rows_of.POSITION],
        end=end,
        lasts=table[:, rows_of.LAST_OFFSET],
        timestamps=timestamps,
        markers=markers,
    )


def _row_at(block: Block, position: int) -> int:
    """The row of the batch at a position of the file."""
    starts = block.position + block.table[:, rows_of.POSITION]
    return max(0, int(np.searchsorted(starts, position, side="right")) - 1)


def marker_in(block: Block, row: int) -> EndTxnMarker | None:
    """The transaction marker of a control batch; None in an empty one, or one of KRaft.

    Raises:
        CorruptError: it is no control batch that a broker writes.
    """
    fields = block.table[row]
    is_of_producer = int(fields[rows_of.PRODUCER_ID]) >= 0
    count = int(block.counts[row])
    if is_of_producer and count > 1:
        raise CorruptError(f"a control batch of a transaction with {count} records")
    if is_of_producer and not int(fields[rows_of.ATTRIBUTES]) & TRANSACTIONAL_BIT:
        raise CorruptError("a control batch of a producer that is not transactional")
    if count == 0:
        return None
    record = next(block.records(row, size_max=CONTROL_RECORDS_BYTES_MAX))
    kind = parse_control_type_id(record.key)
    if kind in {ControlType.ABORT, ControlType.COMMIT}:
        if not is_of_producer:
            raise CorruptError("a transaction marker without a producer")
        return parse_end_txn_marker(record.key, record.value)
    if is_of_producer:
        raise CorruptError(f"a control batch of a producer with a record of type {kind}")
    return None
