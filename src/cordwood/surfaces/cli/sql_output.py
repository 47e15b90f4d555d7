"""The result of a query as a table, CSV, JSON or Parquet."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from rich.cells import cell_len

from cordwood.frames.stored_result import StoredResult
from cordwood.storage.filesystem import OS
from cordwood.surfaces.cli.sql_values import flat, is_nested, plain_values, text_of
from cordwood.surfaces.cli.tables import Column, output_width, print_table, shortened

#: A text that has fewer cells than this is not worth reading.
_TEXT_CELLS_MIN: Final = 12
#: As many has a text where a row takes several lines.
_STACKED_CELLS: Final = 36
_GAP_CELLS: Final = 2
_NULL: Final = "null"


class Sink(Protocol):
    """A file that takes bytes: standard output, or one of Arrow's."""

    def write(self, data: bytes, /) -> Any:
        """Writes all of the bytes."""


def print_rows(result: StoredResult, rows_max: int) -> None:
    """Prints a table of the first rows for people.

    Characters that no terminal shows are escaped; on a terminal long texts are shortened so that
    the table fits, if they need not become too short.
    """
    columns = [Column(each.name, is_number=_is_number(each.type)) for each in result.schema]
    rows = [[_cell(value) for value in row] for row in islice(_rows(result), rows_max)]
    texts = [not (_is_number(each.type) or _has_one_size(each.type)) for each in result.schema]
    print_table("", columns, fitted([result.schema.names, *rows], texts, width=output_width())[1:])


def fitted(
    rows: Sequence[Sequence[str]], texts: Sequence[bool], *, width: int | None
) -> list[list[str]]:
    """The rows with texts shortened to as many cells as a table of that width has for them.

    Args:
        rows: the cells, first those of the titles, which are left as they are.
        texts: of each column whether its cells are texts.
        width: in cells; None for no limit.
    """
    if width is None:
        return [list(row) for row in rows]
    titles, *others = ([cell_len(cell) for cell in row] for row in rows)
    cells = [max(sizes) for sizes in zip(titles, *others, strict=True)]
    room = width - _GAP_CELLS * (len(texts) - 1)
    fitting = (
        most
        for most in range(max(cells, default=0), _TEXT_CELLS_MIN - 1, -1)
        if room
        >= sum(
            max(title, min(size, most)) if is_text else size
            for is_text, title, size in zip(texts, titles, cells, strict=True)
        )
    )
    most = next(fitting, _STACKED_CELLS)
    return [
        [*rows[0]],
        *(
            [
                shortened(cell, most) if is_text else cell
                for is_text, cell in zip(texts, row, strict=True)
            ]
            for row in rows[1:]
        ),
    ]


def write_json(result: StoredResult, sink: Sink) -> None:
    """Writes the document of a result, row by row; names of columns are different."""
    columns = [
        {"name": name, "type": kind}
        for name, kind in zip(result.schema.names, result.types, strict=True)
    ]
    sink.write(f'{{"columns": {json.dumps(columns)}, "rows": ['.encode())
    before = ""
    for row in _rows(result):
        document = json.dumps(dict(zip(result.schema.names, row, strict=True)))
        sink.write(f"{before}{document}".encode())
        before = ", "
    sink.write(b"]}\n")


def write_csv(result: StoredResult, sink: Sink) -> None:
    """Writes a line of names and a line a row, as RFC 4180 has them.

    Texts are in quotes, and null is nothing at all; what has parts is a text of JSON.
    """
    from pyarrow import csv  # noqa: PLC0415  # seldom

    names = csv.WriteOptions(include_header=True)
    empty = [pa.array([], pa.string())] * len(result.schema.names)
    sink.write(_csv_of(empty, result.schema.names, names))
    values = csv.WriteOptions(include_header=False)
    for batch in result.batches():
        columns = [_csv_column(column) for column in batch.columns]
        sink.write(_csv_of(columns, result.schema.names, values))


def write_parquet(result: StoredResult, sink: Sink) -> None:
    """Writes a file of Parquet, with the types of the columns; their names are different."""
    import pyarrow.parquet as pq  # noqa: PLC0415  # seldom

    with pq.ParquetWriter(sink, result.schema, compression="zstd") as writer:
        for batch in result.batches():
            writer.write_batch(batch)


WRITERS: Final[Mapping[str, Any]] = {
    "csv": write_csv,
    "json": write_json,
    "parquet": write_parquet,
}


@contextmanager
def new_file(path: Path) -> Iterator[Sink]:
    """A file that replaces one of the name when it is whole.

    Raises:
        OSError: it cannot be written; a file that was there is left as it was.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        with pa.OSFile(str(partial), "wb") as file:
            yield file
        OS.rename(partial, path)
    finally:
        with suppress(OSError):
            OS.remove(partial)


@contextmanager
def standard_output() -> Iterator[Sink]:
    """Standard output, in bytes."""
    sys.stdout.flush()
    yield sys.stdout.buffer
    sys.stdout.buffer.flush()


def _rows(result: StoredResult) -> Iterator[tuple[Any, ...]]:
    for batch in result.batches():
        yield from zip(*(plain_values(column) for column in batch.columns), strict=True)


def _csv_column(column: pa.Array) -> pa.Array:
    if not is_nested(column.type):
        return flat(column)
    values = plain_values(column)
    return pa.array([None if each is None else text_of(each) for each in values], pa.string())


def _csv_of(columns: Sequence[pa.Array], names: Sequence[str], options: Any) -> bytes:
    from pyarrow import csv  # noqa: PLC0415  # loaded by now

    lines = pa.BufferOutputStream()
    csv.write_csv(pa.RecordBatch.from_arrays(columns, list(names)), lines, options)
    found: bytes = lines.getvalue().to_pybytes()
    return found


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _has_one_size(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_temporal(kind))


def _cell(value: Any) -> str:
    text = _NULL if value is None else text_of(value)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
