"""Look-ups of a log's ends and of timestamps below its start (UnifiedLogTest)."""

from __future__ import annotations

from pathlib import Path

from cordwood.storage.log.log_reader import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    Isolation,
    ListedOffset,
)
from cordwood.storage.log.partition_log import PartitionLog
from support.log_under_test import catch_up, new_log
from support.stored_log import put


def listed(log: PartitionLog, timestamp: int) -> ListedOffset | None:
    return log.reader.list_offset(timestamp, isolation=Isolation.LOG_END)


def test_the_ends_of_a_log_come_with_their_epochs(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"a", timestamp=1000, leader_epoch=0)
    put(log, b"b", timestamp=2000, leader_epoch=1)
    log.assign_epoch(2)
    assert listed(log, EARLIEST_TIMESTAMP) == ListedOffset(-1, 0, 0)
    assert listed(log, EARLIEST_LOCAL_TIMESTAMP) == ListedOffset(-1, 0, 0)
    assert listed(log, LATEST_TIMESTAMP) == ListedOffset(-1, 2, 2), "the latest, though unused"
    catch_up(log)
    log.delete_records(1)
    assert listed(log, EARLIEST_TIMESTAMP) == ListedOffset(-1, 1, 1)


def test_records_below_the_log_start_are_not_found(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(4):
        put(log, b"v", timestamp=1000 + number)
    catch_up(log)
    log.delete_records(2)
    found = listed(log, 1000)
    assert found is not None
    assert (found.timestamp, found.offset) == (1002, 2)
