"""EndTxn, before and from transaction version 2.

Source of the cases: kafka.coordinator.transaction.TransactionCoordinatorTest (4.3); the table in
TransactionCoordinator.scala of what is accepted without a transaction.
"""

from __future__ import annotations

import pytest

from cordwood.coordinator.transaction.transaction import (
    EPOCH_MAX,
    Transaction,
    TransactionState,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import CoordinatorLoadInProgressError
from cordwood.model.topic_partition import TopicPartition
from support.transactions_under_test import TransactionRun, transaction

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
INVALID = ErrorCode.INVALID_TXN_STATE
EXHAUSTED = EPOCH_MAX - 1
T0 = TopicPartition("t", 0)

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT


def known_in(state: TransactionState, **fields: int) -> Transaction:
    partitions = () if state.is_at_rest else (T0,)
    return transaction(state=state, partitions=partitions, start_ms=999_000, **fields)


def with_known(known: Transaction | None, version: int) -> TransactionRun:
    run = TransactionRun(version=version)
    if known is not None:
        run.put(known)
    return run


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("commit", [True, False])
def test_transaction_is_ended_with_its_epoch(*, commit: bool, version: int) -> None:
    run = with_known(known_in(ONGOING), version)
    assert run.end(7, 3, commit=commit) == (NONE, -1, -1)
    assert run.state() == ("PrepareCommit" if commit else "PrepareAbort")
    (sent,) = run.markers.sent
    assert sent.marker == (7, 3, commit, 4, 0)
    assert sent.partitions == (T0,)
    run.clock.advance(5)
    run.markers.write()
    assert run.state() == ("CompleteCommit" if commit else "CompleteAbort")
    known = run.known()
    assert known is not None
    assert (known.producer_id, known.producer_epoch, known.partitions) == (7, 3, ())
    assert known.update_ms == run.clock.now_ms() - 5, "when its markers were due"


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_is_ended_and_its_producer_continues_with_the_next_epoch(
    *, commit: bool
) -> None:
    run = with_known(known_in(ONGOING), 2)
    assert run.end(7, 3, commit=commit) == (NONE, 7, 4)
    assert run.markers.sent[0].marker == (7, 4, commit, 4, 2)
    run.markers.write()
    known = run.known()
    assert known is not None
    assert (known.producer_id, known.producer_epoch, known.client_version) == (7, 4, 2)
    assert run.add(7, 3) == FENCED
    assert run.add(7, 4) == NONE


@pytest.mark.parametrize("commit", [True, False])
def test_transaction_is_ended_and_its_producer_continues_with_another_id(*, commit: bool) -> None:
    run = with_known(known_in(ONGOING, producer_epoch=EXHAUSTED), 2)
    assert run.end(7, EXHAUSTED, commit=commit) == (NONE, 1_000, 0)
    assert run.markers.sent[0].marker == (7, EPOCH_MAX, commit, 4, 2)
    prepared = run.known()
    assert prepared is not None
    assert (prepared.producer_id, prepared.next_producer_id) == (7, 1_000)
    # The client did not receive the answer, and asks again.
    assert run.end(7, EXHAUSTED, commit=commit).error_code == CONCURRENT
    run.markers.write()
    assert run.end(7, EXHAUSTED, commit=commit) == (NONE, 1_000, 0)
    assert run.end(7, EXHAUSTED, commit=not commit).error_code == INVALID
    assert run.end(7, 5, commit=commit).error_code == MAPPING
    assert run.add(1_000, 0) == NONE


def test_load_between_end_and_markers_continues_with_the_id_that_was_drawn() -> None:
    run = with_known(known_in(ONGOING, producer_epoch=EXHAUSTED), 2)
    run.end(7, EXHAUSTED)
    run.restart()
    assert [sent.marker for sent in run.markers.sent] == [(7, EPOCH_MAX, True, 4, 2)] * 2
    run.markers.write()
    assert run.add(1_000, 0) == NONE


def test_epoch_that_is_not_possible_to_bump_is_an_error_of_the_server() -> None:
    run = with_known(known_in(ONGOING, producer_epoch=EPOCH_MAX), 2)
    assert run.end(7, EPOCH_MAX) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)
    # An abort gets the producer out of it.
    assert run.end(7, EPOCH_MAX, commit=False) == (NONE, 1_001, 0)


