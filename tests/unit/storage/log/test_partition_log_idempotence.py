"""Idempotent producers of a log, and what a log knows of them after a truncation or a restart
(UnifiedLogTest).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.format.batch_header import parse_header
from cordwood.format.record_batch import Record, build_batch, build_empty_batch
from cordwood.model.kafka_errors import InvalidProducerEpochError, OutOfOrderSequenceError
from cordwood.storage.log.log_context import LogContext
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from cordwood.testing.manual_clock import ManualClock
from support.log_under_test import (
    Producer,
    bases,
    batches_read,
    catch_up,
    fetch,
    follow,
    last_sequences,
    new_log,
    remove_snapshots,
    snapshot_offsets,
    state_of,
)
from support.stored_log import batch_of, put

PID = 1
NOW_MS = 1_700_000_000_000
#: A log is opened again in one of these ways.
Reopen = Callable[[PartitionLog, Path], PartitionLog]


def after_a_clean_stop(log: PartitionLog, root: Path) -> PartitionLog:
    log.close()
    return new_log(root)


def after_a_kill(log: PartitionLog, root: Path) -> PartitionLog:
    log.close_handlers()
    return new_log(root, clean=False)


either_way = pytest.mark.parametrize("reopen", [after_a_clean_stop, after_a_kill])


def put_of(
    log: PartitionLog, sequence: int, *values: bytes, epoch: int = 0
) -> tuple[int, int, bool]:
    """Appends a batch of the producer; (first offset, last offset, whether it was there)."""
    result = put(log, *values, key=b"key", producer=(PID, epoch, sequence))
    return result.first_offset, result.last_offset, result.is_duplicate


def refused(log: PartitionLog, sequence: int, *values: bytes, epoch: int = 0) -> str:
    """The text of the error that a batch out of sequence gets; nothing has changed."""
    before = state_of(log)
    with pytest.raises(OutOfOrderSequenceError) as error:
        put_of(log, sequence, *values, epoch=epoch)
    assert state_of(log) == before
    assert error.value.code == 45
    return str(error.value)


# ---- sequences


def test_a_sequence_that_leaves_a_gap_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put_of(log, 0, b"v")
    text = refused(log, 2, b"v")
    assert "2 (incoming seq. number), 0 (current end sequence number)" in text


def test_any_of_the_last_five_batches_sent_again_has_its_first_offsets(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for sequence in range(6):  # padding: offsets 0 to 5
        put_of(log, sequence, b"v")
    assert put_of(log, 6, b"a", b"b", b"c") == (6, 8, False)
    assert log.log_end_offset == 9
    size = log.size_bytes

    assert put_of(log, 6, b"a", b"b", b"c") == (6, 8, True)
    # The last five: sequences 6-8, 5, 4, 3, 2.
    for sequence in (5, 4, 3, 2):
        assert put_of(log, sequence, b"v") == (sequence, sequence, True)
    refused(log, 1, b"v")  # the sixth from the end
    refused(log, 0, b"v")
    refused(log, 7, b"b", b"c")  # part of the last
    refused(log, 6, b"a", b"b")
    refused(log, 5, b"v", b"a")  # two at once
    assert (log.log_end_offset, log.size_bytes) == (9, size)

    assert put_of(log, 9, b"v") == (9, 9, False)
    assert put_of(log, 9, b"v") == (9, 9, True)
    refused(log, 2, b"v")  # it has left the window
    assert log.log_end_offset == 10


def test_a_duplicate_says_the_timestamp_of_the_first_time(tmp_path: Path) -> None:
    clock = ManualClock()
    log = new_log(tmp_path, clock=clock)
    then = clock.now_ms()
    first = put(log, b"v", producer=(PID, 0, 0))
    clock.advance(1000)
    again = put(log, b"v", producer=(PID, 0, 0))
    assert again.max_timestamp == first.max_timestamp == then
    assert (again.record_count, again.size_bytes) == (0, 0)


def test_an_older_producer_epoch_is_fenced(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put_of(log, 0, b"v", epoch=1)
    before = state_of(log)
    with pytest.raises(InvalidProducerEpochError):
        put_of(log, 0, b"v", epoch=0)
    assert state_of(log) == before
    assert InvalidProducerEpochError.code == 47


def test_a_newer_producer_epoch_begins_at_sequence_0_and_forgets_older_batches(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    put_of(log, 0, b"v")
    put_of(log, 1, b"v")
    refused(log, 2, b"v", epoch=1)
    assert put_of(log, 0, b"v", epoch=1) == (2, 2, False)
    with pytest.raises(InvalidProducerEpochError):
        put_of(log, 1, b"v", epoch=0)
    assert last_sequences(log) == {PID: 0}


def test_a_producer_the_log_does_not_know_may_begin_with_any_sequence(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    assert put_of(log, 17, b"v", epoch=3) == (0, 0, False)
    refused(log, 19, b"v", epoch=3)
    assert put_of(log, 18, b"v", epoch=3) == (1, 1, False)


def test_sequences_wrap_around(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    last = (1 << 31) - 1
    put_of(log, last - 1, b"v", b"v")
    refused(log, 1, b"v")
    assert put_of(log, 0, b"v") == (2, 2, False)
    assert put_of(log, last - 1, b"v", b"v") == (0, 1, True)


def test_a_follower_takes_the_same_sequences_twice(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for offset in (0, 2):
        follow(log, batch_of(b"a", b"b", base_offset=offset, producer=(PID, 0, 0), leader_epoch=0))
    assert log.log_end_offset == 4


def test_a_follower_takes_sequences_with_gaps(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for offset, sequence in ((0, 5), (1, 100), (2, 7)):
        follow(log, batch_of(b"v", base_offset=offset, producer=(PID, 0, sequence), leader_epoch=0))
    assert last_sequences(log) == {PID: 7}


def test_what_follows_a_write_that_failed_may_be_sent_again(tmp_path: Path) -> None:
    log = new_log(tmp_path, max_message_bytes=100)
    put_of(log, 0, b"v")
    before = state_of(log)
    with pytest.raises(Exception, match="exceeds the maximum"):
        put_of(log, 1, bytes(100))
    assert state_of(log) == before
    assert put_of(log, 1, b"v") == (1, 1, False)


# ---- after a restart


@either_way
def test_duplicates_are_known_after_a_restart(tmp_path: Path, reopen: Reopen) -> None:
    log = new_log(tmp_path)
    put_of(log, 0, b"a", b"b")
    put_of(log, 2, b"c")
    log = reopen(log, tmp_path)
    assert put_of(log, 2, b"c") == (2, 2, True)
    refused(log, 4, b"e")
    assert put_of(log, 3, b"d") == (3, 3, False)


@either_way
@pytest.mark.parametrize("roll", [False, True])
def test_producers_of_several_segments_are_known_after_a_restart(
    tmp_path: Path, reopen: Reopen, roll: bool
) -> None:
    log = new_log(tmp_path)
    producers = [Producer(log, pid, transactional=False) for pid in range(5)]
    for number, producer in enumerate(producers):
        for _ in range(number + 1):
            producer.append(2)
        if roll:
            log.roll()
    before = log.producer_state.entries()
    log = reopen(log, tmp_path)
    assert log.producer_state.entries() == before
    assert last_sequences(log) == {0: 1, 1: 3, 2: 5, 3: 7, 4: 9}
    assert log.producer_state.map_end_offset == log.log_end_offset


def test_data_without_producers_moves_the_offset_of_the_next_snapshot(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"value", key=b"key")
    log.producer_state.take_snapshot()
    assert log.producer_state.snapshots.latest == 1
    assert snapshot_offsets(log.directory) == [1]


# ---- after a compaction


def four_records(*, kept: tuple[int, ...]) -> bytes:
    """A batch at 23 to 26, sequences 0 to 3, of which a compaction has left these records."""
    records = [Record(23 + n, NOW_MS, None, b"abcd"[n : n + 1]) for n in kept]
    return build_batch(
        records,
        base_offset=23,
        last_offset=26,
        producer_id=PID,
        producer_epoch=0,
        base_sequence=0,
        partition_leader_epoch=0,
    )


def test_a_partly_compacted_batch_tells_its_last_sequence(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    follow(log, four_records(kept=(0, 2)))
    assert last_sequences(log) == {PID: 3}
    assert log.log_end_offset == 27


def test_a_partly_compacted_batch_tells_its_last_sequence_after_a_truncation(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    follow(log, four_records(kept=(0, 2)))
    follow(log, batch_of(b"e", b"f", base_offset=27, leader_epoch=0))
    truncate_to(log, 27)
    assert last_sequences(log) == {PID: 3}


def emptied() -> bytes:
    """A batch at 23 and 24, sequences 0 and 1, of which a compaction has left the header."""
    whole = batch_of(b"a", b"b", key=b"key", base_offset=23, producer=(PID, 0, 0), leader_epoch=0)
    return build_empty_batch(parse_header(whole))


def test_an_emptied_batch_tells_its_last_sequence_after_a_truncation(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    follow(log, emptied())
    follow(log, batch_of(b"e", b"f", base_offset=25, leader_epoch=0))
    truncate_to(log, 25)
    assert last_sequences(log) == {PID: 1}


@either_way
@pytest.mark.parametrize(
    ("batch", "last"), [(four_records(kept=(0, 2)), 3), (emptied(), 1)], ids=["partly", "emptied"]
)
def test_compacted_batches_tell_their_last_sequence_after_a_restart(
    tmp_path: Path, reopen: Reopen, batch: bytes, last: int
) -> None:
    log = new_log(tmp_path)
    follow(log, batch)
    log = reopen(log, tmp_path)
    assert last_sequences(log) == {PID: last}
    assert [b.header.base_offset for b in batches_read(fetch(log, 0))] == [23]


# ---- after a truncation


def test_a_truncation_goes_back_to_the_snapshot_below_it(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, b"a")
    put(log, b"b")
    log.producer_state.take_snapshot()
    put(log, b"c")
    log.producer_state.take_snapshot()
    for offset, latest in ((2, 2), (1, 1), (0, None)):
        truncate_to(log, offset)
        assert log.producer_state.snapshots.latest == latest
        assert snapshot_offsets(log.directory) == ([latest] if latest else [])
        assert log.producer_state.map_end_offset == offset


def test_a_truncation_without_snapshots_reads_the_log_from_its_start(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put_of(log, 0, b"a")
    put_of(log, 1, b"b")
    remove_snapshots(log.directory)
    truncate_to(log, 1)
    assert last_sequences(log) == {PID: 0}


def test_producers_whose_batches_were_cut_off_are_forgotten(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    Producer(log, 1, transactional=False).append(3)
    Producer(log, 2, transactional=False).append(3)
    log.roll()
    Producer(log, 3, transactional=False).append(3)
    truncate_to(log, 6)
    assert last_sequences(log) == {1: 2, 2: 2}
    truncate_to(log, 3)
    assert last_sequences(log) == {1: 2}
    assert put(log, b"v", producer=(2, 0, 0)).first_offset == 3
    truncate_to(log, 2)  # inside the first batch, which goes wholly
    assert last_sequences(log) == {}
    assert all(offset <= 2 for offset in snapshot_offsets(log.directory))


def test_the_snapshot_of_a_roll_is_what_a_truncation_to_it_goes_back_to(tmp_path: Path) -> None:
    log = new_log(tmp_path, segment_bytes=1024)
    put(log, bytes(512), producer=(PID, 0, 0))
    put(log, bytes(512), producer=(PID, 0, 1))
    assert bases(log) == (0, 1)
    assert log.producer_state.snapshots.latest == 1

    truncate_to(log, 1)
    assert bases(log) == (0, 1)
    assert log.active.size_bytes == 0
    assert log.producer_state.snapshots.latest == 1
    entry = log.producer_state.last_entry(PID)
    assert entry is not None
    assert (entry.first_data_offset, entry.last_data_offset) == (0, 0)


def test_a_log_that_begins_anew_at_29_knows_no_producers_and_has_no_snapshots(
    tmp_path: Path,
) -> None:
    size = len(batch_of(b"foo", producer=(PID, 0, 0)))
    log = new_log(tmp_path, segment_bytes=size)
    put(log, b"foo", producer=(PID, 0, 0))
    log.producer_state.take_snapshot()
    put(log, b"bar")
    put(log, b"baz")
    log.producer_state.take_snapshot()
    assert len(log.segments) == 3
    assert log.producer_state.map_end_offset == 3
    assert log.producer_state.snapshots.latest == 3

    truncate_fully_and_start_at(log, 29)
    assert len(log.segments) == 1
    assert snapshot_offsets(log.directory) == []
    assert log.producer_state.map_end_offset == 29
    assert last_sequences(log) == {}


# ---- time


def test_a_silent_producer_is_forgotten_after_producer_id_expiration_ms(tmp_path: Path) -> None:
    clock = ManualClock()
    context = LogContext(clock=clock, producer_id_expiration_ms=200)
    log = new_log(tmp_path, context=context)
    put(log, b"foo", producer=(23, 0, 0))
    for known in ({23: 0}, {}):
        clock.advance(100)
        log.remove_expired_producers()
        assert last_sequences(log) == known


def test_a_producer_with_an_open_transaction_does_not_expire(tmp_path: Path) -> None:
    clock = ManualClock()
    context = LogContext(clock=clock, producer_id_expiration_ms=200, verify_transactions=False)
    log = new_log(tmp_path, context=context)
    put(log, b"foo", producer=(23, 0, 0), transactional=True)
    clock.advance(1000)
    log.remove_expired_producers()
    assert last_sequences(log) == {23: 0}


# ---- what a log has of producers


def test_active_producers_are_told_with_their_transactions(tmp_path: Path) -> None:
    log = new_log(tmp_path)

    def entry(producer_id: int) -> tuple[int, int, int | None, int]:
        found = log.producer_state.last_entry(producer_id)
        assert found is not None
        return (
            found.producer_epoch,
            found.last_sequence,
            found.current_txn_first_offset,
            found.coordinator_epoch,
        )

    producer = Producer(log, 1, epoch=5)
    producer.append(5)
    assert entry(1) == (5, 4, 0, -1)
    producer.end(commit=True, coordinator_epoch=15)
    assert entry(1) == (5, 4, None, 15)
    Producer(log, 2, epoch=5, transactional=False).append(3)
    assert entry(2) == (5, 2, None, -1)


def test_deleted_records_do_not_make_a_log_forget_their_producers(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    Producer(log, 1, transactional=False).append()
    log.roll()
    Producer(log, 2, transactional=False).append()
    log.roll()
    assert snapshot_offsets(log.directory) == [1, 2]
    catch_up(log)
    log.delete_records(2)
    assert last_sequences(log) == {1: 0, 2: 0}
