"""Filters that Spark passes on: the part of a table that they leave."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from cordwood.frames import data_source
from cordwood.frames.catalog import TABLES
from cordwood.frames.data_source import CordwoodDataSource, narrowed
from cordwood.frames.wanted import Wanted
from support.log_builder import LogBuilder, write_log_dir

NOON = datetime(2023, 11, 14, 22, 13, 20, 500_999, tzinfo=UTC)
NOON_MS = 1_700_000_000_500


def left(table: str, *filters: Filter) -> Wanted:
    wanted = Wanted()
    for each in filters:
        wanted = narrowed(wanted, each, TABLES[table])
    return wanted


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("records", "offset"),
        ("batches", "baseOffset"),
        ("batches", "lastOffset"),
        ("segments", "lastOffset"),
        ("indexes", "offset"),
        ("indexes", "firstOffset"),
    ],
)
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (EqualTo, Wanted(first_offset=7, end_offset=8)),
        (GreaterThan, Wanted(first_offset=8)),
        (GreaterThanOrEqual, Wanted(first_offset=7)),
        (LessThan, Wanted(end_offset=7)),
        (LessThanOrEqual, Wanted(end_offset=8)),
    ],
)
def test_comparisons_with_an_offset(table: str, column: str, kind: Any, expected: Wanted) -> None:
    assert left(table, kind((column,), 7)) == expected


@pytest.mark.parametrize("table", ["records", "batches", "segments", "indexes"])
def test_topics_and_partitions(table: str) -> None:
    some = left(table, In(("topic",), ("a", "b")), EqualTo(("partition",), 3))
    assert some == Wanted(topics=frozenset("ab"), partitions=frozenset({3}))
    assert left(table, EqualTo(("topic",), "a"), In(("topic",), ("b",))).topics == frozenset()


@pytest.mark.parametrize(
    ("table", "column"), [("records", "timestamp"), ("batches", "maxTimestamp")]
)
def test_comparisons_with_a_time_leave_what_is_later(table: str, column: str) -> None:
    for kind in (EqualTo, GreaterThan, GreaterThanOrEqual):
        assert left(table, kind((column,), NOON)) == Wanted(first_ms=NOON_MS)
    assert left(table, LessThan((column,), NOON)) == Wanted()


@pytest.mark.parametrize(
    ("table", "condition"),
    [
        ("records", EqualTo(("key",), b"a")),
        ("records", IsNotNull(("offset",))),
        ("records", EqualTo(("value", "offset"), 7)),
        ("records", In(("offset",), (1, 2))),
        ("indexes", GreaterThan(("timestamp",), NOON)),
        ("offsets", EqualTo(("offset",), 7)),
    ],
)
def test_a_filter_without_an_option_of_the_table_that_means_the_same_leaves_all(
    table: str, condition: Filter
) -> None:
    assert left(table, condition) == Wanted()


def test_what_a_worker_has_loaded_is_hidden_from_the_garbage_collector(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    log.batch([(b"k", b"v")])
    source = CordwoodDataSource({"path": str(write_log_dir(tmp_path, [log]))})
    reader = source.reader(source.schema())
    gc.unfreeze()
    data_source.spare_the_collector.cache_clear()
    (task,) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(task)) == 1
    assert gc.get_freeze_count() > len(gc.get_objects())
