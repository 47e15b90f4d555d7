"""Transactions in a log: what is unstable, what was aborted, who may write (UnifiedLogTest)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.format.transaction_index import AbortedTransaction
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    StorageError,
    TransactionCoordinatorFencedError,
)
from cordwood.storage.log.log_reader import Isolation
from cordwood.storage.log.partition_log import PartitionLog
from cordwood.storage.log.segment_removal import delete_segments
from cordwood.storage.log.truncation import truncate_fully_and_start_at, truncate_to
from support.log_under_test import (
    Producer,
    bases,
    catch_up,
    fetch,
    first_unstable,
    follow,
    new_log,
    state_of,
)
from support.stored_log import batch_of, put

NOW_MS = 1_700_000_000_000
ABORTED = [
    AbortedTransaction(producer_id=1, first_offset=0, last_offset=29, last_stable_offset=8),
    AbortedTransaction(producer_id=2, first_offset=8, last_offset=74, last_stable_offset=36),
]


def marker(
    producer_id: int, offset: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0
) -> bytes:
    """A marker as a follower gets it."""
    return build_end_txn_marker(
        offset=offset,
        timestamp=NOW_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        control_type=ControlType.COMMIT if commit else ControlType.ABORT,
        coordinator_epoch=coordinator_epoch,
        partition_leader_epoch=0,
    )


def plain(log: PartitionLog, count: int) -> None:
    """A batch of records outside of any transaction."""
    put(log, *[b"v"] * count)


def all_aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return [e for segment in log.segments for e in segment.indexes.transactions.all_aborted()]


# ---- the last stable offset


def test_without_transactions_nothing_is_unstable(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    plain(log, 3)
    assert first_unstable(log) is None
    assert log.last_stable_offset == log.high_watermark == 0
    catch_up(log)
    assert log.last_stable_offset == 3


def test_a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    producer = Producer(log, 137, epoch=5)
    assert producer.append(3).first_offset == 0
    assert first_unstable(log) == 0
    producer.append(1)
    assert first_unstable(log) == 0
    commit = producer.end(commit=True)
    assert first_unstable(log) == 0, "the marker is not replicated yet"
    log.update_high_watermark(commit.last_offset)
    assert first_unstable(log) == 0
    log.update_high_watermark(commit.last_offset + 1)
    assert first_unstable(log) is None
    assert log.last_stable_offset == log.high_watermark == 5


def test_the_last_stable_offset_goes_from_0_to_8_to_the_high_watermark(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    first, second = Producer(log, 1), Producer(log, 2)
    first.append(5)  # 0-4
    plain(log, 3)  # 5-7
    second.append(2)  # 8-9
    catch_up(log)
    assert log.last_stable_offset == 0
    first.end(commit=True)
    assert log.last_stable_offset == 0
    catch_up(log)
    assert log.last_stable_offset == 8
    second.end(commit=False)
    assert log.last_stable_offset == 8
    catch_up(log)
    assert log.last_stable_offset == log.high_watermark == 12


def test_the_first_unstable_offset_moves_to_the_next_open_transaction(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    first, second = Producer(log, 137, epoch=5), Producer(log, 983, epoch=5)
    first.append(3)
    plain(log, 3)
    begun = second.append(3).first_offset
    assert first_unstable(log) == 0
    log.update_high_watermark(first.end(commit=False).last_offset + 1)
    assert first_unstable(log) == begun == 6
    log.update_high_watermark(second.end(commit=True).last_offset + 1)
    assert first_unstable(log) is None


@pytest.mark.parametrize(("deleted", "left"), [(5, 2), (8, 1)])
def test_the_last_stable_offset_is_never_below_the_log_start(
    tmp_path: Path, deleted: int, left: int
) -> None:
    log = new_log(tmp_path)
    producer = Producer(log, 1)
    producer.append(5)
    plain(log, 3)
    log.roll()
    producer.append(5)
    assert bases(log) == (0, 8)
    assert first_unstable(log) == 0
    catch_up(log)
    log.delete_records(deleted)
    if left == 1:
        delete_segments(log, 1, reason="log start offset 8 breach")
    assert len(log.segments) == left
    assert first_unstable(log) == deleted
    assert log.last_stable_offset == deleted
    producer.end(commit=True)
    catch_up(log)
    assert log.last_stable_offset == log.log_end_offset


def test_an_open_transaction_is_open_after_a_restart(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    plain(log, 3)
    producer = Producer(log, 17, epoch=10)
    producer.append(2)
    log.close()
    producer.log = log = new_log(tmp_path)
    assert log.producer_state.first_unstable_offset == 3
    producer.end(commit=True)
    catch_up(log)
    assert log.last_stable_offset == 6


def test_a_finished_transaction_is_finished_after_a_kill(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    producer = Producer(log, 137, epoch=5)
    producer.append(3)
    producer.end(commit=False)
    catch_up(log)
    assert first_unstable(log) is None
    log.close_handlers()
    log = new_log(tmp_path, clean=False)
    log.update_high_watermark(4)
    assert first_unstable(log) is None
    assert [entry.producer_id for entry in all_aborted(log)] == [137]


@pytest.mark.parametrize("fully", [False, True])
@pytest.mark.parametrize("reopened", [False, True])
def test_a_truncation_below_an_open_transaction_forgets_it(
    tmp_path: Path, fully: bool, reopened: bool
) -> None:
    log = new_log(tmp_path)
    plain(log, 3)
    Producer(log, 17, epoch=10).append(2)
    assert first_unstable(log) == 3
    if reopened:  # so that the place of the first unstable offset is not known
        log.close()
        log = new_log(tmp_path)
    if fully:
        truncate_fully_and_start_at(log, 0)
    else:
        truncate_to(log, 0)
    assert first_unstable(log) is None
    assert not log.producer_state.active_producers


# ---- the transaction index


def as_leader(log: PartitionLog) -> None:
    """Four producers, of whose transactions the first two are aborted."""
    one, two, three, four = (Producer(log, producer_id) for producer_id in (1, 2, 3, 4))
    one.append(5)  # 0-4
    plain(log, 3)  # 5-7
    two.append(2)  # 8-9
    one.append(4)  # 10-13
    three.append(3)  # 14-16
    plain(log, 2)  # 17-18
    one.append(10)  # 19-28
    one.end(commit=False)  # 29
    two.append(6)  # 30-35
    four.append(3)  # 36-38
    plain(log, 10)  # 39-48
    three.append(9)  # 49-57
    three.end(commit=True)  # 58
    four.append(8)  # 59-66
    two.append(7)  # 67-73
    two.end(commit=False)  # 74
    plain(log, 10)  # 75-84
    four.append(4)  # 85-88
    four.end(commit=True)  # 89


def as_follower(log: PartitionLog) -> None:
    """The same in one append, as a leader sends it."""
    producers = {producer_id: Producer(log, producer_id) for producer_id in (1, 2, 3, 4)}
    batches: list[bytes] = []
    end = 0

    def data(producer_id: int, count: int) -> None:
        nonlocal end
        batch = producers[producer_id].batch(count, base_offset=end, leader_epoch=0)
        batches.append(batch)
        end += count

    def other(count: int) -> None:
        nonlocal end
        batches.append(batch_of(*[b"v"] * count, base_offset=end, leader_epoch=0))
        end += count

    def ended(producer_id: int, *, commit: bool) -> None:
        nonlocal end
        batches.append(marker(producer_id, end, commit=commit))
        end += 1

    data(1, 5)
    other(3)
    data(2, 2)
    data(1, 4)
    data(3, 3)
    other(2)
    data(1, 10)
    ended(1, commit=False)
    data(2, 6)
    data(4, 3)
    other(10)
    data(3, 9)
    ended(3, commit=True)
    data(4, 8)
    data(2, 7)
    ended(2, commit=False)
    other(10)
    data(4, 4)
    ended(4, commit=True)
    follow(log, *batches)


@pytest.mark.parametrize("write", [as_leader, as_follower])
def test_aborted_transactions_0_to_29_and_8_to_74_are_indexed_and_no_other(
    tmp_path: Path, write: Callable[[PartitionLog], None]
) -> None:
    log = new_log(tmp_path)
    write(log)
    assert log.log_end_offset == 90
    assert all_aborted(log) == ABORTED
    for high_watermark, unstable in ((30, 8), (75, 36)):
        log.update_high_watermark(high_watermark)
        assert first_unstable(log) == unstable
        place = log.reader.position_of(unstable)
        batch = log.segments.first.translate_offset(unstable)
        assert batch is not None
        assert place.position == batch.position
    catch_up(log)
    assert first_unstable(log) is None

    def told(offset: int) -> list[int]:
        fetched = fetch(log, offset, isolation=Isolation.TXN_COMMITTED)
        assert fetched.aborted is not None
        return [entry.producer_id for entry in fetched.aborted]

    assert {offset: told(offset) for offset in (0, 29, 30, 74, 75, 89)} == {
        0: [1, 2],
        29: [1, 2],
        30: [2],
        74: [2],
        75: [],
        89: [],
    }


@pytest.mark.parametrize("clean", [True, False])
def test_the_same_transactions_are_indexed_after_a_restart(tmp_path: Path, clean: bool) -> None:
    log = new_log(tmp_path, segment_bytes=400)
    as_leader(log)
    assert len(log.segments) > 5
    if clean:
        log.close()
    else:
        log.close_handlers()
    assert all_aborted(new_log(tmp_path, clean=clean, segment_bytes=400)) == ABORTED


def test_a_truncation_takes_transactions_out_of_the_index(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    as_leader(log)
    for offset, expected in ((75, ABORTED), (74, ABORTED[:1]), (30, ABORTED[:1]), (29, [])):
        truncate_to(log, offset)
        assert all_aborted(log) == expected
    assert first_unstable(log) == 0, "the first is open again"


def test_a_marker_that_cannot_be_indexed_leaves_its_transaction_open_until_the_log_is_reopened(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path)
    producer = Producer(log, 1)
    producer.append(10)
    in_the_way = log.directory / "00000000000000000000.txnindex"
    in_the_way.mkdir()

    for _ in range(2):  # the second time because the directory is offline
        with pytest.raises(StorageError):
            producer.end(commit=False, coordinator_epoch=1)
        assert log.log_end_offset == 11, "the marker is in the log, once"
        assert log.last_stable_offset == 0
    log.update_high_watermark(12)
    assert log.last_stable_offset == 0
    with pytest.raises(StorageError):
        log.close()

    in_the_way.rmdir()
    log = new_log(tmp_path, clean=False)
    assert log.log_end_offset == 11
    assert [entry.last_offset for entry in all_aborted(log)] == [10]
    log.update_high_watermark(12)
    assert first_unstable(log) is None


# ---- who may write


def test_a_zombie_coordinator_is_fenced(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    producer = Producer(log, 1)
    producer.append(10)
    producer.end(commit=False, coordinator_epoch=1)
    producer.append(5)
    producer.end(commit=True, coordinator_epoch=2)
    before = state_of(log)
    with pytest.raises(TransactionCoordinatorFencedError, match=r"1 \(zombie\), 2 \(current\)"):
        producer.end(commit=False, coordinator_epoch=1)
    assert state_of(log) == before
    assert TransactionCoordinatorFencedError.code == 52


def test_a_zombie_coordinator_is_fenced_without_any_records(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    producer = Producer(log, 1)
    follow(log, producer.batch(10, leader_epoch=1), marker(1, 10, commit=True))
    producer.end(commit=False, coordinator_epoch=2)
    producer.end(commit=False, coordinator_epoch=2)
    with pytest.raises(TransactionCoordinatorFencedError):
        producer.end(commit=False, coordinator_epoch=1)
    assert all_aborted(log) == [], "a transaction without records leaves no trace"


def test_a_marker_of_an_older_producer_epoch_is_fenced(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    Producer(log, 1, epoch=5).end(commit=False, coordinator_epoch=1)
    with pytest.raises(InvalidProducerEpochError):
        Producer(log, 1, epoch=4).end(commit=False, coordinator_epoch=1)


def test_a_follower_takes_what_a_leader_would_have_fenced(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    follow(log, marker(1, 0, commit=True, epoch=5, coordinator_epoch=2))
    follow(log, marker(1, 1, commit=True, epoch=5, coordinator_epoch=1))
    follow(log, marker(1, 2, commit=True, epoch=4, coordinator_epoch=2))
    assert log.log_end_offset == 3


def test_records_outside_of_an_open_transaction_are_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    Producer(log, 1).append(2)
    before = state_of(log)
    with pytest.raises(InvalidTxnStateError, match="Expected transactional write"):
        Producer(log, 1, transactional=False, sequence=2).append(1)
    assert state_of(log) == before
    assert InvalidTxnStateError.code == 48


# ---- verification (KIP-890)


def is_ongoing(log: PartitionLog, producer: Producer) -> bool:
    return log.producer_state.verifications.has_ongoing_transaction(
        producer.producer_id, producer.epoch
    )


def guard_of(log: PartitionLog, producer: Producer) -> object | None:
    """The guard under way, None without one."""
    state = log.producer_state.verifications.get(producer.producer_id)
    return None if state is None else state.guard


def start(log: PartitionLog, producer: Producer) -> object | None:
    return log.maybe_start_verification(producer.producer_id, producer.sequence, producer.epoch)


def start_as_before_kip_890(log: PartitionLog, producer: Producer) -> object | None:
    """Of a producer that keeps its epoch from transaction to transaction."""
    return log.producer_state.verifications.maybe_start(
        producer.producer_id,
        producer.sequence,
        producer.epoch,
        now_ms=log.context.clock.now_ms(),
        supports_epoch_bump=False,
    )


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_a_verification_lasts_until_the_transactions_first_batch(
    tmp_path: Path, origin: AppendOrigin
) -> None:
    log = new_log(tmp_path, verify_transactions=True)
    first_sequence = 3 if origin is AppendOrigin.CLIENT else 0
    idempotent = Producer(log, 23, epoch=1, transactional=False, sequence=first_sequence)
    producer = Producer(log, 23, epoch=1, sequence=first_sequence + 2)
    assert not is_ongoing(log, producer)
    assert guard_of(log, producer) is None

    guard = start_as_before_kip_890(log, producer)
    assert guard is not None
    idempotent.append(2, origin=origin)
    assert not is_ongoing(log, producer)
    assert guard_of(log, producer) is guard, "records of no transaction leave it alone"

    producer.append(2, guard=guard, origin=origin)
    assert is_ongoing(log, producer)
    assert guard_of(log, producer) is None
    assert start_as_before_kip_890(log, producer) is None, "the transaction is verified"

    producer.end(commit=True)
    assert not is_ongoing(log, producer)
    assert guard_of(log, producer) is None
    again = start_as_before_kip_890(log, producer)
    assert again is not None
    assert again is not guard, "each transaction is verified anew"


def test_a_transaction_without_records_ends_a_verification(tmp_path: Path) -> None:
    log = new_log(tmp_path, verify_transactions=True)
    producer = Producer(log, 23, epoch=1)
    assert start_as_before_kip_890(log, producer) is not None
    producer.end(commit=True)
    assert not is_ongoing(log, producer)
    assert guard_of(log, producer) is None


def test_verification_switched_off_lets_a_transaction_in_and_ends_its_verification(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, verify_transactions=True)
    producer = Producer(log, 23, epoch=1)
    assert start(log, producer) is not None
    log.producer_state.verifications.is_required = False
    producer.append(2)
    assert is_ongoing(log, producer)
    assert guard_of(log, producer) is None


def test_verification_switched_on_refuses_a_transaction_that_is_not_verified(
    tmp_path: Path,
) -> None:
    log = new_log(tmp_path, verify_transactions=False)
    plain(log, 1)
    producer = Producer(log, 23, epoch=1, sequence=4)
    log.producer_state.verifications.is_required = True
    before = state_of(log)
    for guard in (None, object()):
        with pytest.raises(InvalidTxnStateError, match="not part of an ongoing transaction"):
            producer.append(2, guard=guard)
        producer.sequence = 4
    assert state_of(log) == before
    assert guard_of(log, producer) is None
    guard = start_as_before_kip_890(log, producer)
    producer.append(2, guard=guard)
    assert is_ongoing(log, producer)
    assert guard_of(log, producer) is None


def test_the_first_batch_of_a_verified_transaction_may_have_any_sequence(tmp_path: Path) -> None:
    log = new_log(tmp_path, verify_transactions=True)
    producer = Producer(log, 23, epoch=1, sequence=3)
    guard = start_as_before_kip_890(log, producer)
    assert producer.append(2, guard=guard).first_offset == 0


@pytest.mark.parametrize("later", [5, 7])
def test_a_sequence_above_the_lowest_that_is_being_verified_is_refused(
    tmp_path: Path, later: int
) -> None:
    log = new_log(tmp_path, verify_transactions=True)
    producer = Producer(log, 23, epoch=1, sequence=later)
    assert start_as_before_kip_890(log, producer) is not None
    producer.sequence = 4  # sent earlier, verified later
    guard = start_as_before_kip_890(log, producer)
    producer.sequence = later
    with pytest.raises(Exception, match=r"4 \(earliest seen sequence\)"):
        producer.append(1, guard=guard)
    producer.sequence = 4
    assert producer.append(1, guard=guard).first_offset == 0


def test_a_guard_of_one_producer_lets_no_other_in(tmp_path: Path) -> None:
    log = new_log(tmp_path, verify_transactions=True)
    one, two = Producer(log, 1), Producer(log, 2)
    guards = [start(log, one), start(log, two)]
    with pytest.raises(InvalidTxnStateError):
        two.append(1, guard=guards[0])
    two.sequence = 0
    two.append(1, guard=guards[1])
    one.append(1, guard=guards[0])
    assert is_ongoing(log, one)
    assert is_ongoing(log, two)
