"""Records by timestamp, segments by offset, and what the indexes of a log hold (UnifiedLogTest,
LocalLogTest).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cordwood.configs.value import LONG_MAX
from cordwood.format.batch_header import LOG_APPEND_TIME
from cordwood.format.record_batch import Record, build_batch
from cordwood.storage.log.log_reader import (
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
    ListedOffset,
)
from cordwood.storage.log.partition_log import PartitionLog
from support.log_under_test import Producer, bases, catch_up, follow, new_log
from support.stored_log import batch_of, put

NOW_MS = 1_700_000_000_000
NONE = ListedOffset(-1, -1, -1)


def listed(
    log: PartitionLog, timestamp: int, isolation: Isolation = Isolation.LOG_END
) -> ListedOffset | None:
    return log.reader.list_offset(timestamp, isolation=isolation)


def hundred(root: Path) -> PartitionLog:
    """A hundred batches of a record from offset 100 on, each a millisecond after the last."""
    log = new_log(root, segment_bytes=10_000, index_interval_bytes=1)
    for number in range(100):
        follow(
            log,
            batch_of(
                b"%d" % number,
                base_offset=100 + number,
                timestamp=NOW_MS + number,
                leader_epoch=0,
            ),
        )
    return log


# ---- by timestamp


def test_two_records_are_found_by_their_timestamps_with_their_leader_epochs(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, segment_bytes=200, index_interval_bytes=1)
    assert listed(log, 0) is None
    put(log, bytes(10), timestamp=NOW_MS, leader_epoch=0)
    put(log, bytes(10), timestamp=NOW_MS + 1, leader_epoch=1)
    assert listed(log, NOW_MS) == ListedOffset(NOW_MS, 0, 0)
    assert listed(log, NOW_MS + 1) == ListedOffset(NOW_MS + 1, 1, 1)
    assert listed(log, NOW_MS + 2) is None
    assert listed(log, LATEST_TIMESTAMP) == ListedOffset(-1, 2, 1)
    log.assign_epoch(2, 2)
    assert listed(log, LATEST_TIMESTAMP) == ListedOffset(-1, 2, 2)


def test_the_largest_timestamp_is_that_of_the_second_of_three(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=200, index_interval_bytes=1)
    assert listed(log, MAX_TIMESTAMP) is None
    for timestamp in (NOW_MS, NOW_MS + 1, NOW_MS):
        put(log, bytes(10), timestamp=timestamp)
    assert listed(log, MAX_TIMESTAMP) == ListedOffset(NOW_MS + 1, 1, 0)


def test_of_equal_largest_timestamps_the_first_counts(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for timestamp in (5, 7, 7, 6):
        put(log, b"v", timestamp=timestamp)
        log.roll()
    assert listed(log, MAX_TIMESTAMP) == ListedOffset(7, 1, 0)


def test_with_log_append_time_the_largest_timestamp_is_that_of_its_batchs_first_record(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, message_timestamp_type=LOG_APPEND_TIME)
    put(log, b"a", b"b", b"c", timestamp=1)
    assert listed(log, MAX_TIMESTAMP) == ListedOffset(NOW_MS, 0, 0)
    assert listed(log, NOW_MS - 1) == ListedOffset(NOW_MS, 0, 0)


def test_without_tiered_storage_there_is_neither_a_tiered_nor_a_pending_offset(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, segment_bytes=200, index_interval_bytes=1)
    for timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        assert listed(log, timestamp) == NONE
    put(log, bytes(10), timestamp=NOW_MS)
    put(log, bytes(10), timestamp=NOW_MS + 1)
    for timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        assert listed(log, timestamp) == NONE


def test_what_a_reader_does_not_see_is_not_found_by_time(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"a", timestamp=1000)
    Producer(log, 1).append(1)  # 1, at NOW_MS
    put(log, b"c", timestamp=NOW_MS + 1)  # 2
    log.update_high_watermark(2)
    seen = {
        isolation: [found and found.offset for found in (listed(log, t, isolation) for t in stamps)]
        for stamps in [(1000, NOW_MS, NOW_MS + 1, MAX_TIMESTAMP)]
        for isolation in Isolation
    }
    assert seen == {
        Isolation.LOG_END: [0, 1, 2, 2],
        Isolation.HIGH_WATERMARK: [0, 1, None, None],
        Isolation.TXN_COMMITTED: [0, None, None, None],
    }


def test_records_out_of_order_are_found_in_the_first_segment_that_is_new_enough(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    for timestamps in ((10, 40, 20), (30, 50, 5)):
        records = [Record(n, t, None, b"v") for n, t in enumerate(timestamps)]
        log.append_as_leader(build_batch(records, base_offset=0))
        log.roll()
    wanted = {0: 0, 10: 0, 11: 1, 30: 1, 40: 1, 41: 4, 50: 4}
    for timestamp, offset in wanted.items():
        found = listed(log, timestamp)
        assert found is not None
        assert found.offset == offset, timestamp
    assert listed(log, 51) is None


def test_only_the_first_segment_that_is_new_enough_is_searched(tmp_path: Path) -> None:
    # Deleted records are not found, nor those of later segments in their place, as in Kafka.
    log = new_log(tmp_path)
    for timestamp in (100, 50, 100):
        put(log, b"v", timestamp=timestamp)
        if timestamp == 50:
            log.roll()
    catch_up(log)
    log.delete_records(1)
    assert listed(log, 60) is None
    assert listed(log, 50) == ListedOffset(50, 1, 0)


def test_a_segment_without_timestamps_goes_by_its_files_time(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"a", timestamp=-1)
    log.roll()
    put(log, b"b", timestamp=2000)
    os.utime(log.segments.first.path, (1, 1))
    assert listed(log, 1500) == ListedOffset(2000, 1, 0)
    os.utime(log.segments.first.path, (3, 3))
    assert listed(log, 1500) is None, "the first segment seems new enough, and has no such record"


def test_every_record_of_a_long_log_is_found_by_its_timestamp(tmp_path: Path) -> None:
    log = hundred(tmp_path)
    for number in range(100):
        assert listed(log, NOW_MS + number) == ListedOffset(NOW_MS + number, 100 + number, 0)


# ---- indexes


def test_a_hundred_batches_of_a_follower_have_99_time_index_entries(tmp_path: Path) -> None:
    log = hundred(tmp_path)
    assert sum(segment.time_index.entries for segment in log.segments) == 99
    assert log.active.time_index.last_entry.timestamp == NOW_MS + 99


def test_index_entries_fall_due_with_the_interval_and_stand_for_last_offsets(
    tmp_path: Path,
) -> None:
    # Batches of ten records in a thousand bytes: entries at batches 5, 10 and 15.
    filler = len(batch_of(*[b"v"] * 9, bytes(100)))
    batch = batch_of(*[b"v"] * 9, bytes(100 + 1000 - filler))
    assert len(batch) == 1000
    log = new_log(tmp_path, index_interval_bytes=4096)
    for _ in range(20):
        log.append_as_leader(batch)
    index = log.active.offset_index
    assert [tuple(index.entry(n)) for n in range(index.entries)] == [
        (59, 5000),
        (109, 10_000),
        (159, 15_000),
    ]
    assert tuple(index.lookup(57)) == (0, 0)
    assert tuple(index.lookup(59)) == tuple(index.lookup(60)) == (59, 5000)


# ---- segments


def test_segments_between_offsets_are_those_that_hold_them(tmp_path: Path) -> None:
    size = len(batch_of(b"test"))
    log = new_log(tmp_path, segment_bytes=10 * size)
    for _ in range(22):
        put(log, b"test")
    assert bases(log) == (0, 10, 20)

    def between(start: int, end: int) -> list[int]:
        return [segment.base_offset for segment in log.segments.values(start, end)]

    assert between(10, 10) == between(15, 15) == []
    assert between(0, 21) == [0, 10, 20]
    assert between(1, 5) == [0]
    assert between(13, 21) == [10, 20]
    assert between(13, 17) == [10]
    with pytest.raises(ValueError, match="greater than limit offset 0"):
        between(10, 0)


def test_segments_before_the_active_one_are_those_from_0_2_and_none_from_5(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(5):
        put(log, b"%d" % number, key=b"%d" % number)
        log.roll()
    assert log.active.base_offset == 5

    def from_(offset: int) -> list[int]:
        return [segment.base_offset for segment in log.segments.non_active_from(offset)]

    assert from_(0) == [0, 1, 2, 3, 4]
    assert from_(2) == [2, 3, 4]
    assert from_(5) == from_(6) == []


def test_the_first_batch_of_a_segment_tells_its_timestamp_and_an_empty_one_has_none(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    put(log, b"one", timestamp=1000)
    log.roll()
    put(log, b"two", timestamp=2000)
    put(log, b"three", timestamp=3000)
    log.roll()
    assert [s.first_batch_timestamp() for s in log.segments] == [1000, 2000, LONG_MAX]
    log.close()
    log = new_log(tmp_path)
    assert [s.first_batch_timestamp() for s in log.segments] == [1000, 2000, LONG_MAX]
