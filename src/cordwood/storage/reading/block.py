"""Consecutive batches of a segment in memory: their bytes, and a table with a row for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cordwood.format.batch_header import CONTROL_BIT, HEADER_BYTES
from cordwood.format.compression import DECOMPRESSED_BYTES_MAX
from cordwood.format.legacy import LegacyBatch
from cordwood.format.native import batches as rows_of
from cordwood.format.record import Record
from cordwood.format.record_batch import RecordBatch, parse_batch
from cordwood.format.record_bound import RECORD_BYTES_MAX
from cordwood.model.errors import CorruptError, OversizedRecordError
from cordwood.storage.reading.source import SegmentSource

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]

_CODEC_MASK = 0x07


@dataclass(slots=True)
class Block:
    """Some consecutive batches of one segment, in memory until the next block is read.

    `table` is int64 of shape (rows, COLUMNS); `position` is where `buffer` starts in the file.
    `legacy` is set when the one row stands for a magic 0 or 1 entry. Where CRCs are marked, the one
    row of a block without `has_valid_crc` is a batch, or stands for an entry, whose CRC does not
    match.
    """

    source: SegmentSource
    buffer: Bytes
    table: Ints
    position: int
    legacy: LegacyBatch | None = None
    has_valid_crc: bool = True

    @property
    def rows(self) -> int:
        """The number of batches."""
        return int(self.table.shape[0])

    @property
    def counts(self) -> Ints:
        """int64[rows], the number of records of each batch; a view of the table."""
        return self.table[:, rows_of.COUNT]

    @property
    def records_count(self) -> int:
        """The number of records of all batches."""
        return int(self.counts.sum())

    @property
    def size_bytes(self) -> int:
        """The sizes of all batches."""
        return int(self.table[:, rows_of.SIZE].sum())

    @property
    def has_data(self) -> Flags:
        """bool[rows], which batches have records and are no control batches."""
        is_data = (self.table[:, rows_of.ATTRIBUTES] & CONTROL_BIT) == 0
        found: Flags = is_data & (self.counts > 0)
        return found

    def ordinals(self, first: int = 0) -> Ints:
        """int64[rows], the number of each batch's first record, counted from `first` on."""
        counts = self.counts
        found: Ints = first + np.cumsum(counts) - counts
        return found

    def position_of(self, row: int) -> int:
        """The position in the file at which a batch starts."""
        return self.position + int(self.table[row, rows_of.POSITION])

    def codec_of(self, row: int) -> int:
        """The number of a batch's codec."""
        return int(self.table[row, rows_of.ATTRIBUTES]) & _CODEC_MASK

    def stored_records(self, row: int) -> memoryview:
        """The records of a batch as they are stored, compressed or not."""
        start = int(self.table[row, rows_of.POSITION])
        end = start + int(self.table[row, rows_of.SIZE])
        return self.buffer.data[start + HEADER_BYTES : end]

    def batch(self, row: int) -> RecordBatch:
        """One batch; of a magic 0 or 1 entry, the batch of magic 2 that stands for it."""
        start = int(self.table[row, rows_of.POSITION])
        data = self.buffer[start : start + int(self.table[row, rows_of.SIZE])].tobytes()
        batch = parse_batch(data)
        assert isinstance(batch, RecordBatch), "the scan said that a whole batch is here"
        return batch

    def records(
        self,
        row: int,
        *,
        size_max: int = DECOMPRESSED_BYTES_MAX,
        record_bytes_max: int = RECORD_BYTES_MAX,
    ) -> Iterator[Record]:
        """The records of a batch, decompressed to at most `size_max` bytes.

        One of a compressed batch may take `record_bytes_max`.

        Raises:
            CorruptError: the batch does not decompress, or has a malformed record; names the file
                and the batch's position.
        """
        batch = self.batch(row)
        try:
            yield from batch.iter_records(size_max=size_max, record_bytes_max=record_bytes_max)
        except OversizedRecordError as error:
            raise self.oversized(row, error.reason) from error
        except CorruptError as error:
            raise self.located(error, row) from error

    def offsets(self, row: int, *, record_bytes_max: int = RECORD_BYTES_MAX) -> Ints:
        """int64[n], the offsets of a batch's records; reads them only if some are missing.

        Raises:
            CorruptError: as `records`.
        """
        base, last = self.table[row, [rows_of.BASE_OFFSET, rows_of.LAST_OFFSET]].tolist()
        if last - base + 1 == int(self.counts[row]):
            return np.arange(base, last + 1, dtype=np.int64)
        records = self.records(row, record_bytes_max=record_bytes_max)
        return np.array([record.offset for record in records], dtype=np.int64)

    def located(self, error: CorruptError, row: int) -> CorruptError:
        """The error of a batch with its file and position."""
        return error.located(path=self.source.path, base_position=self.position_of(row))

    def oversized(self, row: int, reason: str) -> OversizedRecordError:
        """The error for a batch with a record that is larger than its topic allows."""
        offset = int(self.table[row, rows_of.BASE_OFFSET])
        return self.source.oversized(self.position_of(row), offset, reason)

    def bad_record(
        self, row: int, reason: str = "a batch with a record that cannot be read"
    ) -> CorruptError:
        """The error for a batch of which the records cannot be used."""
        return CorruptError(reason, path=self.source.path, position=self.position_of(row))


#: The first arguments of a kernel that walks records: buffer, table, first and last row
#: (exclusive), spans.
Where = tuple[Bytes, Ints, int, int, Ints]


@dataclass(slots=True)
class Payload:
    """The uncompressed records of the rows `first` to `last` (exclusive) of a block.

    `spans` is int64 of shape (rows, 2): row i has its records from `spans[i, 0]` to `spans[i, 1]`
    in `buffer`; a start of -1 marks a batch whose records are not wanted.
    """

    block: Block
    buffer: Bytes
    spans: Ints
    first: int
    last: int

    @property
    def where(self) -> Where:
        """The rows, as kernels take them."""
        return self.buffer, self.block.table, self.first, self.last, self.spans

    def where_from(self, row: int) -> Where:
        """The rows from `row` on, as kernels take them."""
        return self.buffer, self.block.table, row, self.last, self.spans
