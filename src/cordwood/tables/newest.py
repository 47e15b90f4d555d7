"""The newest record of each key in a part of a log, which is read twice.

First keys and offsets alone are read, and the keys are in memory; then the records whose offsets
were found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from cordwood.frames.records import RECORDS, RecordReader
from cordwood.frames.slices import Slice
from cordwood.model.errors import CorruptError
from cordwood.storage.reading.block import Ints

#: So many rows are put together at least, before those of one key become one.
_FOLDED_ROWS: Final = 1 << 19

# Keys of 2 GiB together and more need offsets of 64 bits.
_SCHEMA: Final = pa.schema({"key": pa.large_binary(), "offset": pa.int64()})


def newest_records(parts: Sequence[Slice], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The newest record of each key in the slices of one partition, tombstones too.

    Records without a key are left out, as compaction leaves them out.

    Args:
        parts: of one partition, in the order of offsets.
        columns: names of columns, `offset` among them.

    Raises:
        CorruptError: a record cannot be read, or the log was compacted between both reads.
        OSError: a file cannot be read.
    """
    newest = newest_offsets(parts)
    left = len(newest)
    for part in parts if left else ():
        for batch in RECORDS.read(part, columns):
            offsets = batch.column("offset").to_numpy()
            places = np.minimum(np.searchsorted(newest, offsets), len(newest) - 1)
            found = batch.filter(pa.array(newest[places] == offsets))
            left -= found.num_rows
            if found.num_rows:
                yield found
    if left:
        raise CorruptError(
            f"{parts[0].partition}: {left} records that were there are not there any more",
            remedy="A compaction has removed them meanwhile: start the run again",
        )


def newest_offsets(parts: Iterable[Slice]) -> Ints:
    """int64[keys], sorted: the offset of the newest record of each key.

    Raises:
        CorruptError, OSError: as `RecordReader.read`.
    """
    reader = RecordReader(_SCHEMA.names)
    known, new, rows = _SCHEMA.empty_table(), list[pa.RecordBatch](), 0
    for part in parts:
        for batch in reader.read(part):
            new.append(batch.filter(batch.column("key").is_valid()))
            rows += new[-1].num_rows
            if rows > max(_FOLDED_ROWS, known.num_rows):
                known, new, rows = _folded(known, new), [], 0
    found = _folded(known, new)["offset"].to_numpy()
    return np.sort(found)


def _folded(known: pa.Table, new: Sequence[pa.RecordBatch]) -> pa.Table:
    tables = [known, *(pa.Table.from_batches([each]).cast(_SCHEMA) for each in new)]
    found = pa.concat_tables(tables).group_by("key").aggregate([("offset", "max")])
    return pa.table([found["key"], found["offset_max"]], schema=_SCHEMA)
