"""Tables through a real Spark."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession

from cordwood.frames.data_source import register
from support.golden import Golden
from support.log_builder import LogBuilder, write_log_dir
from support.table_rows import rows_of

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
        started = session.getOrCreate()
        register(started)
        yield started
        started.stop()


def codec_rows(spark: SparkSession, log_dir: Path) -> list[Row]:
    found = spark.read.format("cordwood").load(str(log_dir))
    chosen = found.where("topic = 'codec-lz4' and offset >= 1500 and offset < 1510")
    rows: list[Row] = chosen.select("topic", "offset", "key").orderBy("offset").collect()
    return rows


def test_filters_give_the_same_rows_whether_spark_passes_them_on_or_not(
    spark: SparkSession, golden_a: Golden
) -> None:
    log_dir = golden_a.root / "before"
    passed_on = codec_rows(spark, log_dir)
    assert [row.offset for row in passed_on] == list(range(1500, 1510))
    assert {row.topic for row in passed_on} == {"codec-lz4"}
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert codec_rows(spark, log_dir) == passed_on
    finally:
        spark.conf.set(PUSHDOWN, "true")


def test_small_segments_are_read_by_one_task_in_their_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = LogBuilder("log-0")
    for number in range(8):
        log.batch([(b"k", b"%d" % number)])
        log.roll()
    log_dir = write_log_dir(tmp_path, [log])
    found = spark.read.format("cordwood").load(str(log_dir))
    assert found.rdd.getNumPartitions() == 1
    assert [row.offset for row in found.collect()] == list(range(8))
    cut = spark.read.format("cordwood").option("sliceBytes", "1").load(str(log_dir))
    assert cut.rdd.getNumPartitions() == 8
    assert [row.offset for row in cut.collect()] == list(range(8))


@pytest.mark.parametrize(
    ("table", "condition"),
    [
        ("batches", "topic = 'codec-lz4' and lastOffset >= 1500 and baseOffset < 1510"),
        ("segments", "topic = 'headers' and lastOffset >= 300 and baseOffset <= 300"),
        ("indexes", "kind = 'transaction' and lastOffset > 100 and firstOffset < 900"),
    ],
)
def test_filters_on_offsets_of_other_tables_give_the_same_rows_either_way(
    spark: SparkSession, golden_a: Golden, table: str, condition: str
) -> None:
    log_dir = golden_a.root / "before"

    def rows() -> list[Row]:
        found = spark.read.format("cordwood").option("table", table).load(str(log_dir))
        return sorted(found.where(condition).collect(), key=str)

    passed_on = rows()
    assert 0 < len(passed_on) < len(rows_of(table, log_dir)) / 2
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert rows() == passed_on
    finally:
        spark.conf.set(PUSHDOWN, "true")


@pytest.mark.parametrize(
    "table",
    [
        *("batches", "segments", "indexes"),
        *("offsets", "groups", "transactions", "metadata"),
    ],
)
def test_tables_are_read_as_without_spark(
    spark: SparkSession, golden_a: Golden, table: str
) -> None:
    log_dir = golden_a.root / "after-2"
    rows = spark.read.format("cordwood").option("table", table).load(str(log_dir)).collect()
    without = rows_of(table, log_dir)
    assert len(rows) == len(without) > 3
    assert set(rows[0].asDict()) == set(without[0])


def test_filters_on_consumed_partitions_choose_no_partitions_of_the_internal_topic(
    spark: SparkSession, golden_a: Golden
) -> None:
    log_dir = golden_a.root / "before-2"
    offsets = spark.read.format("cordwood").option("table", "offsets").load(str(log_dir))
    found = offsets.where("topic = 'headers' and partition = 0 and offset > 300").collect()
    assert {row.recordPartition for row in found} == {0, 1}
    assert {(row.groupId, row.offset) for row in found} == {
        (row["groupId"], row["offset"])
        for row in rows_of("offsets", log_dir)
        if row["topic"] == "headers" and row["offset"] > 300
    }
