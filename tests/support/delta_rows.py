"""The rows of a Delta table, read by delta-rs as any reader would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from support.random_topic import Row, State


def table_rows(path: Path) -> list[dict[str, Any]]:
    """All rows by name of column, by partition and offset."""
    found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t")
    rows: list[dict[str, Any]] = pa.table(found.read_all()).to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def record_rows(path: Path) -> list[Row]:
    """Rows as those of `RandomTopic.rows`, sorted."""
    return [(row["partition"], row["offset"], row["key"], row["value"]) for row in table_rows(path)]


def state_rows(path: Path) -> State:
    """Rows as those of `RandomTopic.state`."""
    rows = record_rows(path)
    found: State = {}
    for partition, offset, key, value in rows:
        assert value is not None, "a state has no tombstones"
        found[partition, key] = offset, value
    assert len(found) == len(rows), "a key has two rows"
    return found
