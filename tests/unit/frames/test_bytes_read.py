"""The bytes that are read of large logs to answer small questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter

from cordwood.format.record_batch import Record, build_batch
from cordwood.frames.data_source import CordwoodDataSource
from support.stored_log import StoredLogs

BYTES_MAX = 2_000_000
RECORDS = 60  # of a batch
VALUE_BYTES = 1_000


def write_large_log(root: Path, megabytes: int) -> int:
    """Fills `t-0` with batches of 60 KB and stops cleanly; how many records it has."""
    logs = StoredLogs(root)
    logs.start()
    log = logs.log()
    records = [
        Record(number, logs.clock.now_ms(), b"k%d" % number, bytes(VALUE_BYTES))
        for number in range(RECORDS)
    ]
    batch = build_batch(records, base_offset=0)
    for _ in range(megabytes * 1_000_000 // len(batch)):
        log.append_as_leader(batch)
    log.update_high_watermark(log.log_end_offset)
    logs.manager.shutdown()
    return log.log_end_offset


def bytes_read() -> int:
    """What this process has read so far, of files and all else."""
    facts = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(facts["rchar"])


def found(log_dir: Path, *filters: Filter) -> list[dict[str, Any]]:
    """The rows that Spark gets of its planning and its tasks."""
    source = CordwoodDataSource({"path": str(log_dir), "columns": "offset,key,value"})
    reader = source.reader(source.schema())
    reader.pushFilters(list(filters))
    return [
        row
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
    ]


@pytest.mark.parametrize(
    "megabytes", [64, pytest.param(1_500, marks=pytest.mark.nightly)], ids=lambda each: f"{each} MB"
)
def test_a_query_for_one_offset_of_a_large_log_reads_little_of_it(
    tmp_path: Path, megabytes: int
) -> None:
    records = write_large_log(tmp_path, megabytes)
    size_bytes = sum(path.stat().st_size for path in tmp_path.glob("t-0/*.log"))
    assert size_bytes > megabytes * 900_000
    found(tmp_path, EqualTo(("offset",), 0))  # what is imported late is read, too
    for offset in (records // 3, records // 2 + 5, records - 1):
        before = bytes_read()
        rows = found(tmp_path, EqualTo(("offset",), offset))
        assert bytes_read() - before < BYTES_MAX
        assert [row for row in rows if row["offset"] == offset] == [
            {"offset": offset, "key": b"k%d" % (offset % RECORDS), "value": bytes(VALUE_BYTES)}
        ]
