"""Results of queries as tables, CSV, JSON and Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cordwood.frames.stored_result import StoredResult
from cordwood.surfaces.cli.sql_output import (
    fitted,
    new_file,
    print_rows,
    write_csv,
    write_json,
    write_parquet,
)
from cordwood.surfaces.cli.tables import Column, table_lines
from support.schemas import require_fit

SCHEMA = pa.schema({"key": pa.binary(), "last": pa.int64(), "tags": pa.list_(pa.string())})
TYPES = ("binary", "bigint", "array<string>")
PARTS: Sequence[Sequence[Any]] = [
    [(b"a,\n\"b", 1, ["x"]), (b"\0\xff", -2, None)],
    [(b"", None, []), (None, 4, [None])],
]  # fmt: skip


def stored(directory: Path, parts: Sequence[Sequence[Any]] = PARTS) -> StoredResult:
    """A result with a file a part."""
    paths = []
    for number, rows in enumerate(parts):
        path = directory / f"{number}.arrow"
        columns = [
            pa.array([row[at] for row in rows], field.type) for at, field in enumerate(SCHEMA)
        ]
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as writer:
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))
        paths.append(path)
    count = sum(map(len, parts))
    return StoredResult(schema=SCHEMA, types=TYPES, row_count=count, paths=tuple(paths))


def test_a_document_has_all_rows_in_their_order(tmp_path: Path) -> None:
    sink = io.BytesIO()
    write_json(stored(tmp_path), sink)
    document = json.loads(sink.getvalue())
    require_fit("sql", document)
    assert document["columns"][2] == {"name": "tags", "type": "array<string>"}
    assert document["rows"] == [
        {"key": 'a,\n"b', "last": 1, "tags": ["x"]},
        {"key": "X'00FF'", "last": -2, "tags": None},
        {"key": "", "last": None, "tags": []},
        {"key": None, "last": 4, "tags": [None]},
    ]


def test_a_result_without_rows_has_its_columns(tmp_path: Path) -> None:
    result = stored(tmp_path, [])
    sink = io.BytesIO()
    write_json(result, sink)
    document = json.loads(sink.getvalue())
    assert ([each["name"] for each in document["columns"]], document["rows"]) == (SCHEMA.names, [])
    sink = io.BytesIO()
    write_csv(result, sink)
    assert next(csv.reader(io.StringIO(sink.getvalue().decode()))) == SCHEMA.names
    with new_file(tmp_path / "r") as file:
        write_parquet(result, file)
    assert pq.read_table(tmp_path / "r").schema == SCHEMA


def test_csv_has_null_apart_from_the_empty_text(tmp_path: Path) -> None:
    sink = io.BytesIO()
    write_csv(stored(tmp_path), sink)
    text = sink.getvalue().decode()
    assert text == (
        '"key","last","tags"\n"a,\n""b",1,"[""x""]"\n"X\'00FF\'",-2,\n"",,"[]"\n,4,"[null]"\n'
    )
    assert list(csv.reader(io.StringIO(text)))[1] == ['a,\n"b', "1", '["x"]']


def test_parquet_has_types_and_bytes_as_they_are(tmp_path: Path) -> None:
    with new_file(tmp_path / "result") as sink:
        write_parquet(stored(tmp_path), sink)
    table = pq.read_table(tmp_path / "result")
    assert table.schema == SCHEMA
    assert table.column("key").to_pylist() == [b'a,\n"b', b"\0\xff", b"", None]


def test_a_file_that_is_not_whole_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "result.csv"
    path.write_text("before")

    def write_half() -> None:
        with new_file(path) as sink:
            sink.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["result.csv"]


def test_a_table_shows_no_control_characters_and_so_many_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_rows(stored(tmp_path), 3)
    assert capsys.readouterr().out.splitlines() == [
        "key      last  tags",
        'a,\\n"b      1  ["x"]',
        "X'00FF'    -2  null",
        "         null  []",
    ]


def test_texts_are_shortened_until_a_table_fits() -> None:
    columns = [Column("name"), Column("size", is_number=True), Column("text")]
    rows = [["name", "size", "text"], ["n" * 30, "123456789", "t" * 200], ["short", "1", "s"]]
    texts = [True, False, True]
    shown = fitted(rows, texts, width=60)
    assert [shown[0], shown[2]] == [rows[0], rows[2]]
    assert [len(cell) for cell in shown[1]] == [23, 9, 23]
    lines = table_lines("", columns, shown[1:], width=60)
    assert len(lines) == 4
    assert max(map(len, lines)) <= 60
    assert fitted(rows, texts, width=None) == rows
    # Where a row takes several lines, more of each text is shown.
    assert [len(cell) for cell in fitted(rows, texts, width=20)[1]] == [30, 9, 36]
    titled = [["a title of some length", "text"], ["v" * 30, "t" * 40]]
    assert [len(cell) for cell in fitted(titled, [True, True], width=44)[1]] == [20, 20]
