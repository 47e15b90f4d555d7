"""Rows of a table of directories, read without Spark."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cordwood.frames.catalog import table_of
from cordwood.frames.options import parse_options
from cordwood.frames.wanted import Wanted

Row = dict[str, Any]


def rows_of(name: str, log_dir: Path, wanted: Wanted | None = None, **options: str) -> list[Row]:
    """The rows of a table, with times in ms; `wanted` is what filters leave of the options."""
    parsed = parse_options({"path": str(log_dir), "table": name, **options})
    table = table_of(name)
    schema = table.schema_of(parsed)
    found: list[Row] = []
    for part in table.parts(parsed, wanted or parsed.wanted):
        for batch in table.batches(pickle.loads(pickle.dumps(part)), parsed):  # noqa: S301  # as Spark hands it to a task
            assert batch.schema.equals(schema)
            found += [{each: _settled(row[each]) for each in row} for row in batch.to_pylist()]
    return found


def _settled(value: Any) -> Any:
    if not isinstance(value, datetime):
        return value
    return round((value - datetime.fromtimestamp(0, UTC)).total_seconds() * 1000)
