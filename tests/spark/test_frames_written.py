"""DataFrames written as topics through a real Spark, and read back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from cordwood.client.partitioner import partition_of
from cordwood.frames.data_source import register

#: Each task is tried twice.
MASTER = "local[1,2]"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        session = SparkSession.builder.master(MASTER).config("spark.ui.enabled", "false")
        started = session.getOrCreate()
        register(started)
        yield started
        started.stop()


def save(frame: DataFrame, log_dir: Path, mode: str = "append", **options: str) -> None:
    writer = frame.write.format("cordwood").option("topic", "orders").options(**options)
    writer.mode(mode).save(str(log_dir))


def records(spark: SparkSession, log_dir: Path) -> list[tuple[int, int, bytes | None, bytes]]:
    """(partition, offset, key, value) of all records, in order."""
    found = spark.read.format("cordwood").load(str(log_dir))
    return [
        (row.partition, row.offset, row.key and bytes(row.key), bytes(row.value))
        for row in found.orderBy("partition", "offset").collect()
    ]


def test_a_frame_is_written_and_appended_to_and_read_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = spark.range(0, 3000, numPartitions=2).selectExpr(
        "concat('k', id % 100) AS key",
        "cast(id AS string) AS value",
        "array(named_struct('key', 'n', 'value', cast(id % 7 AS string))) AS headers",
        "timestamp_millis(1600000000000 + id) AS timestamp",
    )
    save(frame, tmp_path, partitions="3", **{"compression.type": "lz4"})
    save(frame.limit(10).select("value"), tmp_path)
    found = records(spark, tmp_path)
    assert len(found) == 3010
    for number in range(3):
        of_partition = [each for each in found if each[0] == number]
        assert [offset for _, offset, _, _ in of_partition] == list(range(len(of_partition)))
        with_key = [(key, value) for _, _, key, value in of_partition if key is not None]
        expected = [
            (b"k%d" % (n % 100), b"%d" % n)
            for n in range(3000)
            if partition_of(b"k%d" % (n % 100), 3) == number
        ]
        assert with_key == expected
    row = (
        spark.read.format("cordwood")
        .option("columns", "value,headers,timestamp")
        .load(str(tmp_path))
        .where("value = '2999'")
        .selectExpr("headers[0].key", "string(headers[0].value)", "unix_millis(timestamp)")
        .first()
    )
    assert row is not None
    assert tuple(row) == ("n", str(2999 % 7), 1_600_000_002_999)


def failing(attempts: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function that gives a partition's rows, and then fails, in so many attempts."""

    def fail(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext  # noqa: PLC0415  # this runs in a task

        task = TaskContext.get()
        assert task is not None
        yield from batches
        if task.attemptNumber() < attempts:
            raise RuntimeError("this attempt fails")

    return fail


def test_a_task_that_is_tried_again_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 500, numPartitions=2).selectExpr("string(id) AS key", "'v' AS value")
    save(frame.mapInArrow(failing(1), frame.schema), tmp_path, partitions="2")
    found = records(spark, tmp_path)
    assert sorted(int(key or b"") for _, _, key, _ in found) == list(range(500))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders-0", "orders-1"]


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(0, 500, numPartitions=2).selectExpr("string(id) AS key", "'v' AS value")
    save(frame, tmp_path, partitions="2")
    before = records(spark, tmp_path)
    with pytest.raises(PySparkException, match="this attempt fails"):
        save(frame.mapInArrow(failing(9), frame.schema), tmp_path)
    assert records(spark, tmp_path) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["orders-0", "orders-1"]


@pytest.mark.parametrize(
    ("mode", "columns", "text"),
    [
        ("overwrite", ["'v' AS value"], "records of a topic are not replaced"),
        ("append", ["id AS value"], "column value: it cannot be of the type int64"),
        ("errorifexists", ["'v' AS value"], "cannot be written in the .ErrorIfExists. mode"),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: SparkSession, tmp_path: Path, mode: str, columns: list[str], text: str
) -> None:
    frame = spark.range(1).selectExpr(*columns)
    with pytest.raises((AnalysisException, PySparkException), match=text):
        save(frame, tmp_path, mode)
    assert list(tmp_path.iterdir()) == []