def test_error_of_the_controller_is_passed_on() -> None:
    run = with_known(known_in(ONGOING, producer_epoch=EXHAUSTED), 2)
    run.ids.fails_with = CoordinatorLoadInProgressError("no block of ids yet")
    answer = run.end(7, EXHAUSTED)
    assert answer == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert run.state() == "Ongoing"


def test_producer_id_that_arrives_when_it_is_not_needed_any_more() -> None:
    run = with_known(known_in(ONGOING, producer_epoch=EXHAUSTED), 2)
    run.ids.is_slow = True
    first, second = run.end_later(7, EXHAUSTED), run.end_later(7, EXHAUSTED)
    run.ids.deliver()
    run.ids.deliver()
    assert (first, second) == ([(NONE, 1_000, 0)], [(CONCURRENT, -1, -1)])


# What a request is answered: (state, commit) to the error. A retry has the epoch before the
# transaction's.
BEFORE_VERSION_2 = {
    (EMPTY, True): INVALID,
    (EMPTY, False): INVALID,
    (PREPARE_COMMIT, True): CONCURRENT,
    (PREPARE_COMMIT, False): CONCURRENT,
    (PREPARE_ABORT, True): CONCURRENT,
    (PREPARE_ABORT, False): CONCURRENT,
    (COMPLETE_COMMIT, True): NONE,
    (COMPLETE_COMMIT, False): INVALID,
    (COMPLETE_ABORT, True): INVALID,
    (COMPLETE_ABORT, False): NONE,
}
RETRY_OF_VERSION_2 = {
    (EMPTY, True): FENCED,
    (EMPTY, False): FENCED,
    (ONGOING, True): FENCED,
    (ONGOING, False): FENCED,
    (PREPARE_COMMIT, True): CONCURRENT,
    (PREPARE_COMMIT, False): CONCURRENT,
    (PREPARE_ABORT, True): CONCURRENT,
    (PREPARE_ABORT, False): CONCURRENT,
    (COMPLETE_COMMIT, True): NONE,
    (COMPLETE_COMMIT, False): INVALID,
    (COMPLETE_ABORT, True): INVALID,
    (COMPLETE_ABORT, False): NONE,
}
CURRENT_OF_VERSION_2 = {
    (EMPTY, True): INVALID,
    (EMPTY, False): None,
    (PREPARE_COMMIT, True): CONCURRENT,
    (PREPARE_COMMIT, False): CONCURRENT,
    (PREPARE_ABORT, True): CONCURRENT,
    (PREPARE_ABORT, False): CONCURRENT,
    (COMPLETE_COMMIT, True): INVALID,
    (COMPLETE_COMMIT, False): None,
    (COMPLETE_ABORT, True): INVALID,
    (COMPLETE_ABORT, False): None,
}


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("at", "error"), BEFORE_VERSION_2.items())
def test_current_epoch_before_version_2(
    at: tuple[TransactionState, bool], error: int, version: int
) -> None:
    state, commit = at
    run = with_known(known_in(state), version)
    assert run.end(7, 3, commit=commit) == (error, -1, -1)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("epoch", [2, 4])
def test_other_epoch_before_version_2(state: TransactionState, epoch: int, version: int) -> None:
    run = with_known(known_in(state), version)
    assert run.end(7, epoch).error_code == FENCED


@pytest.mark.parametrize(("at", "error"), RETRY_OF_VERSION_2.items())
def test_epoch_before_the_current_one_in_version_2(
    at: tuple[TransactionState, bool], error: int
) -> None:
    state, commit = at
    run = with_known(known_in(state), 2)
    answer = run.end(7, 2, commit=commit)
    assert answer == ((NONE, 7, 3) if error == NONE else (error, -1, -1))


