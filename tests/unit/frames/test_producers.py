"""Producers of partitions as rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.format.producer_snapshot import parse_producer_snapshot
from cordwood.frames import survey
from cordwood.frames.wanted import Wanted
from cordwood.model.clock import FixedClock
from support.golden import Golden
from support.log_builder import NOW_MS, LogBuilder, write_log_dir
from support.table_rows import Row, rows_of


def at(now_ms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moves the clock by which producers expire."""
    monkeypatch.setattr(survey, "SystemClock", lambda: FixedClock(now_ms))


def expected_in(log_dir: Path) -> list[Row]:
    """The entries of the last snapshot of each partition, which a clean stop has written."""
    rows: list[Row] = []
    for directory in log_dir.iterdir():
        snapshots = sorted(directory.glob("*.snapshot")) if directory.is_dir() else []
        topic, _, number = directory.name.rpartition("-")
        if not snapshots or topic == "__cluster_metadata":
            continue
        rows += [
            {
                "topic": topic,
                "partition": int(number),
                "producerId": entry.producer_id,
                "producerEpoch": entry.producer_epoch,
                "coordinatorEpoch": entry.coordinator_epoch,
                "lastSequence": entry.last_sequence,
                "lastTimestamp": entry.timestamp,
                "currentTransactionStartOffset": (
                    None if entry.current_txn_first_offset == -1 else entry.current_txn_first_offset
                ),
            }
            for entry in parse_producer_snapshot(snapshots[-1].read_bytes())
        ]
    return rows


def test_the_rows_of_a_kafkas_directory_are_those_of_its_snapshots(
    golden_a: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = golden_a.root / "before-2"
    at(golden_a.cleaned_at_2_ms, monkeypatch)
    expected = expected_in(log_dir)
    assert len(expected) > 5
    assert sorted(rows_of("producers", log_dir), key=str) == sorted(expected, key=str)
    found = rows_of("producers", log_dir, topics="open-transaction")
    assert [row["currentTransactionStartOffset"] is None for row in found].count(False) == 1
    assert {row["topic"] for row in found} == {"open-transaction"}


def test_a_transaction_is_open_until_its_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at(NOW_MS, monkeypatch)
    log = LogBuilder("a-1")
    log.put(b"k", b"v", producer=(1, 0), transactional=True, timestamp=NOW_MS - 2)
    log.put(b"k", b"v", producer=(2, 5), transactional=True, timestamp=NOW_MS - 1)
    log.marker((1, 0), commit=True, timestamp=NOW_MS, coordinator_epoch=3)
    log_dir = write_log_dir(tmp_path, [log, LogBuilder("b-0")])
    first, second = sorted(rows_of("producers", log_dir), key=lambda row: str(row["producerId"]))
    assert (first["coordinatorEpoch"], first["currentTransactionStartOffset"]) == (3, None)
    assert second == {
        "topic": "a",
        "partition": 1,
        "producerId": 2,
        "producerEpoch": 5,
        "coordinatorEpoch": -1,
        "lastSequence": 0,
        "lastTimestamp": NOW_MS - 1,
        "currentTransactionStartOffset": 1,
    }
    assert rows_of("producers", log_dir, Wanted().of_partitions(frozenset({0}))) == []
