"""Tables: their columns, and those that are decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cordwood.frames.options import parse_options
from cordwood.frames.records import RECORDS
from cordwood.frames.table import Table
from cordwood.model.errors import ConfigError, MalformedValueError
from support.log_builder import LogBuilder, write_log_dir

JSON = {"valueFormat": "json", "valueSchema": "a int", "keyFormat": "json", "keySchema": "string"}


def log_dir(root: Path) -> Path:
    log = LogBuilder("log-0")
    log.batch([(b'"x"', b'{"a":1}'), (b'"y"', None), (None, b'{"a":3}')])
    log.batch([(b'"t"', b'{"a":4}')], producer=(7, 0), transactional=True)
    log.marker((7, 0), commit=True)
    return write_log_dir(root, [log])


def rows(root: Path, **options: str) -> list[dict[str, Any]]:
    parsed = parse_options({"path": str(root), **options})
    schema = RECORDS.schema_of(parsed)
    found = []
    for part in RECORDS.parts(parsed, parsed.wanted):
        for batch in RECORDS.batches(part, parsed):
            assert batch.schema.equals(schema)
            found += batch.to_pylist()
    return found


def test_wanted_columns_are_decoded(tmp_path: Path) -> None:
    found = rows(log_dir(tmp_path), columns="value,offset,key", **JSON)
    assert found == [
        {"value": {"a": 1}, "offset": 0, "key": "x"},
        {"value": None, "offset": 1, "key": "y"},
        {"value": {"a": 3}, "offset": 2, "key": None},
        {"value": {"a": 4}, "offset": 3, "key": "t"},
    ]


def test_columns_that_are_not_wanted_are_not_decoded(tmp_path: Path) -> None:
    found = rows(log_dir(tmp_path), columns="offset", **{**JSON, "valueSchema": "a date"})
    assert found == [{"offset": offset} for offset in range(4)]


def test_keys_and_values_of_control_records_are_not_decoded(tmp_path: Path) -> None:
    found = rows(log_dir(tmp_path), columns="value,key,isControl", isolation="all", **JSON)
    assert found[-1] == {"value": None, "key": None, "isControl": True}


def test_a_malformed_value_is_named_by_topic_partition_and_offset(tmp_path: Path) -> None:
    root = log_dir(tmp_path)
    with pytest.raises(MalformedValueError, match=r"^log-0 offset 0: the value cannot be decoded"):
        rows(root, columns="value", **{**JSON, "valueSchema": "a string"})


def test_the_schema_has_the_types_of_decoded_columns() -> None:
    options = parse_options({"path": "x", "columns": "offset,value", **JSON})
    assert RECORDS.schema_of(options) == pa.schema(
        {"offset": pa.int64(), "value": pa.struct({"a": pa.int32()})}
    )


def test_options_that_a_table_does_not_have_are_refused() -> None:
    table = Table(
        name="other",
        schema=pa.schema({"topic": pa.string(), "value": pa.binary()}),
        default_columns=("value",),
        options=("topics",),
        parts=lambda options, wanted: [],
        read=lambda part, columns: iter([pa.RecordBatch.from_pydict({"value": [b"{"]})]),
    )
    options = parse_options({"path": "x", "TOPICS": "a", "sliceBytes": "1"})
    assert [each.to_pylist() for each in table.batches(0, options)] == [[{"value": b"{"}]]
    has = "its options are table, path, paths, columns, sliceBytes, topics$"
    for given in ({"isolation": "all"}, {"nosuch": "1"}, JSON):
        refused = ", ".join(sorted(each.lower() for each in given))
        message = f"^option {refused}: table other has no such option; {has}"
        with pytest.raises(ConfigError, match=message):
            table.schema_of(parse_options({"path": "x", **given}))


@pytest.mark.parametrize(
    ("columns", "why"),
    [("", "no name"), ("x,offset", "x is no column of table records"), ("key,KEY", "named twice")],
)
def test_columns_that_are_not_there_are_refused(columns: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        RECORDS.columns(parse_options({"path": "x", "columns": columns}))
