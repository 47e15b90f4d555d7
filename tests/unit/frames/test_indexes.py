"""Entries of indexes as rows, against the parsers of the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cordwood.format.offset_index import parse_offset_index
from cordwood.format.time_index import parse_time_index
from cordwood.format.transaction_index import parse_transaction_index
from cordwood.frames.indexes import INDEXES, indexes_of
from cordwood.frames.options import parse_options
from cordwood.frames.survey import captured_logs
from cordwood.frames.wanted import Wanted
from support.golden import Golden
from support.log_builder import LogBuilder, write_log_dir
from support.table_rows import Row, rows_of


def read(log_dir: Path, wanted: Wanted | None = None, **options: str) -> list[Row]:
    return rows_of("indexes", log_dir, wanted, **options)


def values(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in INDEXES.schema.names)


def expected_of(path: Path) -> list[tuple[Any, ...]]:
    topic, _, number = path.parent.name.rpartition("-")
    base, data = int(path.stem), path.read_bytes()
    rows: list[tuple[Any, ...]]
    if path.suffix == ".index":
        found = parse_offset_index(data, base)
        rows = [("offset", *each, *([None] * 5)) for each in found]
    elif path.suffix == ".timeindex":
        times = parse_time_index(data, base)
        rows = [("time", offset, None, ms, *([None] * 4)) for ms, offset in times]
    else:
        rows = [
            (
                "transaction",
                *([None] * 3),
                *(each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset),
            )
            for each in parse_transaction_index(data)
        ]
    return [(topic, int(number), base, *row) for row in rows]


def test_entries_of_kafka_are_those_of_the_files(golden_a: Golden) -> None:
    log_dir = golden_a.root / "before"
    expected = [
        row
        for path in log_dir.glob("*/*index")
        if path.parent.name != "__cluster_metadata-0"
        for row in expected_of(path)
    ]
    found = [values(row) for row in read(log_dir)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert {row[3] for row in found} == {"offset", "time", "transaction"}


def three_segments(root: Path) -> Path:
    log = LogBuilder("log-0", index_interval_bytes=1)
    log.batch([(b"k", b"v")] * 10, producer=(7, 0), transactional=True, timestamp=1)
    log.batch([(b"k", b"v")] * 10, timestamp=2)
    log.roll()
    log.batch([(b"k", b"v")] * 10, timestamp=3)
    log.batch([(b"k", b"v")] * 10, timestamp=4)
    log.roll()
    log.marker((7, 0), commit=False, timestamp=5)
    return write_log_dir(root, [log])


def test_entries_of_wanted_offsets_and_transactions_that_have_one(tmp_path: Path) -> None:
    log_dir = three_segments(tmp_path)
    aborted = ("transaction", None, 0, 40)

    def found(wanted: Wanted) -> list[tuple[Any, ...]]:
        columns = ("kind", "offset", "firstOffset", "lastOffset")
        rows = read(log_dir, wanted, columns=",".join(columns))
        return [tuple(row[name] for name in columns) for row in rows]

    def entries(kind: str, *offsets: int) -> list[tuple[Any, ...]]:
        return [(kind, offset, None, None) for offset in offsets]

    everything = found(Wanted())
    assert {each[1] for each in everything if each[0] == "offset"} == {19, 39}
    assert aborted in everything
    assert found(Wanted(first_offset=20, end_offset=40)) == [
        *(*entries("offset", 39), *entries("time", 39), aborted),
    ]
    assert found(Wanted(first_offset=20, end_offset=39)) == [aborted]
    assert found(Wanted(first_offset=41)) == []
    assert aborted not in found(Wanted(partitions=frozenset({1})))


def test_only_files_that_may_have_wanted_entries_are_read(tmp_path: Path) -> None:
    log_dir = three_segments(tmp_path)
    options = parse_options({"path": str(log_dir), "table": "indexes"})
    (captured,) = captured_logs(options, options.wanted)
    parts = indexes_of(captured, Wanted(first_offset=20, end_offset=40))
    assert [(part.base_offset, part.suffixes) for part in parts] == [
        (20, (".index", ".timeindex")),
        (40, (".txnindex",)),
    ]


@pytest.mark.parametrize("name", ["isolation", "startingTimestamp", "valueFormat"])
def test_options_of_records_are_refused(tmp_path: Path, name: str) -> None:
    options = parse_options({"path": str(tmp_path), "startingOffset": "1"})
    INDEXES.require_options(options.given)
    with pytest.raises(Exception, match=f"option {name}: table indexes has no such option"):
        INDEXES.require_options([name])
