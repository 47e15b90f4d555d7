"""Records of the metadata log and its checkpoints as rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from cordwood.format.control_record import ControlType
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.frames.wanted import Wanted
from cordwood.metadata.records import feature_record, topic_record
from cordwood.metadata.snapshot_file import control_batch, data_batch, snapshot_batches
from cordwood.model.errors import CorruptError
from cordwood.surfaces.dump.decoders import decode_cluster_metadata
from support.golden import Golden
from support.log_builder import TOPIC_ID
from support.table_rows import Row, rows_of

DIRECTORY = "__cluster_metadata-0"
FEATURE = feature_record("metadata.version", 30)
TOPIC = topic_record("orders", TOPIC_ID)
LOG = "00000000000000000000.log"
SECOND = "00000000000000000003.log"
SNAPSHOT = "00000000000000000002-0000000001.checkpoint"


def made(root: Path) -> Path:
    """A directory with two segments, a snapshot and the records to begin with."""
    directory = root / DIRECTORY
    directory.mkdir()
    leader = control_batch(
        [(ControlType.LEADER_CHANGE, {"leaderId": 1})], base_offset=0, timestamp_ms=1000, epoch=1
    )
    values = [FEATURE.encode(), TOPIC.encode()]
    (directory / LOG).write_bytes(
        leader + data_batch(values, base_offset=1, timestamp_ms=2000, epoch=1)
    )
    later = data_batch([b"\1\x7f\0", FEATURE.encode()], base_offset=3, timestamp_ms=3000, epoch=2)
    torn = data_batch(values, base_offset=5, timestamp_ms=3000, epoch=2)[:-1]
    (directory / SECOND).write_bytes(later + torn)
    snapshot = b"".join(snapshot_batches([FEATURE], epoch=1, now_ms=2500, last_contained_ms=2000))
    (directory / SNAPSHOT).write_bytes(snapshot)
    (directory / f"{SNAPSHOT}.part").write_bytes(snapshot)
    (directory / f"{LOG}.deleted").write_bytes(b"x")
    (root / "bootstrap.checkpoint").write_bytes(snapshot)
    return root


def places(rows: list[Row]) -> list[tuple[str, int, str | None]]:
    return [(row["file"], row["offset"], row["type"]) for row in rows]


def test_all_files_have_their_records(tmp_path: Path) -> None:
    rows = rows_of("metadata", made(tmp_path))
    assert places(rows) == [
        ("bootstrap.checkpoint", 1, "FEATURE_LEVEL_RECORD"),
        (LOG, 1, "FEATURE_LEVEL_RECORD"),
        (LOG, 2, "TOPIC_RECORD"),
        (SNAPSHOT, 1, "FEATURE_LEVEL_RECORD"),
        (SECOND, 3, None),
        (SECOND, 4, "FEATURE_LEVEL_RECORD"),
    ]
    assert [row["source"] for row in rows] == ["bootstrap", "log", "log", "snapshot", "log", "log"]
    assert rows[2] == {
        "source": "log",
        "file": LOG,
        "offset": 2,
        "timestamp": 2000,
        "leaderEpoch": 1,
        "isControl": False,
        "type": "TOPIC_RECORD",
        "version": 0,
        "data": '{"name":"orders","topicId":"b3JkZXJzAAAAAAAAAAAAAQ"}',
    }
    assert (rows[4]["version"], rows[4]["data"]) == (None, None)


def test_control_records_are_in_what_the_files_hold(tmp_path: Path) -> None:
    rows = rows_of("metadata", made(tmp_path), isolation="all")
    found = [(row["file"], row["type"]) for row in rows if row["isControl"]]
    ends = ("SNAPSHOT_HEADER", "SNAPSHOT_FOOTER")
    assert found == [
        *(("bootstrap.checkpoint", name) for name in ends),
        (LOG, "LEADER_CHANGE"),
        *((SNAPSHOT, name) for name in ends),
    ]
    assert json.loads(rows[3]["data"])["leaderId"] == 1


def test_the_directory_of_the_log_alone_can_be_read(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    found = places(rows_of("metadata", log_dir / DIRECTORY))
    assert found == places(rows_of("metadata", log_dir))[1:]


def test_offsets_and_times_leave_out_records_and_files(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    (log_dir / DIRECTORY / LOG).write_bytes(b"never read")

    def found(wanted: Wanted) -> list[tuple[str, int, str | None]]:
        return places(rows_of("metadata", log_dir, wanted.from_offset(3)))

    rest = [(SECOND, 3, None), (SECOND, 4, "FEATURE_LEVEL_RECORD")]
    assert found(Wanted()) == rest
    assert found(Wanted().before_offset(4)) == rest[:1]
    assert found(Wanted().from_ms(3000)) == rest
    assert found(Wanted().from_ms(3001)) == []
    shutil.rmtree(log_dir / DIRECTORY)
    assert [row["source"] for row in rows_of("metadata", log_dir)] == ["bootstrap"]


@pytest.mark.parametrize("value", [b"", b"\1\2\0\xff"])
def test_a_record_that_cannot_be_read_is_named_with_its_file(tmp_path: Path, value: bytes) -> None:
    log_dir = made(tmp_path)
    path = log_dir / DIRECTORY / SECOND
    path.write_bytes(data_batch([value], base_offset=3, timestamp_ms=3000, epoch=2))
    with pytest.raises(CorruptError, match="the record at offset 3 cannot be read") as caught:
        rows_of("metadata", log_dir)
    assert caught.value.path == str(path)


def test_a_damaged_batch_is_named_with_its_place(tmp_path: Path) -> None:
    log_dir = made(tmp_path)
    path = log_dir / DIRECTORY / SNAPSHOT
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptError, match="CRC") as caught:
        rows_of("metadata", log_dir, isolation="all")
    assert caught.value.path == str(path)
    assert caught.value.position is not None
    assert 0 < caught.value.position < len(data)


def plain(path: Path) -> list[tuple[str, int, int, Any]]:
    """The records of a file as `dump-log` decodes them."""
    return [
        (
            path.name,
            record.offset,
            record.timestamp,
            json.loads(str(decode_cluster_metadata(record)[1])),
        )
        for _, batch in iter_batches(path.read_bytes())
        if isinstance(batch, RecordBatch) and not batch.header.is_control
        for record in batch.records()
    ]


def test_the_rows_of_a_kafkas_directory_are_what_dump_log_decodes(golden_a: Golden) -> None:
    log_dir = golden_a.root / "after-2"
    files = [log_dir / "bootstrap.checkpoint"]
    for suffix in ("log", "checkpoint"):
        files += sorted((log_dir / DIRECTORY).glob(f"*.{suffix}"))
    expected = [each for path in files for each in plain(path)]
    found = [
        (
            row["file"],
            row["offset"],
            row["timestamp"],
            {"type": row["type"], "version": row["version"], "data": json.loads(row["data"])},
        )
        for row in rows_of("metadata", log_dir)
    ]
    assert len(expected) > 300
    assert sorted(found, key=str) == sorted(expected, key=str)
