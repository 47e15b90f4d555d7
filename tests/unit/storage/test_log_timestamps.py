"""What a log answers for a timestamp, and with which leader epoch (UnifiedLogTest)."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.format.compression import Codec
from cordwood.format.record_batch import Record, build_batch
from cordwood.storage.log_reader import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
    ListedOffset,
)
from cordwood.storage.partition_log import PartitionLog
from cordwood.testing.log_under_test import bases, catch_up, new_log
from cordwood.testing.stored_log import put


def listed(log: PartitionLog, timestamp: int) -> ListedOffset | None:
    return log.list_offset(timestamp, isolation=Isolation.LOG_END)


def test_a_timestamp_gives_the_first_record_not_older_and_its_epoch(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    assert listed(log, 0) is None
    put(log, b"a", timestamp=1000, leader_epoch=0)
    put(log, b"b", timestamp=2000, leader_epoch=1)
    log.roll()
    put(log, b"c", timestamp=3000, leader_epoch=2)
    assert [listed(log, timestamp) for timestamp in (1000, 1001, 2000, 2001, 3000, 3001)] == [
        ListedOffset(1000, 0, 0),
        ListedOffset(2000, 1, 1),
        ListedOffset(2000, 1, 1),
        ListedOffset(3000, 2, 2),
        ListedOffset(3000, 2, 2),
        None,
    ]


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


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_largest_timestamp_gives_its_record_wherever_it_lies(
    tmp_path: Path, codec: Codec
) -> None:
    log = new_log(tmp_path)
    stamps = (1000, 3000, 2000)
    records = [Record(n, stamp, None, b"v") for n, stamp in enumerate(stamps)]
    log.append_as_leader(build_batch(records, base_offset=0, codec=codec), leader_epoch=4)
    put(log, b"d", timestamp=1500, leader_epoch=5)
    assert listed(log, MAX_TIMESTAMP) == ListedOffset(3000, 1, 4)


def test_without_tiered_storage_there_is_no_tiered_offset(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"v")
    assert listed(log, LATEST_TIERED_TIMESTAMP) == ListedOffset(-1, -1, -1)


def test_records_below_the_log_start_are_not_found(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(4):
        put(log, b"v", timestamp=1000 + number)
    catch_up(log)
    log.delete_records(2)
    found = listed(log, 1000)
    assert found is not None
    assert (found.timestamp, found.offset) == (1002, 2)


def test_segments_that_are_too_old_are_passed_over(tmp_path: Path) -> None:
    log = new_log(tmp_path, index_interval_bytes=1)
    for number in range(20):
        put(log, b"v", timestamp=1000 + number)
        if number % 5 == 4:
            log.roll()
    assert bases(log) == (0, 5, 10, 15, 20)
    for number in range(20):
        found = listed(log, 1000 + number)
        assert found is not None
        assert found.offset == number
