"""A partition log, end to end: appended to, read, killed, recovered, and aged by a week.

Run it with `python examples/partition_log.py`; it works in a directory of its own, and removes it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from cordwood.cleanup.schedule.retention_pass import retain
from cordwood.configs.log_config import LogConfig
from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, RecordBatch, build_batch, iter_batches
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log_manager import LogManager
from cordwood.testing.manual_clock import ManualClock

DAY_MS = 86_400_000
PRICES = TopicPartition("products.prices", 0)
CONFIG = LogConfig(segment_bytes=4_096, retention_ms=7 * DAY_MS)


def append_a_day(log: PartitionLog, clock: ManualClock) -> None:
    """A batch of ten prices an hour, compressed as a producer would."""
    for hour in range(24):
        records = [
            Record(n, clock.now_ms(), b"product-%d" % n, b"price " + b"%d" % (hour * n) * 20)
            for n in range(10)
        ]
        log.append_as_leader(build_batch(records, base_offset=0, codec=Codec.LZ4))
        log.update_high_watermark(log.log_end_offset)
        clock.advance(DAY_MS // 24)


def open_logs(root: Path, clock: ManualClock) -> LogManager:
    """The logs in a directory, recovered if they were not closed."""
    manager = LogManager([root], defaults=CONFIG, context=LogContext(clock=clock))
    manager.load()
    return manager


def read(log: PartitionLog, offset: int) -> list[tuple[int, bytes | None]]:
    """Offsets and values of the batch that holds `offset`."""
    fetched = log.reader.read(offset, max_bytes=1)  # a whole batch at least
    return [
        (record.offset, record.value)
        for _, batch in iter_batches(fetched.read())
        if isinstance(batch, RecordBatch)
        for record in batch.records()
    ]


def main() -> None:
    """The tour."""
    clock = ManualClock()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        manager = open_logs(root, clock)
        log = manager.get_or_create(PRICES)
        for _ in range(3):
            append_a_day(log, clock)
        print(f"{log.log_end_offset} records in {len(log.segments)} segments")
        print(f"offset 377 is in a batch of {len(read(log, 377))} records")
        yesterday = log.reader.list_offset(clock.now_ms() - DAY_MS)
        print(f"yesterday began at offset {yesterday.offset if yesterday else None}")

        for directory in manager.directories:  # the process is gone, its locks with it
            directory.release()
        with log.active.path.open("ab") as file:
            file.write(b"half a batch")
        manager = open_logs(root, clock)
        log = manager.require(PRICES)
        print(f"recovered to offset {log.log_end_offset}, nothing lost")

        log.update_high_watermark(log.log_end_offset)
        clock.advance(6 * DAY_MS)
        gone = retain(log, clock.now_ms())
        print(f"six days on, {gone} segments are too old; the log starts at {log.log_start_offset}")
        clock.advance(CONFIG.file_delete_delay_ms)
        manager.context.scheduler.run_due()
        manager.shutdown()
        print("left:", *sorted(path.name for path in log.directory.iterdir()), sep="\n  ")


if __name__ == "__main__":
    main()
