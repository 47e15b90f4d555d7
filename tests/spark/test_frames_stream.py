"""Streams of directories that grow, through a real Spark."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cordwood.format.record_batch import Record, build_batch
from cordwood.frames.catalog import TABLES
from cordwood.frames.data_source import CordwoodDataSource, register
from cordwood.model.errors import ConfigError
from support.running_logs import RunningLogs

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.master("local[1]")
        for name, value in (("spark.ui.enabled", "false"), ("spark.sql.shuffle.partitions", "1")):
            builder = builder.config(name, value)
        started = builder.getOrCreate()
        register(started)
        yield started
        started.stop()


class Logs(RunningLogs):
    """Logs of a broker that runs, which appends and writes checkpoints as it does."""

    def grow(self, name: str, count: int) -> None:
        log = self.log(name)
        for _ in range(count):
            self.put(log, (b"k", b"v" * 50))
        self.checkpoint_offsets()

    def checkpoint_offsets(self) -> None:
        self.manager.checkpoint_high_watermarks()
        self.manager.checkpoint_log_start_offsets()


Row = tuple[str, int, int]


class Sink:
    """The rows of each batch by its id, so that one that is done again replaces itself.

    With `fails_at` that batch fails after all its rows have come.
    """

    def __init__(self) -> None:
        self.batches: dict[int, list[Row]] = {}
        self.fails_at: int | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = [(row.topic, row.partition, row.offset) for row in frame.collect()]
        if batch == self.fails_at:
            raise RuntimeError(f"batch {batch} of {len(rows)}")
        self.batches[batch] = rows

    @property
    def rows(self) -> list[Row]:
        return sorted(row for batch in self.batches.values() for row in batch)


def started(
    spark: SparkSession, logs: RunningLogs, sink: Sink, checkpoint: Path, **options: str
) -> Any:
    frame = (
        spark.readStream.format("cordwood")
        .option("startingOffsets", "earliest")
        .options(**options)
        .load(str(logs.directories[0]))
    )
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return writer.trigger(availableNow=True).start()


def rows_of(counts: dict[str, int]) -> list[Row]:
    return sorted(
        (name.rpartition("-")[0], int(name.rpartition("-")[2]), offset)
        for name, count in counts.items()
        for offset in range(count)
    )


def test_a_query_that_fails_and_is_started_again_has_each_record_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, sink, checkpoint = Logs(tmp_path), Sink(), tmp_path / "checkpoint"
    logs.grow("a-0", 60)
    logs.grow("a-1", 20)
    started(spark, logs, sink, checkpoint, maxOffsetsPerTrigger="20").awaitTermination()
    by_partition = [Counter(row[1] for row in batch) for batch in sink.batches.values()]
    assert by_partition == [{0: 15, 1: 5}] * 4

    logs.grow("a-0", 10)
    sink.fails_at = 4
    with pytest.raises(StreamingQueryException, match="batch 4 of 10"):
        started(spark, logs, sink, checkpoint, maxBytesPerTrigger="1000000").awaitTermination()
    logs.grow("a-0", 10)
    logs.grow("b-0", 3)
    sink.fails_at = None
    started(spark, logs, sink, checkpoint, minOffsetsPerTrigger="1000").awaitTermination()
    assert sink.batches[4] == [("a", 0, offset) for offset in range(60, 70)]
    assert sink.rows == rows_of({"a-0": 80, "a-1": 20, "b-0": 3})
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    positions = json.loads(last.read_text(encoding="utf-8").splitlines()[-1])
    assert {topic: found["0"] for topic, found in positions.items()} == {"a": 80, "b": 3}


def test_a_query_that_runs_reads_what_comes_and_no_open_transaction(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, sink = Logs(tmp_path), Sink()
    logs.manager.verify_transactions(is_enabled=False)
    logs.grow("a-0", 2)
    frame = (
        spark.readStream.format("cordwood")
        .option("startingOffsets", "earliest")
        .option("isolation", "read_committed")
        .option("columns", "topic,partition,offset")
        .load(str(logs.directories[0]))
    )
    writer = frame.writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        assert sink.rows == rows_of({"a-0": 2})
        log = logs.log("a-0")
        record = Record(0, logs.clock.now_ms(), b"k", b"open")
        batch = build_batch(
            [record],
            base_offset=0,
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        log.append_as_leader(batch)
        logs.grow("a-0", 2)
        logs.grow("b-0", 1)
        query.processAllAvailable()
        assert sink.rows == rows_of({"a-0": 2, "b-0": 1})
    finally:
        query.stop()


def test_records_that_are_gone_end_a_query_unless_that_is_allowed(
    spark: SparkSession, tmp_path: Path
) -> None:
    logs, sink, checkpoint = Logs(tmp_path), Sink(), tmp_path / "checkpoint"
    logs.grow("a-0", 3)
    started(spark, logs, sink, checkpoint).awaitTermination()
    logs.grow("a-0", 7)
    logs.log("a-0").maybe_increment_log_start_offset(5, "of a test")
    logs.checkpoint_offsets()
    message = "DataLossError: a-0: the stream is at offset 3, and the log begins at offset 5"
    with pytest.raises(StreamingQueryException, match=message):
        started(spark, logs, sink, checkpoint).awaitTermination()
    started(spark, logs, sink, checkpoint, failOnDataLoss="false").awaitTermination()
    assert [row[2] for row in sink.rows] == [0, 1, 2, *range(5, 10)]


def test_options_of_a_stream_are_not_for_what_is_read_once(tmp_path: Path) -> None:
    once = CordwoodDataSource({"path": str(tmp_path), "maxOffsetsPerTrigger": "1"})
    with pytest.raises(ConfigError, match="option maxOffsetsPerTrigger: it is of"):
        once.reader(once.schema())


@pytest.mark.parametrize("table", sorted({*TABLES} - {"records"}))
def test_other_tables_are_no_streams(tmp_path: Path, table: str) -> None:
    source = CordwoodDataSource({"path": str(tmp_path), "table": table})
    with pytest.raises(ConfigError, match=f"option table: {table} cannot be read as a stream"):
        source.streamReader(source.schema())
