"""Batches of any records, and what `kernels.scan_batches` makes of them.

Role: tests of kernels that walk records.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels
from cordwood.format.record import Header
from cordwood.format.record_batch import Record, RecordBatch, build_batch, parse_batch

Ints = npt.NDArray[np.int64]

_bytes = st.none() | st.binary(max_size=40)
_headers = st.lists(st.builds(Header, st.text(max_size=5), _bytes), max_size=3).map(tuple)
_times = st.integers(0, 1 << 40)


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """The bytes of a batch, not compressed, with offsets from 50 on."""
    deltas = draw(st.sets(st.integers(0, 200), min_size=1, max_size=6).map(sorted))
    records = [
        Record(50 + delta, draw(_times), draw(_bytes), draw(_bytes), draw(_headers))
        for delta in deltas
    ]
    append_time = draw(st.booleans())
    return build_batch(
        records,
        base_offset=50,
        last_offset=50 + deltas[-1] + draw(st.integers(0, 3)),
        timestamp_type="LogAppendTime" if append_time else "CreateTime",
        log_append_time_ms=99 if append_time else -1,
    )


def padded(data: bytes) -> npt.NDArray[np.uint8]:
    """A buffer as kernels need it, with readable bytes beyond the end."""
    buffer = np.zeros(len(data) + 64, dtype=np.uint8)
    buffer[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return buffer


def scanned(data: bytes) -> tuple[npt.NDArray[np.uint8], Ints, Ints]:
    """(buffer, batch table, spans) of whole batches, whose CRCs are not looked at."""
    buffer = padded(data)
    table = np.empty((16, rows_of.COLUMNS), dtype=np.int64)
    rows, _, _ = kernels.scan_batches(buffer, 0, len(data), table, False)
    table = table[:rows]
    spans = np.empty((rows, 2), dtype=np.int64)
    spans[:, 0] = table[:, rows_of.POSITION] + HEADER_BYTES
    spans[:, 1] = table[:, rows_of.POSITION] + table[:, rows_of.SIZE]
    return buffer, table, spans


def records_in(data: bytes) -> list[Record]:
    """The records of one batch, as the plain reader has them."""
    batch = parse_batch(data)
    assert isinstance(batch, RecordBatch)
    return list(batch.records())
