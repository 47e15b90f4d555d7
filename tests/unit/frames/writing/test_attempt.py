"""The segments that an attempt of a task writes."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cordwood.client.partitioner import partition_of
from cordwood.frames.writing import attempt
from cordwood.frames.writing.attempt import write_attempt
from cordwood.model.errors import CordwoodError
from cordwood.model.kafka_errors import (
    InvalidRecordError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
)
from support.written_topics import HEADERS, attempted, batches_in, planned, records_in, rows

CODECS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


@pytest.mark.parametrize("codec", CODECS)
def test_rows_become_records_in_the_partitions_of_their_keys_and_in_order(
    tmp_path: Path, codec: str
) -> None:
    pairs = [(b"k%d" % (number % 50), b"v%d" % number) for number in range(1000)]
    column = pa.array([[{"key": "n", "value": b"%d" % n}] for n in range(1000)], HEADERS)
    plan = planned(tmp_path, partitions="3", compression_type=codec, batchBytes="1000")
    batch = rows(pairs, headers=column)
    (staged,) = attempted(plan, [batch.slice(0, 400), batch.slice(400), batch.slice(0, 0)])
    for number in range(3):
        directory = staged.directory / str(number)
        expected = [
            (key, value, n)
            for n, (key, value) in enumerate(pairs)
            if partition_of(key, 3) == number
        ]
        found = records_in(directory)
        assert [(each.key, each.value) for each in found] == [each[:2] for each in expected]
        assert [each.headers for each in found] == [(("n", b"%d" % n),) for _, _, n in expected]
        assert [each.offset for each in found] == list(range(len(expected)))
        assert {each.timestamp for each in found} == {plan.attempts.now_ms}
        batches = batches_in(directory)
        assert {each.codec.config_name for each in batches} == {
            codec.replace("uncompressed", "none")
        }
        assert len(batches) > 3
        assert staged.partitions[number] == ((0,), len(expected))


def test_rows_without_a_key_stay_in_a_partition_for_the_bytes_of_a_batch(tmp_path: Path) -> None:
    plan = planned(tmp_path, partitions="4", batchBytes="1000")
    batch = rows([(None, b"x" * 99)] * 25)
    first, second = attempted(plan, [batch.slice(0, 7), batch.slice(7)], [batch])
    assert {n: end for n, (_, end) in first.partitions.items()} == {0: 10, 1: 10, 2: 5}
    assert {n: end for n, (_, end) in second.partitions.items()} == {1: 10, 2: 10, 3: 5}


def test_segments_are_rolled_by_size_and_by_the_time_of_records(tmp_path: Path) -> None:
    plan = planned(tmp_path, partitions="1", batchBytes="500", internal_segment_bytes="3000")
    (staged,) = attempted(plan, [rows([(b"k", b"x" * 100)] * 100)])
    bases, end = staged.partitions[0]
    assert len(bases) > 3
    assert end == 100
    sizes = [path.stat().st_size for path in sorted((staged.directory / "0").glob("*.log"))]
    assert max(sizes) <= 3000
    times = pa.array([0, 1, 9_000_000], pa.timestamp("us"))
    plan = planned(tmp_path, partitions="1", batchBytes="1", segment_ms="5000")
    (staged,) = attempted(plan, [rows([(b"k", b"v")] * 3, timestamp=times)])
    assert staged.partitions[0] == ((0, 2), 3)


def test_indexes_are_those_of_a_log_that_was_appended_to(tmp_path: Path) -> None:
    plan = planned(tmp_path, partitions="1", batchBytes="2000")
    (staged,) = attempted(plan, [rows([(b"k", b"x" * 100)] * 1000)])
    directory = staged.directory / "0"
    index = np.frombuffer((directory / f"{0:020d}.index").read_bytes(), dtype=">i4").reshape(-1, 2)
    ends = {each.last_offset for each in batches_in(directory)}
    assert len(index) > 10
    assert {*index[:, 0].tolist()} <= ends
    assert (directory / f"{0:020d}.timeindex").stat().st_size == 12


def test_a_topic_with_append_times_gets_that_of_the_job(tmp_path: Path) -> None:
    plan = planned(tmp_path, partitions="1", message_timestamp_type="LogAppendTime")
    times = pa.array([5_000], pa.timestamp("us"))
    (staged,) = attempted(plan, [rows([(b"k", b"v")], timestamp=times)])
    (batch,) = batches_in(staged.directory / "0")
    assert batch.timestamp_type == "LogAppendTime"
    assert batch.max_timestamp == plan.attempts.now_ms


def test_a_record_larger_than_a_batch_is_one_of_its_own(tmp_path: Path) -> None:
    plan = planned(tmp_path, partitions="1", batchBytes="100")
    (staged,) = attempted(plan, [rows([(b"k", b"v"), (b"k", b"x" * 5000), (b"k", b"w")])])
    assert [each.header.records_count for each in batches_in(staged.directory / "0")] == [1, 1, 1]


@pytest.mark.parametrize("codec", CODECS)
def test_batches_of_bytes_that_cannot_be_compressed_fit_the_topic(
    tmp_path: Path, codec: str
) -> None:
    options = {"max_message_bytes": "20000", "compression_type": codec}
    plan = planned(tmp_path, partitions="1", **options)
    noise = random.Random(5)
    (staged,) = attempted(plan, [rows([(b"k", noise.randbytes(500)) for _ in range(300)])])
    sizes = [each.size_bytes for each in batches_in(staged.directory / "0")]
    assert max(sizes) <= 20_000
    assert len(sizes) < 12


def test_records_that_wait_take_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "PENDING_BYTES_MAX", 1000)
    plan = planned(tmp_path, partitions="2")
    (staged,) = attempted(plan, [rows([(b"k%d" % n, b"x" * 400)]) for n in range(12)])
    counts = [
        each.header.records_count
        for n in staged.partitions
        for each in batches_in(staged.directory / str(n))
    ]
    assert sum(counts) == 12
    assert len(counts) > 4


@pytest.mark.parametrize(
    ("options", "pair", "kind"),
    [
        ({"max_message_bytes": "1000"}, (b"k", b"x" * 2000), RecordTooLargeError),
        ({"internal_segment_bytes": "1000"}, (b"k", b"x" * 2000), RecordBatchTooLargeError),
        ({"cleanup_policy": "compact"}, (None, b"v"), InvalidRecordError),
    ],
    ids=["message", "segment", "compacted"],
)
def test_a_record_that_the_topic_does_not_take_leaves_nothing(
    tmp_path: Path, options: dict[str, str], pair: tuple[bytes, bytes], kind: type[CordwoodError]
) -> None:
    plan = planned(tmp_path, partitions="2", **options)
    with pytest.raises(kind):
        attempted(plan, [rows([(b"a", b"v")]), rows([pair])])
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_that_is_given_no_more_rows_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield rows([(b"k", b"v")])
        raise RuntimeError("of the query")

    plan = planned(tmp_path, partitions="2")
    with pytest.raises(RuntimeError, match="of the query"):
        write_attempt(plan.attempts, broken(), task=0, attempt="one")
    assert list(tmp_path.iterdir()) == []
