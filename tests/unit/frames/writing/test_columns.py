"""Columns of a DataFrame as rows for the kernels: what is taken, and what is refused."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from cordwood.format.native import record_fields as fields
from cordwood.format.native import record_rows as rows_of
from cordwood.frames.writing.columns import Rows, require_columns, rows_from
from cordwood.model.errors import ConfigError
from cordwood.model.kafka_errors import InvalidRecordError, InvalidTimestampError
from support.written_topics import HEADERS, rows


def made(batch: pa.RecordBatch, partitions: int = 4) -> Rows:
    return rows_from(batch, partitions=partitions, now_ms=77)


def cell(rows: Rows, row: int, start: int) -> bytes | None:
    data = rows.keys if start == rows_of.KEY_START else rows.values
    first, size = rows.table[row, start : start + 2].tolist()
    return None if size < 0 else data[first : first + size].tobytes()


def as_field(text: str | None, is_text: bool) -> str | bytes | None:
    return text if is_text or text is None else text.encode()


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()], ids=str
)
def test_text_and_bytes_are_taken_and_nulls_stay_nulls(kind: pa.DataType) -> None:
    is_text = kind in {pa.string(), pa.large_string()}
    # A part of a longer batch: its buffers begin earlier.
    texts = [("x", "y"), ("a", None), (None, "bc"), ("", "")]
    pairs = [(as_field(key, is_text), as_field(value, is_text)) for key, value in texts]
    found = made(rows(pairs, kind).slice(1))
    assert [cell(found, row, rows_of.KEY_START) for row in range(3)] == [b"a", None, b""]
    assert [cell(found, row, rows_of.VALUE_START) for row in range(3)] == [None, b"bc", b""]
    assert found.table[:, rows_of.TIMESTAMP].tolist() == [77] * 3


def test_a_column_of_nulls_alone_has_no_bytes() -> None:
    found = made(rows([(None, None), (None, None)]))
    assert found.table[:, [rows_of.KEY_SIZE, rows_of.VALUE_SIZE]].tolist() == [[-1, -1]] * 2
    assert found.chosen.tolist() == [-1, -1]


def test_timestamps_are_rounded_down_to_ms_and_one_that_is_missing_is_now() -> None:
    moments = [datetime(1970, 1, 1, 0, 0, 1, 1999, UTC), None]
    times = pa.array(moments, pa.timestamp("us", tz="UTC"))
    found = made(rows([(b"k", b"v")] * 2, timestamp=times))
    assert found.table[:, rows_of.TIMESTAMP].tolist() == [1001, 77]


def test_a_timestamp_before_1970_is_refused() -> None:
    times = pa.array([-1], pa.timestamp("us"))
    with pytest.raises(InvalidTimestampError, match="non-negative"):
        made(rows([(b"k", b"v")], timestamp=times))


def test_a_partition_that_is_given_comes_before_that_of_the_key() -> None:
    found = made(rows([(b"k", b"v")] * 2, partition=pa.array([3, None], pa.int32())))
    assert found.chosen[0] == 3
    assert found.chosen[1] == made(rows([(b"k", b"v")])).chosen[0]


@pytest.mark.parametrize("number", [-1, 4])
def test_a_partition_that_is_not_there_is_refused(number: int) -> None:
    text = f"Invalid partition given with record: {number} is not in the range [0...4)."
    with pytest.raises(InvalidRecordError, match=re.escape(text)):
        made(rows([(b"k", b"v")], partition=pa.array([number], pa.int32())))


def test_headers_are_those_of_their_row() -> None:
    given = [None, [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], []]
    column = pa.array([[{"key": "z", "value": b"9"}], *given], HEADERS)
    found = made(rows([(b"k", b"v")] * 4, headers=column).slice(1))
    counts = found.table[:, rows_of.HEADERS_COUNT].tolist()
    assert counts == [0, 2, 0]
    first = int(found.table[1, rows_of.HEADERS_FIRST])
    headers = found.headers[first : first + 2]
    names = [found.names[s : s + n].tobytes() for s, n in headers[:, :2].tolist()]
    assert names == [b"a", b"b"]
    assert headers[:, fields.CONTENT_SIZE].tolist() == [1, -1]


def test_a_header_without_a_key_is_refused_unless_its_list_is_null() -> None:
    structs = pa.array([{"key": None, "value": b"1"}], HEADERS.value_type)
    offsets = pa.array([0, 1], pa.int32())
    with pytest.raises(InvalidRecordError, match="null key"):
        made(rows([(b"k", b"v")], headers=pa.ListArray.from_arrays(offsets, structs)))
    hidden = pa.ListArray.from_arrays(offsets, structs, mask=pa.array([True]))
    assert made(rows([(b"k", b"v")], headers=hidden)).table[0, rows_of.HEADERS_COUNT] == 0


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"key": pa.binary()}, "no column value"),
        ({"value": pa.int64()}, "column value: it cannot be of the type int64"),
        ({"value": pa.binary(), "topic": pa.string()}, "column topic: a topic is written from"),
        ({"value": pa.binary(), "Value": pa.binary()}, "each at most once"),
        ({"value": pa.binary(), "timestamp": pa.int64()}, "column timestamp: it cannot be"),
        ({"value": pa.binary(), "partition": pa.string()}, "column partition: it cannot be"),
        ({"value": pa.binary(), "headers": pa.list_(pa.string())}, "column headers: it cannot be"),
    ],
)
def test_other_columns_are_refused(columns: dict[str, pa.DataType], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        require_columns(pa.schema(list(columns.items())))


def test_the_columns_of_the_kafka_sink_are_taken_in_whatever_case() -> None:
    columns = {"KEY": pa.string(), "value": pa.binary(), "headers": HEADERS}
    more = {"partition": pa.int32(), "timestamp": pa.timestamp("us", tz="UTC")}
    require_columns(pa.schema([*columns.items(), *more.items()]))
