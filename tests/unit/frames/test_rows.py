"""Rows as Arrow batches."""

from __future__ import annotations

import pyarrow as pa

from cordwood.frames.rows import TIMESTAMP, batches_of, timestamp

SCHEMA = pa.schema({"a": pa.int32(), "b": pa.string(), "at": TIMESTAMP})
LONG_MAX = (1 << 63) - 1


def test_rows_are_batched_with_the_columns_in_the_order_asked_for() -> None:
    found = list(batches_of(({"a": n, "b": str(n)} for n in range(2500)), SCHEMA, ("b", "a")))
    assert [batch.num_rows for batch in found] == [1000, 1000, 500]
    assert found[0].schema == pa.schema({"b": pa.string(), "a": pa.int32()})
    assert found[2].to_pylist()[-1] == {"b": "2499", "a": 2499}


def test_what_a_row_lacks_is_null() -> None:
    (batch,) = batches_of([{"a": 1}], SCHEMA, ("a", "b", "at"))
    assert batch.to_pylist() == [{"a": 1, "b": None, "at": None}]


def test_times_are_as_far_as_spark_has_them() -> None:
    assert timestamp(1500) == 1_500_000
    assert timestamp(None) is None
    assert timestamp(-1) is None
    ends = {"a": timestamp(LONG_MAX)}, {"a": timestamp(-LONG_MAX)}
    (batch,) = batches_of(ends, pa.schema({"a": TIMESTAMP}), ("a",))
    micros = LONG_MAX // 1000 * 1000
    assert batch.column("a").cast(pa.int64()).to_pylist() == [micros, -micros]
