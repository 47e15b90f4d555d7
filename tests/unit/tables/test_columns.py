"""Columns that grow with a schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from cordwood.model.errors import TableSchemaError
from cordwood.tables.columns import as_columns, grown


def value(kind: pa.DataType) -> pa.Schema:
    return pa.schema({"value": kind})


def test_fields_that_are_new_come_last() -> None:
    known = value(pa.struct({"a": pa.int64(), "b": pa.struct({"c": pa.string()})}))
    wanted = value(pa.struct({"d": pa.date32(), "b": pa.struct({"e": pa.bool_()})}))
    both = pa.struct(
        {
            "a": pa.int64(),
            "b": pa.struct({"c": pa.string(), "e": pa.bool_()}),
            "d": pa.date32(),
        }
    )
    assert grown(known, wanted) == value(both)
    assert grown(known, known) == known


def test_structs_in_lists_and_maps_grow() -> None:
    small, large = pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64(), "b": pa.int64()})
    assert grown(value(pa.list_(small)), value(pa.list_(large))) == value(pa.list_(large))
    mapped = [value(pa.map_(pa.string(), each)) for each in (small, large)]
    assert grown(*mapped) == mapped[1]


@pytest.mark.parametrize(
    ("known", "wanted", "field"),
    [
        (pa.binary(), pa.string(), "value"),
        (pa.struct({"a": pa.int64()}), pa.binary(), "value"),
        (pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int32()}), "value.a"),
        (pa.list_(pa.int64()), pa.list_(pa.string()), "value"),
        (
            pa.struct({"a": pa.struct({"b": pa.int64()})}),
            pa.struct({"a": pa.struct({"b": pa.list_(pa.int64())})}),
            "value.a.b",
        ),
    ],
)
def test_another_type_is_refused(known: pa.DataType, wanted: pa.DataType, field: str) -> None:
    with pytest.raises(TableSchemaError) as caught:
        grown(value(known), value(wanted))
    assert caught.value.field == field
    assert (caught.value.known, caught.value.wanted) != ("", "")


def test_rows_get_the_fields_that_they_lack_as_nulls() -> None:
    batch = pa.RecordBatch.from_pylist([{"value": {"b": 1}}, {"value": None}])
    schema = value(pa.struct({"a": pa.string(), "b": pa.int64()}))
    assert as_columns(batch, schema).to_pylist() == [
        {"value": {"a": None, "b": 1}},
        {"value": None},
    ]
