"""A log of any size, and a query of one of its offsets as Spark plans and runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pyspark.sql.datasource import EqualTo

from cordwood.format.record_batch import Record, build_batch
from cordwood.frames.data_source import CordwoodDataSource
from support.stored_log import StoredLogs

_BATCH_RECORDS: Final = 60
_VALUE: Final = bytes(1_000)


def write_large_log(log_dir: Path, megabytes: int) -> int:
    """Fills `t-0` with batches of 60 KB, and stops cleanly; how many records it has."""
    logs = StoredLogs(log_dir)
    logs.start()
    log = logs.log()
    now_ms = logs.clock.now_ms()
    records = [Record(n, now_ms, b"k%d" % n, _VALUE) for n in range(_BATCH_RECORDS)]
    batch = build_batch(records, base_offset=0)
    for _ in range(megabytes * 1_000_000 // len(batch)):
        log.append_as_leader(batch)
    log.update_high_watermark(log.log_end_offset)
    logs.manager.shutdown()
    return log.log_end_offset


def record_at(log_dir: Path | str, offset: int) -> list[dict[str, Any]]:
    """The rows with this offset, of all that Spark gets of its planning and its tasks."""
    source = CordwoodDataSource({"path": str(log_dir), "columns": "offset,key,value"})
    reader = source.reader(source.schema())
    reader.pushFilters([EqualTo(("offset",), offset)])
    return [
        row
        for task in reader.partitions()
        for batch in reader.read(task)
        for row in batch.to_pylist()
        if row["offset"] == offset
    ]


def expected_at(offset: int) -> list[dict[str, Any]]:
    """The rows that `record_at` is to find."""
    return [{"offset": offset, "key": b"k%d" % (offset % _BATCH_RECORDS), "value": _VALUE}]
