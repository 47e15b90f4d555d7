"""The rules by which a follower fetches, truncates and moves its offsets, one by one."""

from __future__ import annotations

import pytest

from cordwood.broker.replication.following import (
    NO_EPOCH,
    AppendRecords,
    AskOffsets,
    Effect,
    FetchedPartition,
    FetchPosition,
    MoveHighWatermark,
    MoveLogStart,
    PartitionFollowing,
    StartAt,
    TruncateTo,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.storage.log.leader_epochs import EpochEndOffset
from support.replication_under_test import Replica


def log_of(*epochs: int, high_watermark: int = 0) -> Replica:
    """A log with a record of each of these epochs."""
    log = Replica(2, high_watermark=high_watermark)
    for number, epoch in enumerate(epochs):
        log.append(epoch, number)
    return log


def following_of(log: Replica) -> PartitionFollowing:
    found = PartitionFollowing(1, 7)
    assert found.begin(log) == []
    return found


def answered(log: Replica, answer: FetchedPartition) -> list[Effect]:
    following = following_of(log)
    position = following.next_fetch(log, 0)
    assert isinstance(position, FetchPosition)
    return following.on_fetched(position, answer, log, 0)


def test_follower_fetches_from_its_end_and_names_its_last_epoch() -> None:
    log = log_of(3, 3, 5)
    assert following_of(log).next_fetch(log, 0) == FetchPosition(
        leader_epoch=7, offset=3, last_epoch=5, log_start_offset=0
    )
    empty = log_of()
    assert following_of(empty).next_fetch(empty, 0) == FetchPosition(
        leader_epoch=7, offset=0, last_epoch=NO_EPOCH, log_start_offset=0
    )


def test_records_are_appended_before_marks_move() -> None:
    answer = FetchedPartition(high_watermark=5, log_start_offset=2, records=b"batches")
    assert answered(log_of(3, 3, 3), answer) == [
        AppendRecords(b"batches", 7),
        MoveHighWatermark(5),
        MoveLogStart(2),
    ]


@pytest.mark.parametrize(
    ("epochs", "diverging", "offset"),
    [
        # Both have the epoch: the lower of the two ends.
        ([3, 3, 3, 5], EpochEndOffset(3, 2), 2),
        ([3, 3, 5, 5], EpochEndOffset(3, 4), 2),
        # This log lacks it: to the end of the one before, and the leader is asked again.
        ([2, 4, 4, 6], EpochEndOffset(5, 9), 3),
        ([2, 4, 4, 6], EpochEndOffset(3, 1), 1),
        # It is older than all here: the leader's end alone.
        ([4, 4], EpochEndOffset(2, 1), 0),
        # It is newer than all that are known here.
        ([4, 4, 4], EpochEndOffset(6, 2), 2),
    ],
)
def test_log_is_cut_off_where_it_parts_from_the_leaders(
    epochs: list[int], diverging: EpochEndOffset, offset: int
) -> None:
    assert answered(log_of(*epochs), FetchedPartition(diverging=diverging)) == [TruncateTo(offset)]


def test_log_without_epochs_is_cut_off_at_its_high_watermark_first() -> None:
    log = Replica(2, records=[(0, 0), (0, 1), (0, 2)], high_watermark=1)
    assert PartitionFollowing(1, 7).begin(log) == [TruncateTo(1)]
    assert PartitionFollowing(1, 7).begin(log_of(3, 3)) == []


@pytest.mark.parametrize(("gap", "effects"), [(1, [TruncateTo(1)]), (3, []), (None, []), (-1, [])])
def test_log_with_a_gap_is_cut_off_there_first(
    gap: int | None, effects: list[Effect], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replica, "gap_offset", gap)
    assert PartitionFollowing(1, 7).begin(log_of(3, 3, 3, high_watermark=2)) == effects


@pytest.mark.parametrize(
    ("first", "end", "effects"),
    [
        (0, 2, [TruncateTo(2)]),  # after an unclean election
        (5, 9, [StartAt(5)]),
        (1, 9, []),
    ],
)
def test_follower_outside_of_the_leaders_log_asks_where_that_is(
    first: int, end: int, effects: list[Effect]
) -> None:
    log = log_of(3, 3, 3)
    following = following_of(log)
    position = following.next_fetch(log, 0)
    assert isinstance(position, FetchPosition)
    answer = FetchedPartition(error=ErrorCode.OFFSET_OUT_OF_RANGE)
    assert following.on_fetched(position, answer, log, 0) == [AskOffsets(7)]
    assert following.next_fetch(log, 0) is None
    assert following.on_offsets(first, end, log, 0) == effects
    # What changes nothing is not tried again at once.
    assert isinstance(following.next_fetch(log, 0), FetchPosition) == bool(effects)
    assert isinstance(following.next_fetch(log, 1000), FetchPosition)


def test_follower_of_an_old_epoch_waits_for_metadata() -> None:
    log = log_of(3)
    following = following_of(log)
    position = following.next_fetch(log, 0)
    assert isinstance(position, FetchPosition)
    answer = FetchedPartition(error=ErrorCode.FENCED_LEADER_EPOCH)
    assert following.on_fetched(position, answer, log, 0) == []
    assert following.is_fenced
    assert following.next_fetch(log, 1_000_000) is None


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_other_errors_are_tried_again_after_the_backoff(error: ErrorCode) -> None:
    log = log_of(3)
    following = following_of(log)
    position = following.next_fetch(log, 100)
    assert isinstance(position, FetchPosition)
    assert following.on_fetched(position, FetchedPartition(error=error), log, 100) == []
    assert following.next_fetch(log, 100) == 1000
    assert isinstance(following.next_fetch(log, 1100), FetchPosition)


def test_answer_to_a_fetch_from_before_a_truncation_is_left_out() -> None:
    log = log_of(3, 3, 3)
    following = following_of(log)
    position = following.next_fetch(log, 0)
    assert isinstance(position, FetchPosition)
    log.truncate_to(2)
    answer = FetchedPartition(high_watermark=9, records=b"batches")
    assert following.on_fetched(position, answer, log, 0) == []
