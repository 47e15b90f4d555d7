"""A thousand partitions in one process: few open files, whatever is done to them."""

from __future__ import annotations

import gc
import os
import shutil
from contextlib import suppress
from pathlib import Path

from cordwood.configs.broker_config import BrokerConfig
from cordwood.configs.log_config import LogConfig
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.truncation import truncate_to
from cordwood.storage.log_manager import LogManager
from cordwood.storage.segment.resources import ResourceCache
from cordwood.testing.manual_clock import ManualClock
from support.stored_log import StoredLogs, put

PARTITIONS = 1000
RECORDS = 30
FILES_MAX = 50
INDEX_BYTES_MAX = 20_000
# The lock of the directory, and a file that is open for a moment.
OTHERS = 3
CONFIG = LogConfig(segment_bytes=900, index_interval_bytes=60)


def fill(root: Path, count: int) -> None:
    """Makes a directory that was stopped in good order, with as many copies of one partition."""
    logs = StoredLogs(root, defaults=CONFIG)
    logs.start()
    log = logs.log("t-0")
    for n in range(RECORDS):
        put(log, b"v%d" % n)
    assert len(log.segments) == 3
    logs.manager.shutdown()
    for n in range(1, count):
        shutil.copytree(root / "t-0", root / f"t-{n}")


def descriptors() -> int:
    """The number of open descriptors, without those that nobody can reach any more."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def files_below(root: Path) -> int:
    """The number of descriptors of files below a directory."""
    found = 0
    for entry in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists the directory
            found += os.readlink(f"/proc/self/fd/{entry}").startswith(f"{root}/")
    return found


def opened(root: Path) -> LogManager:
    resources = ResourceCache(files_max=FILES_MAX, index_bytes_max=INDEX_BYTES_MAX)
    manager = LogManager(
        [root],
        defaults=CONFIG,
        broker=BrokerConfig(),
        context=LogContext(clock=ManualClock(), resources=resources),
    )
    manager.load()
    return manager


def test_loading_reading_appending_and_flushing_a_thousand_logs_takes_few_descriptors(
    tmp_path: Path,
) -> None:
    fill(tmp_path, PARTITIONS)
    before = descriptors()
    most = before + FILES_MAX + OTHERS
    manager = opened(tmp_path)
    logs = manager.logs()
    assert len(logs) == PARTITIONS
    assert descriptors() <= before + OTHERS, "what is idle holds none"
    for log in logs:
        for offset in (0, 13, RECORDS - 1):
            data = log.reader.read(offset, 1, isolation=Isolation.LOG_END, min_one=True).read()
            assert int.from_bytes(data[:8], "big") == offset
    assert descriptors() <= most
    assert manager.context.resources.files_open <= FILES_MAX
    assert manager.context.resources.index_bytes <= INDEX_BYTES_MAX
    for log in logs[::4]:
        for n in range(12):
            put(log, b"more%d" % n)
        assert log.log_end_offset == RECORDS + 12
    assert descriptors() <= most
    manager.context.scheduler.run_due()
    for log in logs[::4]:
        log.flush()
        log.update_high_watermark(log.log_end_offset)
        truncate_to(log, RECORDS + 5)
    assert descriptors() <= most
    manager.shutdown()
    assert descriptors() <= before
    again = opened(tmp_path)
    ends = [log.log_end_offset for log in logs]
    assert [again.require(log.topic_partition).log_end_offset for log in logs] == ends
    again.shutdown()


def test_recovering_many_logs_takes_few_descriptors(tmp_path: Path) -> None:
    fill(tmp_path, 300)
    (tmp_path / ".kafka_cleanshutdown").unlink()
    (tmp_path / "recovery-point-offset-checkpoint").unlink()
    before = descriptors()
    manager = opened(tmp_path)
    assert descriptors() <= before + FILES_MAX + OTHERS
    assert {log.log_end_offset for log in manager.logs()} == {RECORDS}
    manager.shutdown()
    assert descriptors() <= before


def test_a_range_that_is_held_keeps_its_file_open_and_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path, 250)
    before, held_before = descriptors(), files_below(tmp_path)
    manager = opened(tmp_path)
    held = [
        manager.require(TopicPartition("t", n)).reader.read(0, 400, isolation=Isolation.LOG_END)
        for n in range(200)
    ]
    assert manager.context.resources.files_open <= FILES_MAX
    assert files_below(tmp_path) >= held_before + 200
    expected = held[0].read()
    for n in range(200):
        manager.delete(TopicPartition("t", n))
    assert all(fetched.read() == expected for fetched in held)
    del held
    assert descriptors() <= before + FILES_MAX + OTHERS
    manager.shutdown()
