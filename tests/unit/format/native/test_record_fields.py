"""The kernels that list fields of records and gather them, against the plain reader."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format.batch_header import HEADER_BYTES
from cordwood.format.native import batches as rows_of
from cordwood.format.native import kernels
from cordwood.format.native import record_fields as columns
from cordwood.format.record import Header, Record
from cordwood.format.record_batch import build_batch
from cordwood.model.errors import CorruptError
from support.scanned_batches import Ints, batches, records_in, scanned


def listed(data: bytes) -> tuple[int, npt.NDArray[np.uint8], Ints]:
    """(status, buffer, rows filled) of whole batches."""
    buffer, table, spans = scanned(data)
    rows = np.empty((int(table[:, rows_of.COUNT].sum()), columns.COLUMNS), dtype=np.int64)
    status, count = kernels.list_records(buffer, table, 0, len(table), spans, rows)
    return status, buffer, rows[:count]


def headers_of(buffer: npt.NDArray[np.uint8], rows: Ints) -> tuple[int, Ints]:
    found = np.empty(
        (int(rows[:, columns.HEADERS_COUNT].sum()), columns.HEADER_COLUMNS), dtype=np.int64
    )
    status, count = kernels.list_headers(buffer, rows, len(rows), found)
    return status, found[:count]


def field(buffer: npt.NDArray[np.uint8], row: list[int], column: int) -> bytes | None:
    start, size = row[column], row[column + 1]
    return None if size < 0 else buffer[start : start + size].tobytes()


@given(st.lists(batches(), min_size=1, max_size=3))
def test_fields_are_where_the_plain_reader_finds_them(parts: list[bytes]) -> None:
    status, buffer, rows = listed(b"".join(parts))
    assert status == columns.OK
    records = [each for part in parts for each in records_in(part)]
    assert rows[:, columns.OFFSET].tolist() == [each.offset for each in records]
    assert rows[:, columns.TIMESTAMP].tolist() == [each.timestamp for each in records]
    for row, record in zip(rows.tolist(), records, strict=True):
        assert field(buffer, row, columns.KEY_START) == record.key
        assert field(buffer, row, columns.VALUE_START) == record.value
    status, headers = headers_of(buffer, rows)
    assert status == columns.OK
    assert rows[:, columns.HEADERS_COUNT].tolist() == [len(each.headers) for each in records]
    assert [
        Header(
            (field(buffer, row, columns.NAME_START) or b"").decode("utf-8", "surrogatepass"),
            field(buffer, row, columns.CONTENT_START),
        )
        for row in headers.tolist()
    ] == [header for record in records for header in record.headers]


@given(batches(), st.data())
def test_a_field_is_gathered_with_the_end_of_each(data: bytes, chooses: st.DataObject) -> None:
    _, buffer, rows = listed(data)
    records = records_in(data)
    first = chooses.draw(st.integers(0, len(records)))
    last = chooses.draw(st.integers(first, len(records)))
    values = [each.value or b"" for each in records[first:last]]
    out = np.empty(sum(map(len, values)), dtype=np.uint8)
    ends = np.empty(last - first, dtype=np.int64)
    copied = kernels.gather_fields(buffer, rows, first, last, columns.VALUE_START, out, ends)
    assert (copied, out.tobytes()) == (len(out), b"".join(values))
    assert ends.tolist() == np.cumsum([len(each) for each in values], dtype=np.int64).tolist()


def test_batches_without_a_span_are_left_out() -> None:
    data = b"".join(build_batch([Record(n, 5, b"k", b"v")], base_offset=n) for n in (50, 51, 52))
    buffer, table, spans = scanned(data)
    spans[1, 0] = -1
    rows = np.empty((2, columns.COLUMNS), dtype=np.int64)
    assert kernels.list_records(buffer, table, 0, 3, spans, rows) == (columns.OK, 2)
    assert rows[:, columns.OFFSET].tolist() == [50, 52]


@given(batches(), st.data())
def test_a_changed_byte_is_refused_wherever_the_plain_reader_refuses_it(
    data: bytes, chooses: st.DataObject
) -> None:
    changed = bytearray(data)
    changed[chooses.draw(st.integers(HEADER_BYTES, len(data) - 1))] = chooses.draw(
        st.integers(0, 255)
    )
    status, buffer, rows = listed(bytes(changed))
    if status == columns.OK:
        status, _ = headers_of(buffer, rows)
    try:
        records_in(bytes(changed))
    except CorruptError:
        assert status == columns.MALFORMED


@pytest.mark.parametrize("last_offset", [50, 51])
def test_an_offset_beyond_the_header_is_malformed(last_offset: int) -> None:
    records = [Record(50, 5, None, b"v"), Record(51, 5, None, b"v")]
    buffer, table, spans = scanned(build_batch(records, base_offset=50))
    table[0, rows_of.LAST_OFFSET] = last_offset
    rows = np.empty((2, columns.COLUMNS), dtype=np.int64)
    status, _ = kernels.list_records(buffer, table, 0, 1, spans, rows)
    assert status == (columns.OK if last_offset == 51 else columns.MALFORMED)
