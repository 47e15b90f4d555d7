"""Records of single batches of a block, in plain Python: few batches are looked at so closely."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cordwood.format.native import batches as rows_of
from cordwood.format.record import Record
from cordwood.format.record_batch import RecordBatch, parse_batch
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.blocks import Block, Ints
from cordwood.storage.reading.source import SegmentSource


def offsets_of(source: SegmentSource, block: Block, row: int) -> Ints:
    """The offsets of a batch's records, int64.

    Raises:
        CorruptError: the batch does not decompress, or has a malformed record.
    """
    table = block.table
    base, last = int(table[row, rows_of.BASE_OFFSET]), int(table[row, rows_of.LAST_OFFSET])
    if last - base + 1 == int(table[row, rows_of.COUNT]):
        return np.arange(base, last + 1, dtype=np.int64)
    offsets = [record.offset for record in records_in(source, block, row)]
    return np.array(offsets, dtype=np.int64)


def records_in(source: SegmentSource, block: Block, row: int) -> Iterator[Record]:
    """The records of a batch; of a magic 0 or 1 entry as its block has them.

    Raises:
        CorruptError: the batch does not decompress, or has a malformed record.
    """
    start = int(block.table[row, rows_of.POSITION])
    data = block.buffer[start : start + int(block.table[row, rows_of.SIZE])].tobytes()
    try:
        batch = parse_batch(data)
        assert isinstance(batch, RecordBatch), "the scan said that a whole batch is here"
        yield from batch.iter_records()
    except CorruptError as error:
        raise error.located(path=source.path, base_position=block.position_of(row)) from error
