"""Lists where the fields of records are, and gathers those fields for a table of columns.

Twin: `cordwood.format.record_batch.RecordBatch.records`.
Source: org.apache.kafka.common.record.DefaultRecord.readFrom.
"""

from __future__ import annotations

import numpy as np

from cordwood.format.native.batches import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP,
)
from cordwood.format.native.record_fields import (
    CONTENT_SIZE,
    CONTENT_START,
    HEADERS_COUNT,
    HEADERS_START,
    KEY_SIZE,
    KEY_START,
    MALFORMED,
    NAME_SIZE,
    NAME_START,
    OFFSET,
    OK,
    RECORD_END,
    TIMESTAMP,
    VALUE_SIZE,
    VALUE_START,
)
from cordwood.format.native.source.kernel import Bytes, Ints, Rows, kernel
from cordwood.format.native.source.varints import LONG_BITS
from cordwood.format.native.source.whole_record import count_of_headers, fields_at, skip_field

_LOG_APPEND_TIME = 0x08


@kernel
def list_records(
    buffer: Bytes, batches: Rows, first: int, last: int, spans: Rows, rows: Rows
) -> tuple[int, int]:
    """Lists the records of the rows `first` to `last` (exclusive) of a batch table.

    The timestamp is that of a reader, the append time in a batch that has one. Headers are counted,
    and not read.

    Args:
        buffer: uint8, with at least 24 readable bytes beyond the records.
        batches: a batch table.
        first: the first row.
        last: exclusive.
        spans: int64 of shape (rows, 2): where in `buffer` each batch's records start and end; a
            start of -1 leaves the batch out.
        rows: int64 of shape (n, COLUMNS), filled from row 0; n is the records of all those batches.

    Returns:
        (OK, rows filled), or (MALFORMED, row of the first batch with a record that is none).
    """
    at = 0
    for i in range(first, last):
        if spans[i, 0] < 0:
            continue
        position = spans[i, 0]
        end = spans[i, 1]
        last_delta = np.int64(-1)
        is_append_time = batches[i, ATTRIBUTES] & _LOG_APPEND_TIME != 0
        for _ in range(batches[i, COUNT]):
            record_end, time_delta, delta, _, key_start, key_size, _, headers = fields_at(
                buffer, position, end, LONG_BITS
            )
            if record_end < 0 or delta <= last_delta:
                return MALFORMED, i
            value_size, value_end = skip_field(
                buffer, key_start + max(key_size, 0), record_end, LONG_BITS
            )
            count, first_header = count_of_headers(buffer, headers, record_end, LONG_BITS)
            if first_header < 0:
                return MALFORMED, i
            last_delta = delta
            rows[at, OFFSET] = batches[i, BASE_OFFSET] + delta
            rows[at, TIMESTAMP] = (
                batches[i, MAX_TIMESTAMP]
                if is_append_time
                else batches[i, BASE_TIMESTAMP] + time_delta
            )
            rows[at, KEY_START] = key_start
            rows[at, KEY_SIZE] = max(key_size, np.int64(-1))
            rows[at, VALUE_START] = value_end - max(value_size, 0)
            rows[at, VALUE_SIZE] = max(value_size, np.int64(-1))
            rows[at, HEADERS_START] = first_header
            rows[at, HEADERS_COUNT] = count
            rows[at, RECORD_END] = record_end
            at += 1
            position = record_end
        if position != end or batches[i, BASE_OFFSET] + last_delta > batches[i, LAST_OFFSET]:
            return MALFORMED, i
    return OK, at


@kernel
def list_headers(buffer: Bytes, records: Rows, count: int, rows: Rows) -> tuple[int, int]:
    """Lists the headers of the first `count` records.

    Args:
        buffer: that of the records.
        records: int64 of shape (n, COLUMNS), as `list_records` fills it.
        count: how many of them.
        rows: int64 of shape (m, HEADER_COLUMNS), filled from row 0; m is the sum of their counts.

    Returns:
        (OK, rows filled), or (MALFORMED, record with a header that is none).
    """
    at = 0
    for i in range(count):
        position = records[i, HEADERS_START]
        end = records[i, RECORD_END]
        for _ in range(records[i, HEADERS_COUNT]):
            size, position = skip_field(buffer, position, end, LONG_BITS)
            if position < 0 or size < 0:
                return MALFORMED, i
            rows[at, NAME_START] = position - size
            rows[at, NAME_SIZE] = size
            size, position = skip_field(buffer, position, end, LONG_BITS)
            if position < 0:
                return MALFORMED, i
            rows[at, CONTENT_START] = position - max(size, 0)
            rows[at, CONTENT_SIZE] = max(size, np.int64(-1))
            at += 1
        if position != end:
            return MALFORMED, i
    return OK, at


@kernel
def gather_fields(
    buffer: Bytes, rows: Rows, first: int, last: int, column: int, out: Bytes, ends: Ints
) -> int:
    """Copies a field of the rows `first` to `last` (exclusive), one behind the other.

    Args:
        buffer: where the fields are.
        rows: int64: a field's start is in `column`, its size in the next one; nothing is copied of
            a null.
        first: the first row.
        last: exclusive.
        column: which field.
        out: uint8, as large as their sizes together.
        ends: int64[last - first], written: where in `out` each ends.

    Returns:
        The bytes copied.
    """
    at = 0
    for i in range(first, last):
        size = rows[i, column + 1]
        if size > 0:
            start = rows[i, column]
            out[at : at + size] = buffer[start : start + size]
            at += size
        ends[i - first] = at
    return at
