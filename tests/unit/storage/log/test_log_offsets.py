"""Log start, high watermark and what DeleteRecords makes of them (UnifiedLogTest,
DeleteRecordsRequestTest, LogOffsetTest).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.model.kafka_errors import OffsetOutOfRangeError
from cordwood.storage.log.log_offsets import LogPosition
from cordwood.storage.log.log_reader import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
)
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from support.log_under_test import (
    bases,
    catch_up,
    fetch,
    follow,
    new_log,
    offsets_read,
    state_of,
)
from support.stored_log import batch_of, put

THREE = batch_of(b"value", b"value", b"value", key=b"a")


def log_of(root: Path, count: int) -> PartitionLog:
    """A log of that many batches of a record."""
    log = new_log(root)
    for number in range(count):
        put(log, b"test%d" % number)
    return log


def test_a_recovery_point_or_high_watermark_behind_the_end_breaks_an_invariant(
    tmp_path: Path,
) -> None:
    log = log_of(tmp_path, 3)
    log.check_invariants()
    log.offsets.recovery_point = 4
    with pytest.raises(AssertionError, match="recovery point 4"):
        log.check_invariants()
    log.offsets.recovery_point = 3
    log.offsets.high_watermark = LogPosition(4)
    with pytest.raises(AssertionError, match="0 4 4 3"):
        log.check_invariants()


# ---- high watermark


def test_the_high_watermark_stays_within_the_log(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    assert log.high_watermark == 0
    log.append_as_leader(THREE)
    offsets = [log.high_watermark]  # an append does not move it

    def now(expected: int) -> None:
        offsets.append(log.high_watermark)
        assert offsets[-1] == expected
        assert log.reader.position_of_high_watermark() == log.reader.position_of(expected)

    log.maybe_update_high_watermark(1)
    now(1)
    assert log.update_high_watermark(5) == 3, "not beyond the log's end"
    now(3)
    follow(log, batch_of(b"a", b"b", b"c", base_offset=3, leader_epoch=0))
    assert log.update_high_watermark(6) == 6
    now(6)
    truncate_to(log, 3)
    now(3)
    log.append_as_leader(THREE)
    now(3)
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    truncate_fully_and_start_at(log, 4)
    now(4)
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    assert offsets == [0, 1, 3, 6, 3, 3, 4]


@pytest.mark.parametrize(("high_watermark", "expected"), [(4, 3), (3, 3), (2, 2), (0, 0)])
def test_a_truncation_to_3_takes_a_high_watermark_of_4_with_it(
    tmp_path: Path, high_watermark: int, expected: int
) -> None:
    log = log_of(tmp_path, 6)
    log.update_high_watermark(high_watermark)
    truncate_to(log, 3)
    assert log.high_watermark == expected


def test_a_followers_high_watermark_is_cut_to_the_logs_end_of_100(tmp_path: Path) -> None:
    log = log_of(tmp_path, 100)
    found = [log.update_high_watermark(offset) for offset in (99, 99, 100, 100, 101)]
    assert found == [99, 99, 100, 100, 100]


def test_a_leaders_high_watermark_only_rises_and_says_what_it_was(tmp_path: Path) -> None:
    log = log_of(tmp_path, 100)
    found = [log.maybe_update_high_watermark(offset) for offset in (99, 99, 50, 100, 100)]
    assert found == [0, None, None, 99, None]
    with pytest.raises(ValueError, match="101 update exceeds current log end offset 100"):
        log.maybe_update_high_watermark(101)
    assert log.high_watermark == 100


def test_a_high_watermark_below_the_log_start_is_put_to_it(tmp_path: Path) -> None:
    log = log_of(tmp_path, 10)
    log.update_high_watermark(8)
    log.delete_records(5)
    assert log.update_high_watermark(2) == 5


def test_the_high_watermark_says_where_it_lies(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    follow(log, batch_of(b"a", b"b", b"c", leader_epoch=5))
    log.update_high_watermark(2)
    # Inside the batch, which begins at byte 0.
    assert log.reader.position_of_high_watermark() == LogPosition(2, 0, 0)
    log.roll()
    log.update_high_watermark(3)
    assert log.reader.position_of_high_watermark() == LogPosition(3, 3, 0)


def test_the_place_of_the_high_watermark_follows_a_roll(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    size = len(THREE)
    log.append_as_leader(THREE)
    catch_up(log)
    assert log.reader.position_of_high_watermark() == LogPosition(3, 0, size)
    log.roll()
    assert log.reader.position_of_high_watermark() == LogPosition(3, 3, 0)
    log.append_as_leader(THREE)
    assert log.reader.position_of_high_watermark() == LogPosition(3, 3, 0)


# ---- log start


def test_a_log_whose_files_were_deleted_begins_at_its_checkpointed_start_of_500(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (500, 500, 500)
    assert bases(log) == (500,)
    assert put(log, b"v").first_offset == 500


def test_the_log_start_is_not_raised_above_the_high_watermark(tmp_path: Path) -> None:
    log = log_of(tmp_path, 100)
    log.update_high_watermark(25)
    before = state_of(log)
    with pytest.raises(OffsetOutOfRangeError, match="larger than the high watermark 25"):
        log.maybe_increment_log_start_offset(26, "leader offset increment")
    assert state_of(log) == before
    assert log.maybe_increment_log_start_offset(25, "leader offset increment")
    assert log.log_start_offset == 25


def test_the_log_start_never_goes_back(tmp_path: Path) -> None:
    log = log_of(tmp_path, 10)
    catch_up(log)
    assert log.maybe_increment_log_start_offset(5, "test")
    assert not log.maybe_increment_log_start_offset(5, "test")
    assert not log.maybe_increment_log_start_offset(4, "test")
    assert log.log_start_offset == 5


def test_leader_epochs_follow_the_log_start_but_not_the_recovery_point(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for epoch in (1, 2, 3):
        for _ in range(3):
            put(log, b"v", leader_epoch=epoch)
    catch_up(log)
    assert log.offsets.recovery_point == 0
    log.delete_records(4)
    assert log.offsets.recovery_point == 0, "nothing was flushed; Kafka raises it"
    assert log.leader_epochs.epoch_entries == ((2, 4), (3, 6))


# ---- DeleteRecords, of a log of ten records


def ten(root: Path, high_watermark: int = 10) -> PartitionLog:
    log = log_of(root, 10)
    log.update_high_watermark(high_watermark)
    return log


def test_records_below_2_are_deleted_and_the_low_watermark_is_2(tmp_path: Path) -> None:
    log = ten(tmp_path)
    assert log.delete_records(2) == 2
    assert log.log_start_offset == 2
    assert offsets_read(fetch(log, 2))[0] == 2
    with pytest.raises(OffsetOutOfRangeError):
        fetch(log, 1)
    assert bases(log) == (0,), "no segment goes at once"


@pytest.mark.parametrize("offset", [15, 11, -2])
def test_records_are_not_deleted_beyond_the_high_watermark_nor_below_nothing(
    tmp_path: Path, offset: int
) -> None:
    log = ten(tmp_path)
    before = state_of(log)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(offset)
    assert state_of(log) == before
    assert log.log_start_offset == 0


def test_records_above_the_high_watermark_are_not_deleted_though_they_are_there(
    tmp_path: Path,
) -> None:
    log = ten(tmp_path, high_watermark=6)
    with pytest.raises(OffsetOutOfRangeError):
        log.delete_records(7)
    assert log.delete_records(6) == 6


@pytest.mark.parametrize("high_watermark", [10, 7])
def test_minus_1_deletes_records_up_to_the_high_watermark(
    tmp_path: Path, high_watermark: int
) -> None:
    log = ten(tmp_path, high_watermark)
    assert log.delete_records(-1) == high_watermark
    assert log.log_start_offset == high_watermark


def test_deleting_below_the_log_start_says_where_that_is(tmp_path: Path) -> None:
    log = ten(tmp_path)
    log.delete_records(5)
    assert log.delete_records(3) == 5
    assert log.log_start_offset == 5


def test_deleted_records_may_come_back_with_a_restart_unless_the_start_is_checkpointed(
    tmp_path: Path,
) -> None:
    log = ten(tmp_path)
    log.delete_records(5)
    log.close()
    assert new_log(tmp_path).log_start_offset == 0
    assert new_log(tmp_path, log_start_offset=5).log_start_offset == 5


# ---- ListOffsets, of segments of two records and twenty of them


def twenty(root: Path) -> PartitionLog:
    size = len(batch_of(b"42"))
    log = new_log(root, segment_bytes=2 * size)
    for _ in range(20):
        put(log, b"42")
    log.flush(force_active=False)
    assert bases(log) == tuple(range(0, 20, 2))
    return log


def offset_of(log: PartitionLog, timestamp: int) -> int:
    found = log.reader.list_offset(timestamp, isolation=Isolation.LOG_END)
    assert found is not None
    return found.offset


def test_the_bases_of_segments_and_the_logs_end_are_what_old_clients_were_told(
    tmp_path: Path,
) -> None:
    # The old answer "offsets before the latest": each segment's base, cut to the log start.
    log = twenty(tmp_path)

    def told() -> list[int]:
        starts = {max(base, log.log_start_offset) for base in bases(log)}
        return [log.log_end_offset, *sorted(starts, reverse=True)]

    assert told() == [20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0]
    catch_up(log)
    log.delete_records(3)
    delete_segments(log, 1, reason="log start offset 3 breach")
    assert told() == [20, 18, 16, 14, 12, 10, 8, 6, 4, 3]


def test_the_latest_offset_is_20_and_the_earliest_0(tmp_path: Path) -> None:
    log = twenty(tmp_path)
    assert offset_of(log, LATEST_TIMESTAMP) == 20
    assert offset_of(log, EARLIEST_TIMESTAMP) == 0
    assert offset_of(log, EARLIEST_LOCAL_TIMESTAMP) == 0
    assert fetch(log, 20, 300 * 1024).size_bytes == 0


def test_an_empty_log_has_earliest_and_latest_0_and_no_largest_timestamp(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for timestamp in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
        for _ in range(14):
            assert offset_of(log, timestamp) == 0
    assert log.reader.list_offset(MAX_TIMESTAMP, isolation=Isolation.LOG_END) is None


def test_the_earliest_offset_follows_deleted_records(tmp_path: Path) -> None:
    log = twenty(tmp_path)
    catch_up(log)
    log.delete_records(3)
    assert offset_of(log, EARLIEST_TIMESTAMP) == 3


def test_the_latest_offset_depends_on_how_far_the_reader_sees(tmp_path: Path) -> None:
    log = twenty(tmp_path)
    put(log, b"v", producer=(1, 0, 0), transactional=True)  # 20
    put(log, b"v")  # 21
    log.update_high_watermark(21)
    latest = {i: log.reader.list_offset(LATEST_TIMESTAMP, isolation=i) for i in Isolation}
    assert {isolation: found and found.offset for isolation, found in latest.items()} == {
        Isolation.LOG_END: 22,
        Isolation.HIGH_WATERMARK: 21,
        Isolation.TXN_COMMITTED: 20,
    }


def test_the_largest_timestamp_goes_with_a_truncation(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=140)
    for timestamp in range(20):
        put(log, b"42", timestamp=timestamp)
    log.flush(force_active=False)
    catch_up(log)
    found = log.reader.list_offset(MAX_TIMESTAMP)
    assert found is not None
    assert (found.offset, found.timestamp) == (19, 19)
    truncate_to(log, 0)
    assert log.reader.list_offset(MAX_TIMESTAMP) is None


def test_the_largest_timestamp_need_not_be_the_last(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=140)
    for timestamp in (0, 1, 2, 3, 4, 6, 5):
        put(log, b"42", timestamp=timestamp)
    log.flush(force_active=False)
    catch_up(log)
    assert log.log_end_offset == 7
    found = log.reader.list_offset(MAX_TIMESTAMP)
    assert found is not None
    assert (found.offset, found.timestamp) == (5, 6)
