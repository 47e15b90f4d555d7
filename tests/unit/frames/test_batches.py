"""Record batches as Arrow batches, against the plain reader of batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cordwood.format.compression import Codec
from cordwood.format.legacy import LegacyBatch, build_legacy_message, build_legacy_wrapper
from cordwood.format.record import Record
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.frames.wanted import Wanted
from cordwood.model.errors import CorruptError
from support.golden import Golden
from support.log_builder import LogBuilder, write_log_dir
from support.table_rows import Row, rows_of

_TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def read(log_dir: Path, wanted: Wanted | None = None, **options: str) -> list[Row]:
    return rows_of("batches", log_dir, wanted, **options)


def plain_rows(directory: Path) -> Iterator[Row]:
    topic, _, number = directory.name.rpartition("-")
    for path in sorted(directory.glob("*.log")):
        for position, batch in iter_batches(path.read_bytes()):
            assert isinstance(batch, RecordBatch)
            header = batch.header
            yield {
                "topic": topic,
                "partition": int(number),
                "segmentBaseOffset": int(path.stem),
                "baseOffset": header.base_offset,
                "lastOffset": header.last_offset,
                "count": header.records_count,
                "baseSequence": header.base_sequence,
                "lastSequence": header.last_sequence,
                "producerId": header.producer_id,
                "producerEpoch": header.producer_epoch,
                "partitionLeaderEpoch": header.partition_leader_epoch,
                "isTransactional": header.is_transactional,
                "isControl": header.is_control,
                "deleteHorizonMs": header.delete_horizon_ms,
                "position": position,
                "timestampType": _TYPES[header.timestamp_type],
                "maxTimestamp": header.max_timestamp,
                "size": batch.size_bytes,
                "magic": header.magic,
                "codec": header.codec.config_name,
                "crc": header.crc,
                "isValid": batch.is_valid(),
            }


@pytest.mark.parametrize("slice_bytes", [20_000, 1 << 30])
def test_all_columns_of_all_batches_are_those_of_the_plain_reader(
    golden_a: Golden, slice_bytes: int
) -> None:
    log_dir = golden_a.root / "before"
    found = read(log_dir, slicebytes=str(slice_bytes))
    expected = [
        row
        for each in sorted(log_dir.iterdir())
        if each.is_dir() and each.name != "__cluster_metadata-0"
        for row in plain_rows(each)
    ]
    assert len(expected) > 3_000
    assert {row["codec"] for row in expected} == {each.config_name for each in Codec}

    def key(row: Row) -> tuple[str, int, int]:
        return row["topic"], row["partition"], row["baseOffset"]

    assert sorted(found, key=key) == sorted(expected, key=key)


def test_delete_horizons_are_those_of_a_cleaning(golden_a: Golden) -> None:
    found = read(golden_a.root / "after")
    assert {row["deleteHorizonMs"] is None for row in found} == {True, False}
    expected = [
        row["deleteHorizonMs"] for row in plain_rows(golden_a.root / "after" / "transactions-0")
    ]
    assert [row["deleteHorizonMs"] for row in found if row["topic"] == "transactions"] == expected


def ten_batches(root: Path) -> Path:
    log = LogBuilder("log-0", index_interval_bytes=1)
    for first in range(0, 100, 10):
        records = [(b"%d" % offset, b"v" * 90) for offset in range(first, first + 10)]
        log.batch(records, timestamp=1_000 + first)
    return write_log_dir(root, [log])


@pytest.mark.parametrize(
    ("wanted", "bases"),
    [
        (Wanted(first_offset=39, end_offset=41), [30, 40]),
        (Wanted(first_offset=90), [90]),
        (Wanted(end_offset=1), [0]),
        (Wanted(first_offset=100), []),
        (Wanted(first_ms=1_080), [80, 90]),
        (Wanted(partitions=frozenset({1})), []),
    ],
)
def test_batches_with_a_wanted_offset_or_time_are_read(
    tmp_path: Path, wanted: Wanted, bases: list[int]
) -> None:
    found = read(ten_batches(tmp_path), wanted, columns="baseOffset")
    assert [row["baseOffset"] for row in found] == bases


def test_a_batch_whose_crc_does_not_match_is_a_row(tmp_path: Path) -> None:
    log_dir = ten_batches(tmp_path)
    (path,) = log_dir.glob("log-0/*.log")
    data = bytearray(path.read_bytes())
    for offset, (position, _) in zip(range(0, 100, 10), iter_batches(bytes(data)), strict=True):
        if offset in {0, 40, 50}:
            data[position + 100] ^= 1
    path.write_bytes(data)
    found = read(log_dir)
    assert [row["baseOffset"] for row in found] == [*range(0, 100, 10)]
    assert [row["baseOffset"] for row in found if not row["isValid"]] == [0, 40, 50]
    assert found == [*plain_rows(path.parent)]


def test_messages_of_old_magics_are_rows(tmp_path: Path) -> None:
    data, messages = b"", []
    for offset, magic, attributes in ((0, 0, 0), (1, 1, 0), (2, 1, 8)):
        data += build_legacy_message(
            offset=offset, magic=magic, key=b"k", value=b"v", timestamp=7, attributes=attributes
        )
    for magic in (0, 1):
        records = [Record(3 + 5 * magic + step, 50 - step, b"k", b"v") for step in range(5)]
        data += build_legacy_wrapper(records, magic=magic, codec=Codec.GZIP)
    data = data[:27] + b"w" + data[28:]  # the last byte of the first message's value
    log = LogBuilder("log-0")
    for _, batch in iter_batches(data):
        assert isinstance(batch, LegacyBatch)
        messages.append(batch)
        log.append(bytes(batch.raw))
    found = read(write_log_dir(tmp_path, [log]))
    assert [(row["baseOffset"], row["lastOffset"], row["count"]) for row in found] == [
        *((offset, offset, 1) for offset in range(3)),
        *((3, 7, 5), (8, 12, 5)),
    ]
    position = 0
    for row, message in zip(found, messages, strict=True):
        assert row["position"] == position
        assert (row["size"], row["magic"], row["crc"], row["codec"]) == (
            *(message.size_bytes, message.magic, message.crc, message.codec.config_name),
        )
        assert (row["timestampType"], row["maxTimestamp"]) == (
            *(_TYPES[message.timestamp_type], message.max_timestamp),
        )
        assert row["isValid"] == message.is_valid()
        position += message.size_bytes
    assert [row["isValid"] for row in found] == [False, True, True, True, True]
    assert {row["producerId"] for row in found} == {-1}


def test_what_is_no_batch_is_an_error(tmp_path: Path) -> None:
    log_dir = ten_batches(tmp_path)
    (path,) = log_dir.glob("log-0/*.log")
    data = bytearray(path.read_bytes())
    data[57:61] = b"\xff\xff\xff\xff"  # the first batch's number of records
    path.write_bytes(data)
    for columns in ("isValid", "size"):
        with pytest.raises(CorruptError, match="record count or offsets are impossible at byte 0"):
            read(log_dir, columns=columns)
