"""Compaction as one would write it with PySpark alone: rows, a window by key, rows back to batches.

The yardstick for what it is worth not to bring records through Spark. It leaves much undone that a
cleaner must do (transactions, delete horizons, indexes, groups, checkpoints, crash safety).

usage: plain_spark.py PARTITION_DIRECTORY OUT
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

from cordwood.format.record_batch import LegacyBatch, Record, build_batch, iter_batches

_ROWS = 20_000
_BATCH_RECORDS = 60
_SCHEMA = "key binary, offset long, timestamp long, value binary"


def decode(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    rows: list[tuple[bytes | None, int, int, bytes | None]] = []
    for frame in frames:
        for path in frame["path"]:
            for _, batch in iter_batches(Path(path).read_bytes()):
                assert not isinstance(batch, LegacyBatch), "only today's format here"
                batch.require_valid()
                rows += [(r.key, r.offset, r.timestamp, r.value) for r in batch.records()]
                if len(rows) >= _ROWS:
                    yield pd.DataFrame(rows, columns=["key", "offset", "timestamp", "value"])
                    rows = []
    yield pd.DataFrame(rows, columns=["key", "offset", "timestamp", "value"])


def encode(out: str) -> object:
    def write(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        path = None
        count = 0
        for frame in frames:
            records = [
                Record(offset=offset, timestamp=timestamp, key=key, value=value, headers=())
                for key, offset, timestamp, value in frame.itertuples(index=False)
            ]
            if records and path is None:
                path = Path(out) / f"{records[0].offset:020d}.log"
            if path is not None:
                with path.open("ab") as file:
                    for first in range(0, len(records), _BATCH_RECORDS):
                        some = records[first : first + _BATCH_RECORDS]
                        file.write(build_batch(some, base_offset=some[0].offset))
            count += len(records)
        yield pd.DataFrame({"records": [count]})

    return write


def compact(spark: SparkSession, directory: Path, out: Path) -> int:
    out.mkdir()
    segments = sorted(directory.glob("*.log"))[:-1]
    paths = spark.createDataFrame([(str(path),) for path in segments], "path string")
    rows = paths.repartition(len(segments)).mapInPandas(decode, _SCHEMA)
    newest_first = Window.partitionBy("key").orderBy(f.desc("offset"))
    newest = (
        rows.withColumn("rank", f.row_number().over(newest_first)).where("rank = 1").drop("rank")
    )
    ordered = newest.repartitionByRange(len(segments), "offset").sortWithinPartitions("offset")
    counts = ordered.mapInPandas(encode(str(out)), "records long").collect()
    return sum(row.records for row in counts)


def main() -> int:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    directory, out = Path(sys.argv[1]), Path(sys.argv[2])
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(0, 4, 1, 2).mapInPandas(lambda frames: frames, "id long").collect()
    started = time.monotonic()
    records = compact(spark, directory, out)
    seconds = time.monotonic() - started
    spark.stop()
    print(json.dumps({"seconds": seconds, "records_after": records}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