@pytest.mark.parametrize(("at", "error"), CURRENT_OF_VERSION_2.items())
def test_current_epoch_in_version_2(at: tuple[TransactionState, bool], error: int | None) -> None:
    state, commit = at
    run = with_known(known_in(state), 2)
    count = len(run.markers.sent)
    answer = run.end(7, 3, commit=commit)
    if error is not None:
        assert answer == (error, -1, -1)
        return
    # There is no transaction to abort: no markers, and the epoch is bumped.
    assert answer == (NONE, 7, 4)
    assert len(run.markers.sent) == count
    prepared, completed = (each.transaction for each in run.log.records()[-2:])
    assert prepared is not None
    assert completed is not None
    assert (prepared.state, completed.state) == (PREPARE_ABORT, COMPLETE_ABORT)
    assert prepared.start_ms == run.clock.now_ms()


@pytest.mark.parametrize("state", TransactionState)
@pytest.mark.parametrize("epoch", [1, 4])
def test_other_epoch_in_version_2(state: TransactionState, epoch: int) -> None:
    run = with_known(known_in(state), 2)
    error = CONCURRENT if state.is_prepared else FENCED
    assert run.end(7, epoch).error_code == error


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("known", [None, *(known_in(state) for state in TransactionState)])
def test_other_producer_id(known: Transaction | None, version: int) -> None:
    run = with_known(known, version)
    is_prepared = known is not None and known.state.is_prepared
    error = CONCURRENT if version == 2 and is_prepared else MAPPING
    assert run.end(8, 3).error_code == error


@pytest.mark.parametrize("version", [0, 2])
def test_no_transactional_id(version: int) -> None:
    run = TransactionRun(version=version)
    assert run.end(7, 3, transactional_id="").error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [1, 2])
def test_client_is_answered_and_markers_are_sent_when_the_outcome_is_committed(
    version: int,
) -> None:
    run = with_known(known_in(ONGOING), version)
    run.log.is_replicated = True
    answers = run.end_later(7, 3)
    assert (answers, run.markers.sent) == ([], [])
    assert run.state() == "Ongoing"
    assert run.end(7, 3).error_code == CONCURRENT
    run.commit_log()
    assert [answer.error_code for answer in answers] == [NONE]
    assert len(run.markers.sent) == 1
    assert run.state() == "PrepareCommit"
    run.markers.write()
    assert run.state() == "PrepareCommit"
    assert run.end(7, 3).error_code == CONCURRENT
    run.commit_log()
    assert run.state() == "CompleteCommit"


@pytest.mark.parametrize("version", [1, 2])
def test_markers_are_sent_although_the_client_was_not_answered_in_time(version: int) -> None:
    run = with_known(known_in(ONGOING), version)
    run.log.is_replicated = True
    answers = run.end_later(7, 3)
    run.host.timers.advance(60_000)
    assert answers == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)]
    run.commit_log()
    assert len(run.markers.sent) == 1


def test_clients_of_two_versions_on_a_broker_of_version_2() -> None:
    run = with_known(known_in(ONGOING), 2)
    assert run.end(7, 3, version=0) == (NONE, -1, -1)
    run.markers.write()
    known = run.known()
    assert known is not None
    assert (known.producer_epoch, known.client_version) == (3, 0)
    assert run.end(7, 3, commit=False) == (NONE, 7, 4)


def test_the_markers_of_one_transaction_do_not_complete_the_next() -> None:
    run = with_known(known_in(ONGOING), 2)
    run.end(7, 3)
    (first,) = run.markers.sent
    run.markers.write()
    assert run.add(7, 4, "t-0") == NONE
    run.end(7, 4, commit=False)
    assert run.state() == "PrepareAbort"
    first.done()
    run.commit_log()
    assert run.state() == "PrepareAbort", "its own markers are not written yet"
    run.markers.write()
    assert run.state() == "CompleteAbort"
