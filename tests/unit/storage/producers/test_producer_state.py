from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cordwood.format.batch_header import BatchHeader, parse_header
from cordwood.format.control_record import ControlType, EndTxnMarker, parse_end_txn_marker
from cordwood.format.crc32c import crc32c
from cordwood.format.producer_snapshot import (
    ProducerEntry,
    build_producer_snapshot,
    parse_producer_snapshot,
)
from cordwood.format.record_batch import RecordBatch, parse_batch
from cordwood.format.transaction_index import AbortedTransaction, build_transaction_index
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.producers.producer_entry import (
    BatchMetadata,
    CompletedTransaction,
    ProducerStateEntry,
)
from cordwood.storage.producers.producer_state import (
    LATE_TRANSACTION_BUFFER_MS,
    ProducerStateManager,
)

PARTITION = TopicPartition("test", 0)
PRODUCER = 1
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
TRANSACTION_TIMEOUT_MS = 5 * 60 * 1000
LATE_MS = TRANSACTION_TIMEOUT_MS + LATE_TRANSACTION_BUFFER_MS
SEQUENCE_MAX = (1 << 31) - 1

# One batch at 10..12 of producer 23, epoch 5, sequences 10..12; then its COMMIT at 13.
BATCH = bytes.fromhex(
    "000000000000000a0000005100000003022c27ee350000000000020000018bcfe568000000018bcfe5680a00"
    "0000000000001700050000000a000000031000000002610278000e000a02026201001c001404026300040268"
    "0231026e01"
)
COMMIT = bytes.fromhex(
    "000000000000000d000000420000000302094c37fb0030000000000000018bcfe568000000018bcfe5680000"
    "000000000000170005ffffffff000000012000000008000000010c00000000000700"
)
SNAPSHOT = bytes.fromhex(
    "0001b498073800000001000000000000001700050000000c000000000000000c000000020000018bcfe5680a"
    "ffffffffffffffffffffffff"
)


