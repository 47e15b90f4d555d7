"""Records of golden directories as Arrow batches, against the plain reader of records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.format.batch_header import BatchHeader
from cordwood.format.legacy import build_legacy_message
from cordwood.format.record_batch import RecordBatch, iter_batches
from cordwood.format.transaction_index import AbortedTransaction, parse_transaction_index
from cordwood.frames.options import parse_options
from cordwood.frames.records import RECORDS
from cordwood.frames.slices import Slice
from cordwood.frames.wanted import Wanted
from cordwood.model.errors import CorruptError
from support.golden import Golden
from support.log_builder import LogBuilder, write_log_dir

Row = dict[str, Any]
NAMES = tuple(RECORDS.schema.names)
ISOLATIONS = ("read_uncommitted", "read_committed")


def read(log_dir: Path, wanted: Wanted | None = None, **options: str) -> list[Row]:
    parsed = parse_options({"path": str(log_dir), "columns": ",".join(NAMES), **options})
    return [
        row
        for part in RECORDS.parts(parsed, wanted or parsed.wanted)
        for batch in RECORDS.read(part, RECORDS.columns(parsed))
        for row in batch.to_pylist()
    ]


def plain_rows(directory: Path) -> Iterator[tuple[BatchHeader, Row]]:
    topic, _, number = directory.name.rpartition("-")
    for path in sorted(directory.glob("*.log")):
        for _, batch in iter_batches(path.read_bytes()):
            assert isinstance(batch, RecordBatch)
            header = batch.header
            for record in batch.records():
                sequence = header.base_sequence
                if sequence >= 0:
                    sequence = (sequence + record.offset - header.base_offset) & (2**31 - 1)
                yield (
                    header,
                    {
                        "key": record.key,
                        "value": record.value,
                        "topic": topic,
                        "partition": int(number),
                        "offset": record.offset,
                        "timestamp": record.timestamp,
                        "timestampType": int(header.timestamp_type == "LogAppendTime"),
                        "headers": [
                            {"key": each.key, "value": each.value} for each in record.headers
                        ],
                        "leaderEpoch": header.partition_leader_epoch,
                        "producerId": header.producer_id,
                        "producerEpoch": header.producer_epoch,
                        "sequence": sequence,
                        "isTransactional": header.is_transactional,
                        "isControl": header.is_control,
                    },
                )


def settled(rows: list[Row]) -> list[Row]:
    """The rows with timestamps in milliseconds, as the plain reader has them."""
    return [{**row, "timestamp": round(row["timestamp"].timestamp() * 1000)} for row in rows]


def directories(log_dir: Path) -> list[Path]:
    return sorted(
        each
        for each in log_dir.iterdir()
        if each.is_dir() and each.name != "__cluster_metadata-0" and list(each.glob("*.log"))
    )


@pytest.mark.parametrize("slice_bytes", [20_000, 1 << 30])
def test_all_columns_of_all_records_are_those_of_the_plain_reader(
    golden_a: Golden, slice_bytes: int
) -> None:
    log_dir = golden_a.root / "before"
    found = settled(read(log_dir, isolation="all", slicebytes=str(slice_bytes)))
    expected = [row for each in directories(log_dir) for _, row in plain_rows(each)]
    assert len(expected) > 50_000
    by_partition = Counter((row["topic"], row["partition"]) for row in expected)
    assert Counter((row["topic"], row["partition"]) for row in found) == by_partition

    def key(row: Row) -> tuple[str, int, int]:
        return row["topic"], row["partition"], row["offset"]

    assert sorted(found, key=key) == sorted(expected, key=key)


def aborted_in(directory: Path) -> list[AbortedTransaction]:
    return [
        each
        for path in directory.glob("*.txnindex")
        for each in parse_transaction_index(path.read_bytes())
    ]


def test_committed_records_are_without_aborted_ones_and_end_at_the_last_stable_offset(
    golden_a: Golden,
) -> None:
    log_dir = golden_a.root / "before"
    seen = 0
    for topic in ("transactions", "open-transaction"):
        (directory,) = log_dir.glob(f"{topic}-0")
        aborted = aborted_in(directory)
        found = [row["offset"] for row in read(log_dir, topics=topic, isolation="read_committed")]
        uncommitted = [row["offset"] for row in read(log_dir, topics=topic)]
        expected = [
            (header, row["offset"])
            for header, row in plain_rows(directory)
            if not header.is_control
        ]
        assert uncommitted == [offset for _, offset in expected]
        kept = [
            offset
            for header, offset in expected
            if not header.is_transactional
            or not any(
                each.producer_id == header.producer_id
                and each.first_offset <= offset <= each.last_offset
                for each in aborted
            )
        ]
        assert found == kept[: len(found)]
        seen += len(uncommitted) - len(found)
        if topic == "transactions":
            assert found == kept
            assert aborted
        else:
            assert 0 < len(found) < len(kept)
    assert seen > 0


@pytest.mark.parametrize(
    ("wanted", "offsets"),
    [
        (Wanted(first_offset=1234, end_offset=1235), range(1234, 1235)),
        (Wanted(first_offset=2990), range(2990, 3000)),
        (Wanted(end_offset=3), range(3)),
        (Wanted(first_offset=5000), range(0)),
        (Wanted(partitions=frozenset({1})), range(0)),
        (Wanted(topics=frozenset({"other"})), range(0)),
    ],
)
def test_only_wanted_offsets_are_read(golden_a: Golden, wanted: Wanted, offsets: range) -> None:
    for codec in ("none", "lz4", "zstd"):
        rows = read(golden_a.root / "before", wanted, topics=f"codec-{codec}")
        assert [row["offset"] for row in rows] == list(offsets)


def test_one_offset_is_read_from_two_intervals_of_the_index_at_most(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    for first in range(0, 10_000, 10):
        log.batch([(b"%d" % offset, b"v" * 90) for offset in range(first, first + 10)])
    log_dir = write_log_dir(tmp_path, [log])
    options = parse_options({"path": str(log_dir), "columns": "key,offset"})
    wanted = Wanted(first_offset=5005, end_offset=5006)
    (part,) = RECORDS.parts(options, wanted)
    batch_bytes = 1200
    assert part.size_bytes <= 2 * (log.index_interval_bytes + batch_bytes)
    found = [row for each in RECORDS.read(part, ("key", "offset")) for row in each.to_pylist()]
    assert found == [{"key": b"5005", "offset": 5005}]


def planned(log_dir: Path, first_offset: int) -> list[Slice]:
    """The slices of 10,000 bytes from an offset on."""
    options = parse_options({"path": str(log_dir), "slicebytes": "10000"})
    return list(RECORDS.parts(options, Wanted(first_offset=first_offset)))  # type: ignore[arg-type]


def offsets_of(part: Slice) -> Iterator[int]:
    for batch in RECORDS.read(part, ("offset",)):
        yield from batch.column(0).to_pylist()


def test_a_segment_that_was_compacted_since_it_was_cut_has_the_records_that_are_left(
    tmp_path: Path,
) -> None:
    before, after = LogBuilder("log-0"), LogBuilder("log-0")
    for number in range(200):
        before.put(b"k", b"v" * 100)
        if number % 2:
            after.put(b"k", b"v" * 100)
        else:
            after.skip(1)
    for _ in range(200):  # of segments that were put together with it
        after.put(b"k", b"v" * 100)
    log_dir = write_log_dir(tmp_path, [before])
    parts = planned(log_dir, 90)
    assert len(parts) == 2
    write_log_dir(tmp_path, [after])
    # Where these slices begin, and end, batches of other offsets begin and end now.
    assert [each for part in parts for each in offsets_of(part)] == list(range(91, 200, 2))


def test_a_slice_that_ends_early_is_read_on_in_the_compacted_segment(tmp_path: Path) -> None:
    before, after = LogBuilder("log-0"), LogBuilder("log-0")
    for _ in range(10):
        before.put(b"k", b"v" * (1 << 20))
    for number in range(6):
        after.put(b"k", b"v" * (1 << 20))
        after.skip(number % 2)
    after.put(b"k", b"v" * (1 << 20))
    log_dir = write_log_dir(tmp_path, [before])
    options = parse_options({"path": str(log_dir)})
    (part,) = RECORDS.parts(options, Wanted())
    write_log_dir(tmp_path, [after])
    # The first ones have come from the file before it ends too early.
    assert list(offsets_of(part)) == [0, 1, 3, 4, 6, 7, 9]  # type: ignore[arg-type]


def test_a_segment_that_was_deleted_since_it_was_cut_is_an_error(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    for _ in range(3):
        log.put(b"k", b"v")
        log.roll()
    log_dir = write_log_dir(tmp_path, [log])
    (first, *_) = planned(log_dir, 0)
    (log_dir / "log-0" / "00000000000000000000.log").unlink()
    with pytest.raises(FileNotFoundError):
        list(offsets_of(first))


def test_an_index_of_another_segment_is_refused(tmp_path: Path) -> None:
    before, after = LogBuilder("log-0"), LogBuilder("log-0")
    for _ in range(200):
        before.put(b"k", b"v" * 100)
    after.skip(100)
    for _ in range(100):
        after.put(b"k", b"v" * 100)
    log_dir = write_log_dir(tmp_path, [before])
    name = "00000000000000000000.log"
    (log_dir / "log-0" / name).write_bytes(b"".join(after.segments[0].batches * 2))
    options = parse_options({"path": str(log_dir)})
    with pytest.raises(CorruptError, match=r"offset 1.. where the index has offset 50"):
        RECORDS.parts(options, Wanted(first_offset=50))


def test_a_broker_that_runs_has_all_records_up_to_its_high_watermark(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    log.batch([(b"a", b"1"), (b"b", b"2")])
    log.batch([(b"c", b"3")])
    log.recovery_point, log.high_watermark = 0, 2
    log_dir = write_log_dir(tmp_path, [log], clean_shutdown=False)
    for isolation in ISOLATIONS:
        assert [row["offset"] for row in read(log_dir, isolation=isolation)] == [0, 1]
    assert [row["offset"] for row in read(log_dir, isolation="all")] == [0, 1, 2]


def test_a_copy_without_snapshots_has_its_open_transactions(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    log.put(b"a", b"1")
    log.put(b"b", b"2", producer=(7, 0), transactional=True)
    log.put(b"c", b"3")
    log.write(tmp_path / "log-0")
    for path in (tmp_path / "log-0").glob("*.snapshot"):
        path.unlink()
    found = {each: len(read(tmp_path, isolation=each)) for each in ISOLATIONS}
    assert found == {"read_uncommitted": 3, "read_committed": 1}


def test_timestamps_that_spark_does_not_have_are_its_first_and_last(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    for timestamp in (2**63 - 1, -(2**63), 5):
        log.batch([(b"a", b"1")], timestamp=timestamp)
    options = parse_options({"path": str(write_log_dir(tmp_path, [log])), "columns": "timestamp"})
    (part,) = RECORDS.parts(options, options.wanted)
    (batch,) = RECORDS.read(part, ("timestamp",))
    last = (2**63 - 1) // 1000 * 1000
    assert batch.column(0).cast("int64").to_pylist() == [last, -last, 5000]


def test_times_leave_out_what_is_before_and_lose_no_record(golden_a: Golden) -> None:
    log_dir = golden_a.root / "before"
    for topic in ("old-and-future", "codec-none", "log-append-time"):
        rows = settled(read(log_dir, topics=topic))
        moments = sorted({row["timestamp"] for row in rows})
        for moment in (moments[0], moments[len(moments) // 2], moments[-1], moments[-1] + 1):
            found = settled(read(log_dir, Wanted(first_ms=moment), topics=topic))
            expected = [row for row in rows if row["timestamp"] >= moment]
            assert found == expected


def test_timestamp_types_of_old_magics_are_those_of_kafka(tmp_path: Path) -> None:
    log = LogBuilder("log-0")
    for offset, (magic, attributes) in enumerate([(0, 0), (1, 0), (1, 8)]):
        log.append(
            build_legacy_message(
                offset=offset, magic=magic, key=b"k", value=b"v", timestamp=7, attributes=attributes
            )
        )
    rows = read(write_log_dir(tmp_path, [log]))
    assert [row["timestampType"] for row in rows] == [-1, 0, 1]
