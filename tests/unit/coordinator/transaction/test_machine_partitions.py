"""AddPartitionsToTxn, AddOffsetsToTxn, and the verification of partitions.

Source of the cases: kafka.coordinator.transaction.TransactionCoordinatorTest (4.3).
"""

from __future__ import annotations

import pytest

from cordwood.coordinator.transaction.transaction import Transaction, TransactionState
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition
from support.transactions_under_test import TransactionRun, transaction

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)

AT_REST = [
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
]
PREPARED = [TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT]


def ongoing(*partitions: TopicPartition) -> Transaction:
    return transaction(state=TransactionState.ONGOING, partitions=partitions, start_ms=999_000)


def with_known(known: Transaction | None, *, version: int = 2) -> TransactionRun:
    run = TransactionRun(version=version)
    if known is not None:
        run.put(known)
    return run


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("state", AT_REST)
def test_first_partitions_begin_the_transaction(state: TransactionState, version: int) -> None:
    run = with_known(transaction(state=state, start_ms=5), version=version)
    run.clock.advance(10)
    assert run.add(7, 3, "t-0", "u-0") == NONE
    known = run.known()
    assert known is not None
    assert known.state is TransactionState.ONGOING
    assert set(known.partitions) == {T0, U0}
    assert (known.start_ms, known.update_ms) == (run.clock.now_ms(), run.clock.now_ms())
    assert (known.producer_id, known.producer_epoch) == (7, 3)


def test_more_partitions_continue_it() -> None:
    run = with_known(ongoing(T0))
    assert run.add(7, 3, "t-1") == NONE
    known = run.known()
    assert known is not None
    assert set(known.partitions) == {T0, T1}
    assert (known.start_ms, known.update_ms) == (999_000, run.clock.now_ms())


def test_partitions_that_are_in_the_transaction_are_not_written_again() -> None:
    run = with_known(ongoing(T0, T1))
    assert run.add(7, 3, "t-1") == NONE
    assert len(run.log.records()) == 1
    assert run.add(7, 3, "t-1", "u-0") == NONE
    assert len(run.log.records()) == 2


@pytest.mark.parametrize(
    ("known", "producer", "error"),
    [
        (None, (7, 3), MAPPING),
        (transaction(), (8, 3), MAPPING),
        (transaction(), (7, 2), FENCED),
        (transaction(), (7, 4), FENCED),
        (ongoing(T0), (8, 3), MAPPING),
        (ongoing(T0), (7, 2), FENCED),
        *(
            (transaction(state=s, partitions=(T0,), start_ms=1), (7, 3), CONCURRENT)
            for s in PREPARED
        ),
        # Before anything else: the end of the transaction may change id and epoch.
        *(
            (transaction(state=s, partitions=(T0,), start_ms=1), (8, 9), CONCURRENT)
            for s in PREPARED
        ),
    ],
)
@pytest.mark.parametrize("version", [0, 2])
def test_partitions_are_refused(
    known: Transaction | None, producer: tuple[int, int], error: int, version: int
) -> None:
    run = with_known(known, version=version)
    assert run.add(*producer) == error
    assert run.known() == known or known is not None


@pytest.mark.parametrize("version", [0, 2])
def test_no_transactional_id(version: int) -> None:
    run = TransactionRun(version=version)
    assert run.add(7, 3, transactional_id="") == ErrorCode.INVALID_REQUEST
    refused = run.coordinator.verify_partitions("", 7, 3, [T0])
    assert refused == {T0: ErrorCode.INVALID_REQUEST}


def test_values_of_version_0_have_no_version_of_the_client() -> None:
    run = with_known(transaction(), version=0)
    assert run.add(7, 3, version=2) == ErrorCode.UNSUPPORTED_VERSION
    assert run.add(7, 3, version=0) == NONE


def test_partitions_wait_for_the_transition_before() -> None:
    run = with_known(transaction())
    run.log.is_replicated = True
    first = run.add_later(7, 3, [T0])
    assert run.add(7, 3, "t-1") == CONCURRENT
    assert run.add(8, 9) == CONCURRENT
    run.commit_log()
    assert first == [NONE]
    second = run.add_later(7, 3, [T1])
    assert run.add(7, 3, "t-0") == CONCURRENT
    run.commit_log()
    assert second == [NONE]


def test_refusal_does_not_wait_for_other_transactions() -> None:
    run = TransactionRun()
    run.init("y")
    run.log.is_replicated = True
    waiting = run.init_later("x")
    assert run.add(1_000, 5, transactional_id="y") == FENCED
    assert waiting == []


@pytest.mark.parametrize(
    ("known", "producer", "errors"),
    [
        (None, (7, 3), (MAPPING, MAPPING)),
        (ongoing(T0), (8, 3), (MAPPING, MAPPING)),
        (ongoing(T0), (7, 2), (FENCED, FENCED)),
        (ongoing(T0, U0), (7, 3), (NONE, ErrorCode.TRANSACTION_ABORTABLE)),
        (transaction(), (7, 3), (ErrorCode.TRANSACTION_ABORTABLE,) * 2),
        *(
            (transaction(state=s, partitions=(T0,), start_ms=1), (7, 3), (CONCURRENT,) * 2)
            for s in PREPARED
        ),
        *(
            (transaction(state=s, partitions=(T0,), start_ms=1), (8, 3), (MAPPING,) * 2)
            for s in PREPARED
        ),
    ],
)
def test_verification(
    known: Transaction | None, producer: tuple[int, int], errors: tuple[int, int]
) -> None:
    run = with_known(known)
    found = run.coordinator.verify_partitions("x", *producer, [T0, T1])
    assert list(found.items()) == list(zip((T0, T1), errors, strict=True))


def test_verification_reads_what_is_committed() -> None:
    run = with_known(ongoing(T0))
    run.log.is_replicated = True
    run.add_later(7, 3, [T1])
    before = run.coordinator.verify_partitions("x", 7, 3, [T0, T1])
    assert before == {T0: NONE, T1: ErrorCode.TRANSACTION_ABORTABLE}
    run.commit_log()
    assert run.coordinator.verify_partitions("x", 7, 3, [T1]) == {T1: NONE}


def test_verification_where_the_partition_is_not_led() -> None:
    run = TransactionRun()
    run.coordinator.runtime.partitions.resign(0)
    found = run.coordinator.verify_partitions("x", 7, 3, [T0])
    assert found == {T0: ErrorCode.NOT_COORDINATOR}