class Log:
    """Appends as a log does: checked, then taken note of, the map's end behind it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = self.reopened()

    def reopened(self) -> ProducerStateManager:
        """Another state of the same directory."""
        return ProducerStateManager(
            PARTITION, self.directory, max_transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

    def data(
        self,
        sequence: int,
        offset: int,
        *,
        epoch: int = 0,
        producer_id: int = PRODUCER,
        count: int = 1,
        transactional: bool = False,
        timestamp: int = NOW_MS,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> None:
        info = self.state.prepare_update(producer_id, origin)
        info.append(
            header(
                sequence,
                offset,
                epoch=epoch,
                producer_id=producer_id,
                count=count,
                transactional=transactional,
                timestamp=timestamp,
            )
        )
        self.state.update(info)
        self.state.update_map_end_offset(offset + count)

    def replicated(self, sequence: int, offset: int, *, epoch: int = 0) -> None:
        self.data(sequence, offset, epoch=epoch, origin=AppendOrigin.REPLICATION)

    def marker(
        self,
        offset: int,
        *,
        commit: bool,
        epoch: int = 0,
        producer_id: int = PRODUCER,
        coordinator_epoch: int = 0,
        timestamp: int = NOW_MS,
        origin: AppendOrigin = AppendOrigin.COORDINATOR,
        transaction_version: int = 0,
    ) -> CompletedTransaction | None:
        info = self.state.prepare_update(producer_id, origin)
        completed = info.append_end_txn_marker(
            marker(commit=commit, coordinator_epoch=coordinator_epoch),
            epoch,
            offset,
            timestamp,
            transaction_version=transaction_version,
        )
        self.state.update(info)
        if completed is not None:
            self.state.complete_transaction(completed)
        self.state.update_map_end_offset(offset + 1)
        return completed

    def entry(self, producer_id: int = PRODUCER) -> ProducerStateEntry:
        found = self.state.last_entry(producer_id)
        assert found is not None
        return found

    def snapshots(self) -> list[int]:
        """Offsets of snapshots, by the names in the directory."""
        return sorted(int(path.name.partition(".")[0]) for path in self.directory.iterdir())


def header(
    sequence: int,
    offset: int,
    *,
    epoch: int = 0,
    producer_id: int = PRODUCER,
    count: int = 1,
    transactional: bool = False,
    control: bool = False,
    timestamp: int = NOW_MS,
) -> BatchHeader:
    return BatchHeader(
        base_offset=offset,
        batch_length=60,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=0x10 * transactional | 0x20 * control,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        records_count=count,
    )


def marker(*, commit: bool, coordinator_epoch: int = 0) -> EndTxnMarker:
    return EndTxnMarker(
        control_type=ControlType.COMMIT if commit else ControlType.ABORT,
        version=0,
        coordinator_epoch=coordinator_epoch,
    )


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


# ---- sequences and epochs


def test_sequences_of_a_producer_follow_each_other_within_an_epoch(log: Log) -> None:
    log.data(0, 0)
    log.data(1, 1)
    with pytest.raises(OutOfOrderSequenceError):
        log.data(1, 1)
    with pytest.raises(OutOfOrderSequenceError):
        log.data(5, 2)
    log.data(0, 3, epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        log.data(0, 4, epoch=0)


def test_marker_of_an_unknown_producer_makes_it_known_without_a_batch(log: Log) -> None:
    log.marker(27, commit=True, epoch=2)
    entry = log.entry()
    assert (entry.producer_id, entry.producer_epoch) == (PRODUCER, 2)
    assert entry.is_empty
    assert entry.last_sequence == -1


def test_data_of_a_lower_epoch_than_a_marker_alone_is_refused(log: Log) -> None:
    log.marker(27, commit=True, epoch=2)
    with pytest.raises(
        InvalidProducerEpochError,
        match=r"^Epoch of producer 1 at offset 4 in test-0 is 0, "
        r"which is < the last seen epoch 2 \(TV-1\)$",
    ):
        log.data(0, 4, epoch=0)


def test_after_a_marker_alone_sequence_17_is_out_of_order_and_0_is_right(log: Log) -> None:
    log.marker(27, commit=True, epoch=2)
    with pytest.raises(
        OutOfOrderSequenceError,
        match=r"^Out of order sequence number for producer 1 at offset 4 in partition test-0: "
        r"17 \(incoming seq. number\), -1 \(current end sequence number\)$",
    ):
        log.data(17, 4, epoch=2)
    log.data(0, 39, epoch=2)
    assert log.entry().producer_epoch == 2
    assert log.entry().last_sequence == 0


def test_marker_of_a_lower_epoch_is_refused(log: Log) -> None:
    log.data(0, 99, epoch=5, transactional=True)
    with pytest.raises(InvalidProducerEpochError, match=r"is 3, which is < .* epoch 5 \(TV0\)$"):
        log.marker(100, commit=True, epoch=3)


def test_after_the_last_sequence_comes_0(log: Log) -> None:
    log.replicated(SEQUENCE_MAX, 735, epoch=15)
    log.data(0, 1235, epoch=15)
    assert log.entry().producer_epoch == 15
    assert log.entry().first_sequence == SEQUENCE_MAX
    assert log.entry().last_sequence == 0


def test_after_the_last_sequence_1_is_out_of_order(log: Log) -> None:
    log.replicated(SEQUENCE_MAX, 735, epoch=15)
    with pytest.raises(OutOfOrderSequenceError):
        log.data(1, 1235, epoch=15)


def test_one_batch_may_span_the_wrap_from_max_less_10_to_9(log: Log) -> None:
    info = log.state.prepare_update(PRODUCER, AppendOrigin.REPLICATION)
    info.append_data_batch(15, SEQUENCE_MAX - 10, 9, NOW_MS, 2000, 20, is_transactional=False)
    assert log.state.last_entry(PRODUCER) is None
    log.state.update(info)
    entry = log.entry()
    assert (entry.first_sequence, entry.last_sequence) == (SEQUENCE_MAX - 10, 9)
    assert (entry.first_data_offset, entry.last_data_offset) == (2000, 2020)


@pytest.mark.parametrize("origin", [AppendOrigin.REPLICATION, AppendOrigin.CLIENT])
def test_any_sequence_of_an_unknown_producer_is_accepted(log: Log, origin: AppendOrigin) -> None:
    log.data(16, 735, epoch=5, origin=origin)
    entry = log.entry()
    assert entry.producer_epoch == 5
    assert (entry.first_sequence, entry.last_sequence) == (16, 16)
    assert (entry.first_data_offset, entry.last_data_offset) == (735, 735)


def test_any_sequence_of_an_unknown_producer_is_accepted_when_a_log_is_loaded(log: Log) -> None:
    log.state.replay(header(16, 735, epoch=5))
    assert (log.entry().producer_epoch, log.entry().last_sequence) == (5, 16)


def test_a_new_epoch_of_a_known_producer_begins_at_0(log: Log) -> None:
    log.data(16, 735)
    with pytest.raises(
        OutOfOrderSequenceError,
        match=r"^Invalid sequence number for new epoch of producer 1 at offset 736 in partition "
        r"test-0: 1 \(request epoch\), 17 \(seq. number\), 0 \(current producer epoch\)$",
    ):
        log.data(17, 736, epoch=1)
    log.data(0, 736, epoch=1)
    assert log.entry().first_sequence == 0, "the window holds no batch of the epoch before"


def test_marker_of_a_bumped_epoch_clears_the_batches_and_the_next_sequence_is_0(
    log: Log,
) -> None:
    log.data(0, 0)
    log.marker(1, commit=False, epoch=1)
    entry = log.entry()
    assert entry.producer_epoch == 1
    assert entry.current_txn_first_offset is None
    assert (entry.first_sequence, entry.last_sequence) == (-1, -1)
    log.data(0, 2, epoch=1)
    assert log.entry().first_sequence == 0


def test_after_a_marker_of_a_bumped_epoch_sequence_2_is_out_of_order(log: Log) -> None:
    log.data(0, 0, transactional=True)
    log.data(1, 1, transactional=True)
    log.marker(1, commit=False, epoch=1)
    for epoch in (1, 2):
        with pytest.raises(OutOfOrderSequenceError):
            log.data(2, 2, epoch=epoch, transactional=True)
    log.data(0, 0, epoch=1, transactional=True)
    assert (log.entry().producer_epoch, log.entry().last_sequence) == (1, 0)


def test_abort_of_a_higher_epoch_fences_and_leaves_no_data(log: Log) -> None:
    log.data(0, 0, transactional=True)
    log.marker(1, commit=False, epoch=1)
    entry = log.entry()
    assert entry.current_txn_first_offset is None
    assert (entry.first_data_offset, entry.last_data_offset) == (-1, -1)
    log.state.remove_expired(NOW_MS)
    assert log.entry().producer_epoch == 1, "the epoch still fences"


def test_a_follower_accepts_gaps_of_sequences(log: Log) -> None:
    log.data(0, 0)
    with pytest.raises(OutOfOrderSequenceError):
        log.data(3, 1)
    assert log.entry().last_sequence == 0
    log.replicated(3, 1)
    assert log.entry().last_sequence == 3


def test_a_follower_accepts_a_lower_epoch_and_says_so(log: Log, tmp_path: Path) -> None:
    told: list[str] = []
    log.state = ProducerStateManager(PARTITION, tmp_path, on_warning=told.append)
    log.data(0, 0, epoch=4)
    log.replicated(0, 1, epoch=3)
    assert log.entry().producer_epoch == 3
    assert told == [
        "Epoch of producer 1 at offset 1 in test-0 is 3, which is < the last seen epoch 4 (TV-1)"
    ]


def test_sequences_of_a_coordinator_are_not_looked_at(log: Log) -> None:
    log.data(-1, 99, transactional=True, origin=AppendOrigin.COORDINATOR)
    log.data(-1, 100, transactional=True, origin=AppendOrigin.COORDINATOR)
    assert log.entry().last_data_offset == 100


def test_prepared_batches_change_nothing_before_the_update(log: Log) -> None:
    first = log.state.prepare_update(PRODUCER, AppendOrigin.CLIENT)
    first.append_data_batch(0, 0, 5, NOW_MS, 15, 5, is_transactional=False)
    assert log.state.last_entry(PRODUCER) is None
    log.state.update(first)
    second = log.state.prepare_update(PRODUCER, AppendOrigin.CLIENT)
    second.append_data_batch(0, 6, 10, NOW_MS, 26, 4, is_transactional=False)
    entry = log.entry()
    assert (entry.first_sequence, entry.last_sequence, entry.last_data_offset) == (0, 5, 20)
    log.state.update(second)
    entry = log.entry()
    assert (entry.first_sequence, entry.last_sequence, entry.last_data_offset) == (0, 10, 30)


# ---- duplicates


def test_each_of_the_last_five_batches_is_known_again_with_its_offsets(log: Log) -> None:
    for number in range(7):
        log.data(3 * number, 10 * number, count=3)
    for number in range(2, 7):
        found = log.state.find_duplicate(header(3 * number, -1, count=3))
        assert found is not None
        assert (found.first_offset, found.last_offset) == (10 * number, 10 * number + 2)
        assert found.timestamp == NOW_MS


def test_the_sixth_oldest_batch_is_out_of_order(log: Log) -> None:
    for number in range(6):
        log.data(3 * number, 10 * number, count=3)
    assert log.state.find_duplicate(header(0, -1, count=3)) is None
    with pytest.raises(OutOfOrderSequenceError):
        log.data(0, 60, count=3)


@pytest.mark.parametrize(("sequence", "count"), [(3, 2), (4, 2), (4, 3), (2, 4), (3, 4)])
def test_a_partial_overlap_is_no_duplicate_but_out_of_order(
    log: Log, sequence: int, count: int
) -> None:
    log.data(0, 0, count=3)
    log.data(3, 3, count=3)
    assert log.state.find_duplicate(header(sequence, -1, count=count)) is None
    with pytest.raises(OutOfOrderSequenceError):
        log.data(sequence, 6, count=count)


def test_a_duplicate_of_an_older_epoch_is_refused_by_its_epoch(log: Log) -> None:
    log.data(0, 0)
    log.data(0, 1, epoch=1)
    assert log.state.find_duplicate(header(0, -1)) is None
    with pytest.raises(InvalidProducerEpochError):
        log.data(0, 2)


def test_no_batch_of_an_unknown_producer_is_a_duplicate(log: Log) -> None:
    log.data(0, 0)
    assert log.state.find_duplicate(header(0, -1, producer_id=2)) is None


def test_a_follower_appends_duplicates_unchecked(log: Log) -> None:
    log.replicated(0, 0)
    log.replicated(0, 1)
    assert log.entry().last_data_offset == 1
    assert len(log.entry().batches) == 2


def test_a_duplicate_whose_sequences_wrap_is_known_again(log: Log) -> None:
    log.data(SEQUENCE_MAX - 1, 5, count=4)
    found = log.state.find_duplicate(header(SEQUENCE_MAX - 1, -1, count=4))
    assert found is not None
    assert (found.first_offset, found.last_offset, found.last_sequence) == (5, 8, 1)


# ---- transactions


def test_a_transaction_from_16_to_40(log: Log) -> None:
    log.data(0, 9)
    info = log.state.prepare_update(PRODUCER, AppendOrigin.CLIENT)
    info.append(header(1, 16, count=5, transactional=True))
    entry = info.entry
    assert (entry.first_sequence, entry.last_sequence) == (1, 5)
    assert (entry.first_data_offset, entry.last_data_offset) == (16, 20)
    open_since = [entry.current_txn_first_offset]
    info.append(header(6, 26, count=5, transactional=True))
    assert (entry.first_sequence, entry.last_sequence) == (1, 10)
    assert (entry.first_data_offset, entry.last_data_offset) == (16, 30)
    open_since.append(entry.current_txn_first_offset)
    control = header(-1, 40, transactional=True, control=True)
    completed = info.append(control, marker(commit=True, coordinator_epoch=15))
    assert completed == CompletedTransaction(PRODUCER, 16, 40, is_aborted=False)
    assert [*open_since, entry.current_txn_first_offset] == [16, 16, None]
    assert (entry.first_sequence, entry.last_sequence) == (1, 10), "the batches stay"
    assert (entry.first_data_offset, entry.last_data_offset) == (16, 30)
    assert entry.coordinator_epoch == 15
    assert [(t.producer_id, t.first_offset) for t in info.started_transactions] == [(1, 16)]


def test_other_data_inside_an_open_transaction_is_refused(log: Log) -> None:
    log.data(0, 0, transactional=True)
    with pytest.raises(
        InvalidTxnStateError,
        match=r"^Expected transactional write from producer 1 at offset "
        r"\(offset=1, segment=\[-1:-1\]\) in partition test-0$",
    ):
        log.data(1, 1)


def test_a_transaction_is_late_after_the_longest_timeout_and_five_minutes(log: Log) -> None:
    log.data(0, 100, producer_id=39, epoch=2, transactional=True)
    assert not log.state.has_late_transaction(NOW_MS)
    log.data(0, 150, producer_id=57, epoch=9, transactional=True, timestamp=NOW_MS + 500)
    assert not log.state.has_late_transaction(NOW_MS + 500)
    assert not log.state.has_late_transaction(NOW_MS + LATE_MS)
    assert log.state.has_late_transaction(NOW_MS + LATE_MS + 1), "the first of them"
    later = NOW_MS + LATE_MS + 501
    log.marker(200, commit=True, producer_id=39, epoch=2, timestamp=later)
    assert log.state.has_late_transaction(later), "the second"
    log.marker(250, commit=True, producer_id=57, epoch=9, timestamp=later)
    assert not log.state.has_late_transaction(later)


def test_a_late_transaction_is_still_late_after_a_reload(log: Log) -> None:
    log.data(0, 100, producer_id=39, epoch=2, transactional=True)
    log.data(0, 150, producer_id=57, epoch=9, transactional=True, timestamp=NOW_MS + 500)
    log.state.take_snapshot()
    state = log.reopened()
    later = NOW_MS + LATE_MS + 1
    assert not state.has_late_transaction(later)
    state.truncate_and_reload(0, log.state.map_end_offset, later)
    assert state.has_late_transaction(later)


@pytest.mark.parametrize("fully", [False, True])
def test_a_late_transaction_goes_with_a_truncation(log: Log, *, fully: bool) -> None:
    log.data(0, 100, producer_id=39, epoch=2, transactional=True)
    later = NOW_MS + LATE_MS + 1
    assert log.state.has_late_transaction(later)
    if fully:
        log.state.truncate_fully_and_start_at(150)
    else:
        log.state.truncate_and_reload(0, 80, later)
    assert not log.state.has_late_transaction(later)


def test_first_unstable_offset_99_then_105_as_the_high_watermark_passes(log: Log) -> None:
    def offsets() -> tuple[int | None, int | None]:
        return log.state.first_undecided_offset, log.state.first_unstable_offset

    assert offsets() == (None, None)
    log.data(0, 99, epoch=5, transactional=True)
    assert offsets() == (99, 99)
    log.data(0, 105, epoch=5, producer_id=2, transactional=True)
    assert offsets() == (99, 99)
    log.marker(109, commit=True, epoch=5)
    assert offsets() == (105, 99)
    log.state.on_high_watermark_updated(100)
    assert offsets() == (105, 99)
    log.state.on_high_watermark_updated(109)
    assert offsets() == (105, 99), "the marker at 109 is not below 109"
    log.state.on_high_watermark_updated(110)
    assert offsets() == (105, 105)
    log.marker(112, commit=False, epoch=5, producer_id=2)
    assert offsets() == (None, 105)
    log.state.on_high_watermark_updated(113)
    assert offsets() == (None, None)


def test_first_unstable_offset_after_truncations(log: Log) -> None:
    log.data(0, 99, transactional=True)
    assert log.state.first_unstable_offset == 99
    log.state.take_snapshot()
    log.marker(105, commit=True)
    log.state.on_high_watermark_updated(106)
    unstable = [log.state.first_unstable_offset]
    log.state.take_snapshot()
    log.data(1, 106)
    log.state.truncate_and_reload(0, 106, NOW_MS)
    unstable.append(log.state.first_unstable_offset)
    log.state.truncate_and_reload(0, 100, NOW_MS)
    unstable.append(log.state.first_unstable_offset)
    assert unstable == [None, None, 99]


def test_last_stable_offset_of_three_interleaved_transactions(log: Log) -> None:
    first, second, third = 992342, 992342 + 25, 992342 + 57
    for producer_id, offset in ((1, first), (2, second), (3, third)):
        log.data(0, offset, producer_id=producer_id, transactional=True)
    unstable = []
    stable = []
    for producer_id, begin, end in (
        (1, first, third + 15),
        (3, third, third + 35),
        (2, second, third + 113),
    ):
        completed = CompletedTransaction(producer_id, begin, end, is_aborted=False)
        stable.append(log.state.last_stable_offset(completed))
        log.state.complete_transaction(completed)
        log.state.on_high_watermark_updated(end + 1)
        unstable.append(log.state.first_unstable_offset)
    assert stable == [second, second, third + 114]
    assert unstable == [second, second, None]


def test_transactions_without_data_are_not_completed_ones(log: Log) -> None:
    def mark(offset: int, *, commit: bool) -> CompletedTransaction | None:
        control = header(-1, offset, transactional=True, control=True)
        return second.append(control, marker(commit=commit, coordinator_epoch=27))

    first = log.state.prepare_update(PRODUCER, AppendOrigin.CLIENT)
    first.append(header(0, 16, count=5, transactional=True))
    assert [t.first_offset for t in first.started_transactions] == [16]
    log.state.update(first)
    log.state.on_high_watermark_updated(21)
    assert log.state.first_unstable_offset == 16

    second = log.state.prepare_update(PRODUCER, AppendOrigin.CLIENT)
    ended = [mark(21, commit=True), mark(22, commit=True), mark(23, commit=False)]
    second.append(header(5, 24, count=4, transactional=True))
    ended += [mark(28, commit=False), mark(29, commit=False)]
    second.append(header(9, 30, count=2, transactional=True))
    old = CompletedTransaction(PRODUCER, 16, 21, is_aborted=False)
    whole = CompletedTransaction(PRODUCER, 24, 28, is_aborted=True)
    assert ended == [old, None, None, whole, None]
    assert [t.first_offset for t in second.started_transactions] == [24, 30]
    log.state.update(second)
    log.state.complete_transaction(old)
    log.state.complete_transaction(whole)
    log.state.on_high_watermark_updated(32)
    assert log.state.first_unstable_offset == 30


def test_the_end_of_a_transaction_that_was_never_begun_is_refused(log: Log) -> None:
    with pytest.raises(InvalidTxnStateError, match=r"on partition test-0 which was not started$"):
        log.state.complete_transaction(CompletedTransaction(1, 5, 9, is_aborted=False))


def test_an_empty_control_batch_ends_nothing(log: Log) -> None:
    log.data(0, 10, transactional=True)
    info = log.state.prepare_update(PRODUCER, AppendOrigin.CLIENT)
    empty = header(-1, 15, transactional=True, control=True)._replace(records_count=0)
    assert info.append(empty, None) is None
    log.state.update(info)
    assert log.state.first_undecided_offset == 10


def test_an_empty_control_batch_of_an_unknown_producer_begins_no_transaction(log: Log) -> None:
    empty = header(-1, 15, producer_id=23423, transactional=True, control=True)
    log.state.replay(empty, None)
    assert log.entry(23423).current_txn_first_offset is None
    assert log.state.map_end_offset == 16


# ---- coordinators


def test_coordinator_epochs_1_1_2_are_right_and_1_then_is_fenced(log: Log) -> None:
    log.data(0, 99, epoch=5, transactional=True)
    for offset, coordinator_epoch in ((100, 1), (101, 1), (102, 2)):
        log.marker(offset, commit=True, epoch=5, coordinator_epoch=coordinator_epoch)
        assert log.entry().coordinator_epoch == coordinator_epoch
    with pytest.raises(
        TransactionCoordinatorFencedError,
        match=r"^Invalid coordinator epoch for producerId 1 at offset 103 in partition test-0: "
        r"1 \(zombie\), 2 \(current\)$",
    ):
        log.marker(103, commit=True, epoch=5, coordinator_epoch=1)


def test_a_fenced_coordinator_stays_fenced_after_a_reload(log: Log) -> None:
    log.data(0, 99, transactional=True)
    log.marker(100, commit=True, coordinator_epoch=1)
    log.state.take_snapshot()
    log.state = log.reopened()
    log.state.truncate_and_reload(0, 101, NOW_MS)
    with pytest.raises(TransactionCoordinatorFencedError):
        log.marker(101, commit=True, coordinator_epoch=0)


def test_a_follower_accepts_a_marker_of_a_fenced_coordinator(log: Log) -> None:
    log.marker(100, commit=True, coordinator_epoch=2)
    log.marker(101, commit=True, coordinator_epoch=1, origin=AppendOrigin.REPLICATION)
    assert log.entry().coordinator_epoch == 1


# ---- epochs of markers where each transaction has its own (transaction version 2)


def test_a_marker_of_version_2_needs_a_higher_epoch_while_a_transaction_is_open(log: Log) -> None:
    log.data(0, 0, epoch=5, transactional=True)
    with pytest.raises(
        InvalidProducerEpochError, match=r"is 5, which is <= the last seen epoch 5 \(TV2\)$"
    ):
        log.marker(1, commit=True, epoch=5, transaction_version=2)
    completed = log.marker(1, commit=True, epoch=6, transaction_version=2)
    assert completed == CompletedTransaction(1, 0, 1, is_aborted=False)
    assert log.entry().producer_epoch == 6


def test_a_marker_of_version_2_may_come_again_when_its_transaction_is_over(log: Log) -> None:
    log.data(0, 0, epoch=5, transactional=True)
    log.marker(1, commit=True, epoch=6, transaction_version=2)
    assert log.marker(2, commit=True, epoch=6, transaction_version=2) is None
    with pytest.raises(InvalidProducerEpochError):
        log.marker(3, commit=True, epoch=5, transaction_version=2)


def test_the_last_epoch_of_all_ends_its_own_transaction(log: Log) -> None:
    log.data(0, 0, epoch=32767, transactional=True)
    completed = log.marker(1, commit=False, epoch=32767, transaction_version=2)
    assert completed == CompletedTransaction(1, 0, 1, is_aborted=True)


def test_a_follower_takes_a_marker_of_version_2_as_it_comes(log: Log) -> None:
    log.data(0, 0, epoch=5, transactional=True)
    completed = log.marker(
        1, commit=True, epoch=5, transaction_version=2, origin=AppendOrigin.REPLICATION
    )
    assert completed is not None


# ---- expiry


def test_a_producer_expires_after_producer_id_expiration_ms(log: Log) -> None:
    log.data(0, 1, epoch=5)
    log.state.remove_expired(NOW_MS + DAY_MS - 1)
    assert log.state.producer_count == 1
    log.state.remove_expired(NOW_MS + DAY_MS)
    assert log.state.producer_count == 0
    log.data(1, 2, epoch=5, timestamp=NOW_MS + DAY_MS)
    assert log.entry().last_sequence == 1
    assert log.state.map_end_offset == 3


def test_a_producer_with_an_open_transaction_never_expires(log: Log) -> None:
    log.data(0, 99, epoch=5, transactional=True)
    for days in (1, 2, 1000):
        log.state.remove_expired(NOW_MS + days * DAY_MS)
        assert log.state.first_undecided_offset == 99
        assert log.entry().last_sequence == 0


def test_old_records_expire_at_once_whenever_they_were_written(log: Log) -> None:
    log.data(0, 1, timestamp=NOW_MS - DAY_MS)
    log.state.remove_expired(NOW_MS)
    assert log.state.is_empty


def test_producers_that_have_expired_are_not_reloaded(log: Log) -> None:
    log.data(0, 0, timestamp=0)
    log.data(1, 1, timestamp=1)
    log.state.take_snapshot()
    log.state = log.reopened()
    log.state.truncate_and_reload(0, 2, 1 + DAY_MS)
    assert log.state.producer_count == 0
    log.data(2, 2, timestamp=70001)
    assert log.state.producer_count == 1
    assert log.entry().last_sequence == 2
    assert log.state.map_end_offset == 3


def test_a_follower_goes_on_with_a_producer_that_has_expired(log: Log) -> None:
    log.data(0, 0, timestamp=0)
    log.state.take_snapshot()
    log.state = log.reopened()
    log.state.truncate_and_reload(0, 1, DAY_MS)
    assert PRODUCER not in log.state.active_producers
    log.replicated(2, 2)
    assert log.state.active_producers[PRODUCER].first_sequence == 2


def test_producers_that_have_not_expired_are_reloaded(log: Log) -> None:
    log.data(0, 0, producer_id=1)
    log.data(0, 1, producer_id=2)
    log.state.take_snapshot()
    log.state = log.reopened()
    log.state.truncate_and_reload(1, 2, NOW_MS)
    assert log.state.producer_count == 2
    for producer_id, offset in ((1, 0), (2, 1)):
        entry = log.entry(producer_id)
        assert (entry.last_sequence, entry.last_data_offset) == (0, offset)


# ---- snapshots


def test_the_batch_at_10_to_12_gives_the_known_snapshot_at_13(tmp_path: Path) -> None:
    state = ProducerStateManager(PARTITION, tmp_path)
    state.replay(parse_header(BATCH))
    path = state.take_snapshot()
    assert path == tmp_path / "00000000000000000013.snapshot"
    assert path.read_bytes() == SNAPSHOT


def test_its_commit_at_13_leaves_the_batch_and_sets_the_coordinator_epoch(tmp_path: Path) -> None:
    state = ProducerStateManager(PARTITION, tmp_path)
    state.replay(parse_header(BATCH))
    batch = parse_batch(COMMIT)
    assert isinstance(batch, RecordBatch)
    record = batch.records()[0]
    assert state.replay(batch.header, parse_end_txn_marker(record.key, record.value)) is None
    assert state.entries() == [
        replace(parse_producer_snapshot(SNAPSHOT)[0], timestamp=NOW_MS, coordinator_epoch=7)
    ]
    assert state.map_end_offset == 14


def test_an_abort_at_13_gives_the_known_entry_of_the_transaction_index(tmp_path: Path) -> None:
    state = ProducerStateManager(PARTITION, tmp_path)
    state.replay(header(10, 10, epoch=5, producer_id=23, count=3, transactional=True))
    control = header(-1, 13, epoch=5, producer_id=23, transactional=True, control=True)
    completed = state.replay(control, marker(commit=False, coordinator_epoch=7))
    assert completed == CompletedTransaction(23, 10, 13, is_aborted=True)
    entry = AbortedTransaction(
        producer_id=completed.producer_id,
        first_offset=completed.first_offset,
        last_offset=completed.last_offset,
        last_stable_offset=state.last_stable_offset(completed),
    )
    assert build_transaction_index([entry]) == bytes.fromhex(
        "00000000000000000017000000000000000a000000000000000d000000000000000e"
    )


def test_a_snapshot_is_one_file_that_is_not_empty(log: Log) -> None:
    log.data(0, 0, timestamp=0)
    log.data(1, 1, timestamp=1)
    log.state.take_snapshot()
    (path,) = log.directory.iterdir()
    assert path.name == "00000000000000000002.snapshot"
    assert path.stat().st_size == 56


@pytest.mark.parametrize("sync", [True, False])
def test_no_snapshot_is_taken_when_nothing_has_changed(log: Log, *, sync: bool) -> None:
    log.data(0, 0)
    assert log.state.take_snapshot(sync=sync) is not None
    assert log.snapshots() == [1]
    assert log.state.take_snapshot(sync=sync) is None
    assert log.snapshots() == [1]
    log.state.snapshots.sync(1)
    log.state.snapshots.sync(2)
    assert log.snapshots() == [1]


def test_entries_come_in_the_order_of_a_hash_map(log: Log) -> None:
    for offset, producer_id in enumerate([40, 33, 17, 1, 16]):
        log.data(0, offset, producer_id=producer_id)
    assert [entry.producer_id for entry in log.state.entries()] == [16, 33, 17, 1, 40]
    log.state.take_snapshot()
    log.state = log.reopened()
    log.state.truncate_and_reload(0, 5, NOW_MS)
    log.data(1, 5, producer_id=33)
    log.data(0, 6, producer_id=49)
    assert [entry.producer_id for entry in log.state.entries()] == [16, 33, 17, 1, 49, 40]
    assert list(log.state.active_producers) == [16, 33, 17, 1, 49, 40]


def test_a_table_that_has_grown_keeps_its_order_when_producers_expire(log: Log) -> None:
    for offset in range(13):
        log.data(0, offset, producer_id=14 + offset, timestamp=NOW_MS - DAY_MS * (offset > 1))
    log.data(0, 13, producer_id=16, epoch=1)
    log.state.remove_expired(NOW_MS)
    assert [entry.producer_id for entry in log.state.entries()] == [14, 15, 16]
    log.state.take_snapshot()
    log.state = log.reopened()
    log.state.truncate_and_reload(0, 14, NOW_MS)
    assert [entry.producer_id for entry in log.state.entries()] == [16, 14, 15]


def test_reload_with_an_unfinished_transaction_from_0(log: Log) -> None:
    log.data(0, 0, transactional=True)
    log.data(1, 1, transactional=True)
    log.state.take_snapshot()
    log.state = log.reopened()
    log.state.truncate_and_reload(0, 3, NOW_MS)
    entry = log.entry()
    assert (entry.first_data_offset, entry.last_data_offset) == (1, 1), "the last batch alone"
    assert (entry.first_sequence, entry.last_sequence) == (1, 1)
    assert entry.current_txn_first_offset == 0
    assert log.state.first_unstable_offset == 0
    log.data(2, 2, transactional=True)
    assert log.entry().last_sequence == 2


def test_reload_with_a_finished_transaction(log: Log) -> None:
    log.data(0, 0, transactional=True)
    log.data(1, 1, transactional=True)
    log.marker(2, commit=False)
    log.state.take_snapshot()
    log.state = log.reopened()
    log.state.truncate_and_reload(0, 3, NOW_MS)
    entry = log.entry()
    assert (entry.first_data_offset, entry.last_data_offset) == (1, 1)
    assert (entry.first_sequence, entry.last_sequence) == (1, 1)
    assert entry.current_txn_first_offset is None
    assert log.state.first_unstable_offset is None


def test_reload_with_an_empty_transaction(log: Log) -> None:
    log.marker(0, commit=False)
    log.state.take_snapshot()
    log.state = log.reopened()
    log.state.truncate_and_reload(0, 1, NOW_MS)
    assert log.entry().last_timestamp == NOW_MS
    assert log.entry().current_txn_first_offset is None
    assert log.entry().is_empty


def five_snapshots(log: Log) -> None:
    for offset in range(5):
        log.data(offset, offset)
        log.state.take_snapshot()
    assert log.snapshots() == [1, 2, 3, 4, 5]


def test_truncate_and_reload_1_3_keeps_snapshots_2_and_3(log: Log) -> None:
    five_snapshots(log)
    log.state.truncate_and_reload(1, 3, NOW_MS)
    assert log.state.snapshots.oldest == 2
    assert log.state.snapshots.latest == 3
    assert log.state.snapshots.offsets == [2, 3]
    assert log.snapshots() == [2, 3]
    assert log.entry().last_sequence == 2, "what came behind 3 is forgotten"
    assert log.state.map_end_offset == 3


def test_truncate_and_reload_at_the_very_end_keeps_what_is_known(log: Log) -> None:
    five_snapshots(log)
    log.state.truncate_and_reload(2, 5, NOW_MS)
    assert log.snapshots() == [3, 4, 5]
    assert len(log.entry().batches) == 5, "nothing was read"


def test_truncate_and_reload_forgets_producers_that_came_later(log: Log) -> None:
    log.data(0, 0)
    log.state.take_snapshot()
    log.data(0, 1, producer_id=2, transactional=True)
    log.state.take_snapshot()
    log.state.truncate_and_reload(0, 1, NOW_MS)
    assert list(log.state.active_producers) == [PRODUCER]
    assert log.state.first_unstable_offset is None
    assert log.snapshots() == [1]


def test_truncate_and_reload_without_a_snapshot_begins_at_the_log_start(log: Log) -> None:
    log.data(0, 10)
    log.state.truncate_and_reload(5, 8, NOW_MS)
    assert log.state.is_empty
    assert log.state.map_end_offset == 5
    assert log.state.take_snapshot() is None


def test_truncate_fully_removes_all_snapshots(log: Log) -> None:
    log.data(0, 0)
    log.data(1, 1)
    log.state.take_snapshot()
    log.data(2, 2)
    log.state.take_snapshot()
    assert log.snapshots() == [2, 3]
    log.state.truncate_fully_and_start_at(0)
    assert log.snapshots() == []
    assert log.state.is_empty
    log.data(0, 0)
    log.state.take_snapshot()
    assert log.snapshots() == [1]


def test_snapshots_before_an_offset_are_deleted(log: Log) -> None:
    log.data(0, 0)
    log.data(1, 1)
    log.state.take_snapshot()
    log.data(2, 2)
    log.state.take_snapshot()
    assert log.snapshots() == [2, 3]
    log.state.snapshots.remove_before(3)
    assert log.snapshots() == [3]
    log.state.snapshots.remove_before(4)
    assert log.snapshots() == []


def test_a_raised_log_start_keeps_producers_and_moves_the_ends(log: Log) -> None:
    log.data(0, 0, transactional=True)
    log.marker(1, commit=True)
    unstable = [log.state.first_unstable_offset]
    log.state.on_log_start_offset_incremented(10)
    unstable.append(log.state.first_unstable_offset)
    assert unstable == [0, None]
    assert log.state.map_end_offset == 10
    assert log.entry().last_sequence == 0
    assert log.state.take_snapshot() is None, "the log start counts as taken"


def _empty(data: bytes) -> bytes:
    return data[:0]


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _zeroed(data: bytes) -> bytes:
    return bytes(37) + data[37:]


def _flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def _of_version_2(data: bytes) -> bytes:
    return b"\0\2" + data[2:]


def _cut_count(data: bytes) -> bytes:
    body = struct.pack(">i", 7)
    return struct.pack(">hI", 1, crc32c(body)) + body


@pytest.mark.parametrize("damage", [_empty, _half, _zeroed, _flipped, _of_version_2, _cut_count])
def test_a_damaged_snapshot_is_deleted_and_the_one_before_used(
    log: Log, damage: Callable[[bytes], bytes]
) -> None:
    log.data(0, 0)
    log.state.take_snapshot()
    log.data(1, 1)
    damaged = log.state.take_snapshot()
    assert damaged is not None
    damaged.write_bytes(damage(damaged.read_bytes()))
    told: list[str] = []
    log.state = ProducerStateManager(PARTITION, log.directory, on_warning=told.append)
    log.state.truncate_and_reload(0, 20, NOW_MS)
    assert not damaged.exists()
    assert log.entry().last_data_offset == 0
    assert log.state.map_end_offset == 1
    assert len(told) == 1
    assert told[0].startswith(f"Failed to load producer snapshot from '{damaged}': ")


def test_when_every_snapshot_is_damaged_the_log_is_read_from_its_start(log: Log) -> None:
    five_snapshots(log)
    for path in log.directory.iterdir():
        path.write_bytes(b"")
    log.state = log.reopened()
    log.state.truncate_and_reload(0, 5, NOW_MS)
    assert log.snapshots() == []
    assert log.state.map_end_offset == 0
    assert log.state.is_empty


def files(directory: Path, *offsets: int) -> None:
    for offset in offsets:
        (directory / f"{offset:020d}.snapshot").write_bytes(b"")


def test_stray_snapshots_of_2_5_42_with_base_5_leave_5_and_42(log: Log) -> None:
    files(log.directory, 5, 2, 42)
    log.state.snapshots.remove_stray([5])
    assert log.state.snapshots.latest == 42
    assert log.state.snapshots.oldest == 5
    assert log.snapshots() == [5, 42]


def test_stray_snapshots_of_2_5_42_with_base_42_leave_42(log: Log) -> None:
    files(log.directory, 5, 2, 42)
    log.state.snapshots.remove_stray([42])
    assert log.snapshots() == [42]
    assert log.state.snapshots.offsets == [42]


def test_a_stray_snapshot_42_behind_the_last_base_is_kept_and_the_older_ones_go(log: Log) -> None:
    files(log.directory, 3, 7, 9, 42)
    log.state.snapshots.remove_stray([0, 7])
    assert log.snapshots() == [7, 42]


def test_a_snapshot_marked_for_deletion_is_renamed(tmp_path: Path) -> None:
    files(tmp_path, 5)
    log = Log(tmp_path)
    assert log.state.snapshots.latest == 5
    marked = log.state.snapshots.mark_for_deletion(5)
    assert marked == tmp_path / "00000000000000000005.snapshot.deleted"
    assert [path.name for path in tmp_path.iterdir()] == [marked.name]
    assert log.state.snapshots.offsets == []
    assert log.state.snapshots.mark_for_deletion(5) is None


def test_a_snapshot_somebody_else_has_deleted_is_not_marked(tmp_path: Path) -> None:
    files(tmp_path, 5)
    log = Log(tmp_path)
    (tmp_path / "00000000000000000005.snapshot").unlink()
    assert log.state.snapshots.mark_for_deletion(5) is None
    assert log.state.snapshots.latest is None


def test_snapshots_go_where_the_directory_goes(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    log = Log(old)
    log.data(0, 0)
    log.state.take_snapshot()
    old.rename(new)
    log.state.snapshots.move_to(new)
    log.data(1, 1)
    assert log.state.take_snapshot() == new / "00000000000000000002.snapshot"
    assert log.state.snapshots.mark_for_deletion(1) is not None


def test_written_entries_are_read_back(log: Log) -> None:
    entries = [
        ProducerEntry(
            producer_id=1,
            producer_epoch=2,
            coordinator_epoch=3,
            last_sequence=1,
            last_offset=2,
            offset_delta=3,
            current_txn_first_offset=100,
        ),
        ProducerEntry(producer_id=11, producer_epoch=12, coordinator_epoch=13, timestamp=NOW_MS),
    ]
    path = log.directory / "00000000000000000200.snapshot"
    path.write_bytes(build_producer_snapshot(entries))
    log.state = log.reopened()
    log.state.truncate_and_reload(0, 200, NOW_MS)
    assert log.state.entries() == entries
    assert log.entry(1).batches == (BatchMetadata(1, 2, 3, -1),)
    assert log.entry(1).first_sequence == SEQUENCE_MAX - 1
    assert log.entry(11).batches == ()
    assert log.state.first_undecided_offset == 100


# ---- loading


def test_a_log_loaded_batch_by_batch_or_segment_by_segment_is_the_same(tmp_path: Path) -> None:
    batches: list[tuple[BatchHeader, EndTxnMarker | None]] = []
    for offset in range(0, 120, 4):
        producer_id = 1 + offset // 4 % 5
        sequence = offset // 20
        if offset % 24 == 8:
            control = header(-1, offset, producer_id=producer_id, transactional=True, control=True)
            batches.append((control, marker(commit=offset % 48 == 8)))
        else:
            batches.append(
                (
                    header(sequence, offset, producer_id=producer_id, transactional=True),
                    None,
                )
            )
    one, other = (ProducerStateManager(PARTITION, tmp_path) for _ in range(2))
    for batch, end in batches:
        completed = one.replay(batch, end)
        if completed is not None:
            one.complete_transaction(completed)
    other.replay_all(batches)
    assert one.entries() == other.entries()
    assert one.first_undecided_offset == other.first_undecided_offset
    assert one.first_unstable_offset == other.first_unstable_offset
    for producer_id, entry in one.active_producers.items():
        assert entry.batches == other.active_producers[producer_id].batches


def test_new_producers_of_one_segment_come_in_the_order_of_kafkas_loader(tmp_path: Path) -> None:
    state = ProducerStateManager(PARTITION, tmp_path)
    headers = [header(0, offset, producer_id=pid) for offset, pid in enumerate([16, 32, 48])]
    state.replay_all((one, None) for one in headers)
    assert [entry.producer_id for entry in state.entries()] == [48, 32, 16]


def test_a_batch_without_producer_moves_the_end_alone(tmp_path: Path) -> None:
    state = ProducerStateManager(PARTITION, tmp_path)
    assert state.replay(header(-1, 5, producer_id=-1, epoch=-1, count=3)) is None
    assert state.is_empty
    assert state.map_end_offset == 8


def test_a_state_is_not_empty_while_a_transaction_is_not_replicated(log: Log) -> None:
    log.data(0, 0, transactional=True, timestamp=0)
    log.marker(1, commit=True, timestamp=0)
    log.state.remove_expired(DAY_MS)
    empty = [log.state.is_empty]
    log.state.on_high_watermark_updated(2)
    assert [*empty, log.state.is_empty] == [False, True]
