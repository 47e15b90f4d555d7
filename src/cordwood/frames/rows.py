"""Rows that are Python objects as Arrow batches, for tables of few rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import pyarrow as pa

#: The type of a time, Spark's own, and the largest one in ms.
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
MS_MAX: Final = ((1 << 63) - 1) // 1000

_BATCH_ROWS_MAX = 1000

Row = Mapping[str, Any]


def batches_of(
    rows: Iterable[Row], schema: pa.Schema, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Batches of rows with some of a schema's columns; what a row lacks is null."""
    wanted = pa.schema([schema.field(name) for name in columns])
    left = iter(rows)
    while some := list(islice(left, _BATCH_ROWS_MAX)):
        yield pa.RecordBatch.from_pylist(some, schema=wanted)


def timestamp(ms: int | None) -> int | None:
    """The microseconds of a time, as far as Spark has it; null for -1, which stands for none."""
    if ms is None or ms == -1:
        return None
    return max(-MS_MAX, min(ms, MS_MAX)) * 1000
