"""Segments as rows: offsets, files, times."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.format.record_batch import iter_batches
from cordwood.frames.wanted import Wanted
from support.golden import Golden
from support.log_builder import LogBuilder, write_log_dir
from support.table_rows import Row, rows_of


def read(log_dir: Path, wanted: Wanted | None = None, **options: str) -> list[Row]:
    return rows_of("segments", log_dir, wanted, **options)


def size(path: Path) -> int | None:
    return path.stat().st_size if path.exists() else None


@pytest.mark.parametrize("stage", ["before", "after"])
def test_segments_of_kafka_are_as_their_files_and_batches(golden_a: Golden, stage: str) -> None:
    found = {
        (row["topic"], row["partition"], row["baseOffset"]): row
        for row in read(golden_a.root / stage)
    }
    paths = [
        path
        for path in (golden_a.root / stage).glob("*/*.log")
        if path.parent.name != "__cluster_metadata-0"
    ]
    assert len(found) == len(paths) > 100
    for path in paths:
        topic, _, number = path.parent.name.rpartition("-")
        row = found[topic, int(number), int(path.stem)]
        batches = [batch for _, batch in iter_batches(path.read_bytes())]
        assert row["firstOffset"] == (batches[0].base_offset if batches else None)
        assert row["lastOffset"] == (batches[-1].last_offset if batches else None)
        newest = max((batch.max_timestamp for batch in batches), default=-1)
        largest = row["largestTimestamp"]
        assert (-1 if largest is None else largest) == newest
        assert row["logBytes"] == size(path)
        assert row["indexBytes"] == size(path.with_suffix(".index"))
        assert row["timeIndexBytes"] == size(path.with_suffix(".timeindex"))
        assert row["transactionIndexBytes"] == size(path.with_suffix(".txnindex"))
        assert row["snapshotBytes"] == size(path.with_suffix(".snapshot"))
        assert row["modificationTime"] == pytest.approx(path.stat().st_mtime * 1000, abs=1)
        assert row["path"] == str(path)
    for directory in {path.parent for path in paths}:
        rows = [row for row in found.values() if Path(row["path"]).parent == directory]
        rows.sort(key=lambda row: row["baseOffset"])
        assert [row["isActive"] for row in rows] == [False] * (len(rows) - 1) + [True]
        assert [row["nextOffset"] for row in rows[:-1]] == [row["baseOffset"] for row in rows[1:]]


def three_segments(root: Path) -> Path:
    log = LogBuilder("log-0", index_interval_bytes=1)
    for first in range(0, 60, 10):
        log.batch([(b"k", b"v")] * 10)
        if first in {10, 30}:
            log.roll()
    return write_log_dir(root, [log])


@pytest.mark.parametrize(
    ("wanted", "bases"),
    [
        (Wanted(), [0, 20, 40]),
        (Wanted(first_offset=19, end_offset=21), [0, 20]),
        (Wanted(first_offset=20, end_offset=40), [20]),
        (Wanted(first_offset=60), []),
    ],
)
def test_segments_that_may_have_a_wanted_offset_are_rows(
    tmp_path: Path, wanted: Wanted, bases: list[int]
) -> None:
    found = read(three_segments(tmp_path), wanted, columns="baseOffset")
    assert [row["baseOffset"] for row in found] == bases


def test_an_index_that_is_not_of_its_log_does_not_count(tmp_path: Path) -> None:
    log_dir = three_segments(tmp_path)
    index = log_dir / "log-0" / "00000000000000000020.index"
    index.write_bytes((13).to_bytes(4, "big") + (77).to_bytes(4, "big"))
    damaged = index.read_bytes()
    found = read(log_dir, columns="firstOffset,lastOffset")
    assert [(row["firstOffset"], row["lastOffset"]) for row in found] == [
        *((0, 19), (20, 39), (40, 59)),
    ]
    assert index.read_bytes() == damaged


def test_an_empty_segment_has_no_first_and_no_last_offset(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    log.batch([(b"k", b"v")] * 5)
    log.roll()
    log_dir = write_log_dir(tmp_path, [log])
    (_, row) = read(log_dir)
    assert read(log_dir, Wanted(first_offset=5)) == [row]
    assert read(log_dir, Wanted(first_offset=6)) == []
    assert (row["baseOffset"], row["nextOffset"], row["isActive"]) == (5, 5, True)
    assert (row["firstOffset"], row["lastOffset"], row["largestTimestamp"]) == (None, None, None)
