"""InitProducerId.

Source of the cases: kafka.coordinator.transaction.TransactionCoordinatorTest (4.3).
"""

from __future__ import annotations

from typing import Any

import pytest

from cordwood.coordinator.transaction.requests import InitProducerIdAnswer
from cordwood.coordinator.transaction.transaction import EPOCH_MAX, NO_TIMEOUT_MS, TransactionState
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import CoordinatorLoadInProgressError
from support.transactions_under_test import TransactionRun, transaction

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
EXHAUSTED = EPOCH_MAX - 1


@pytest.fixture(params=[0, 1, 2])
def run(request: pytest.FixtureRequest) -> TransactionRun:
    return TransactionRun(version=request.param)


def test_new_transactional_id_has_a_new_producer_id(run: TransactionRun) -> None:
    assert run.init() == (NONE, 1_000, 0)
    assert run.init("other") == (NONE, 1_001, 0)
    assert run.state() == "Empty"


def test_each_request_of_a_new_producer_raises_the_epoch(run: TransactionRun) -> None:
    assert [run.init() for _ in range(3)] == [(NONE, 1_000, epoch) for epoch in range(3)]
    assert run.ids.next_id == 1_001


def test_record_of_a_new_producer(run: TransactionRun) -> None:
    run.init()
    known = run.known()
    assert known is not None
    assert (known.state, known.partitions, known.start_ms) == (TransactionState.EMPTY, (), -1)
    assert (known.timeout_ms, known.update_ms) == (60_000, run.clock.now_ms())
    assert known.prev_producer_id == (1_000 if run.version else -1)


def test_producer_without_transactional_id_writes_nothing(run: TransactionRun) -> None:
    assert run.init(None) == (NONE, 1_000, 0)
    assert run.log.records() == []


@pytest.mark.parametrize("transactional_id", [None, "x"])
def test_error_of_the_controller_is_passed_on(
    run: TransactionRun, transactional_id: str | None
) -> None:
    run.ids.fails_with = CoordinatorLoadInProgressError("no block of ids yet")
    assert run.init(transactional_id).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    run.ids.fails_with = None
    assert run.init(transactional_id) == (NONE, 1_000, 0)


def test_two_requests_that_wait_for_a_producer_id_have_the_same(run: TransactionRun) -> None:
    run.ids.is_slow = True
    first, second = run.init_later(), run.init_later()
    assert (first, second) == ([], [])
    run.ids.deliver()
    run.ids.deliver()
    assert (first, second) == ([(NONE, 1_000, 0)], [(NONE, 1_000, 1)])


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": -1}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_000}, NONE),
        ({"transactional_id": None, "timeout_ms": 0}, NONE),
        ({"keeps_prepared": True}, ErrorCode.UNSUPPORTED_VERSION),
        (
            {"enables_two_phase_commit": True},
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": None, "producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_fields_that_are_not_possible(fields: dict[str, Any], error: ErrorCode) -> None:
    assert TransactionRun().init(**fields).error_code == error


def test_transaction_with_two_phase_commit_has_no_timeout() -> None:
    run = TransactionRun(is_two_phase_commit_enabled=True)
    assert run.init(enables_two_phase_commit=True, timeout_ms=-5) == (NONE, 1_000, 0)
    known = run.known()
    assert known is not None
    assert known.timeout_ms == NO_TIMEOUT_MS
    run.add(1_000, 0)
    run.clock.advance(2 * NO_TIMEOUT_MS)
    run.coordinator.maintenance.abort_timed_out()
    assert run.state() == "Ongoing"


COMPLETE = TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize("state", [TransactionState.EMPTY, COMPLETE])
@pytest.mark.parametrize(
    ("epoch", "expected", "answer"),
    [
        # The client has the current epoch.
        (3, (7, 3), (NONE, 7, 4)),
        # It has another producer id, and no reason to.
        (3, (8, 3), (FENCED, -1, -1)),
        # It has an older epoch, or a newer one.
        (3, (7, 2), (FENCED, -1, -1)),
        (3, (7, 4), (FENCED, -1, -1)),
        # The epochs are used up: another producer id, for a new client too.
        (EXHAUSTED, None, (NONE, 1_000, 0)),
        (EXHAUSTED, (7, EXHAUSTED), (NONE, 1_000, 0)),
        (EPOCH_MAX, None, (NONE, 1_000, 0)),
        # An older epoch when they are used up is a transition that is not possible.
        (EXHAUSTED, (7, 3), (ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1)),
        # The last but one is not used up.
        (EXHAUSTED - 1, (7, EXHAUSTED - 1), (NONE, 7, EXHAUSTED)),
    ],
)
def test_request_of_a_client_that_has_a_producer_id(
    state: TransactionState,
    epoch: int,
    expected: tuple[int, int] | None,
    answer: tuple[int, int, int],
) -> None:
    run = TransactionRun()
    run.put(transaction(state=state, producer_epoch=epoch))
    producer_id, producer_epoch = expected or (-1, -1)
    found = run.init(producer_id=producer_id, producer_epoch=producer_epoch)
    assert found == InitProducerIdAnswer(*answer)


def test_repeated_request_has_the_same_answer(run: TransactionRun) -> None:
    run.init()
    assert run.init(producer_id=1_000, producer_epoch=0) == (NONE, 1_000, 1)
    assert run.init(producer_id=1_000, producer_epoch=0) == (NONE, 1_000, 1)
    # A new client has another epoch since: now the first is fenced.
    assert run.init() == (NONE, 1_000, 2)
    assert run.init(producer_id=1_000, producer_epoch=0).error_code == FENCED
    assert run.init(producer_id=1_000, producer_epoch=1).error_code == FENCED


def test_repeated_request_after_the_epochs_are_used_up(run: TransactionRun) -> None:
    run.put(transaction(producer_epoch=EXHAUSTED))
    assert run.init(producer_id=7, producer_epoch=EXHAUSTED) == (NONE, 1_000, 0)
    assert run.init(producer_id=7, producer_epoch=EXHAUSTED) == (NONE, 1_000, 0)
    assert run.init(producer_id=7, producer_epoch=4).error_code == FENCED
    assert run.init(producer_id=1_000, producer_epoch=0) == (NONE, 1_000, 1)


def test_client_whose_transactional_id_has_expired_starts_again(run: TransactionRun) -> None:
    assert run.init(producer_id=5, producer_epoch=9) == (NONE, 1_000, 0)


def test_ongoing_transaction_is_aborted_and_the_client_asks_again(run: TransactionRun) -> None:
    run.init()
    run.add(1_000, 0, "t-0", "u-1")
    assert run.init().error_code == CONCURRENT
    assert run.state() == "PrepareAbort"
    (sent,) = run.markers.sent
    assert (sent.marker.producer_id, sent.marker.producer_epoch, sent.marker.commit) == (
        1_000,
        1,
        False,
    )
    assert run.init().error_code == CONCURRENT
    run.markers.write()
    assert run.state() == "CompleteAbort"
    assert run.init() == (NONE, 1_000, 2)


def test_producer_that_is_fenced_cannot_continue(run: TransactionRun) -> None:
    run.init()
    run.add(1_000, 0)
    run.init()
    run.markers.write()
    assert run.add(1_000, 0) == FENCED
    # With version 2 the abort has taken the epoch after the producer's, which might have asked.
    expected = ErrorCode.INVALID_TXN_STATE if run.version == 2 else FENCED
    assert run.end(1_000, 0).error_code == expected


def test_fenced_producer_has_used_up_the_epochs(run: TransactionRun) -> None:
    run.put(transaction(state=TransactionState.ONGOING, producer_epoch=EXHAUSTED, start_ms=1))
    assert run.init().error_code == CONCURRENT
    # It has no partitions: it is completed at once. Version 2 has drawn a producer id for that.
    assert run.init() == ((NONE, 1_000, 1) if run.version == 2 else (NONE, 1_000, 0))


def test_other_client_cannot_fence_with_a_producer_id_that_is_not_known(
    run: TransactionRun,
) -> None:
    run.init()
    run.add(1_000, 0)
    assert run.init(producer_id=8, producer_epoch=0).error_code == FENCED
    assert run.state() == "Ongoing"


def test_transition_that_is_not_committed_is_waited_for(run: TransactionRun) -> None:
    run.log.is_replicated = True
    first = run.init_later()
    assert first == []
    assert run.init().error_code == CONCURRENT
    assert run.state() == ""
    run.commit_log()
    assert first == [(NONE, 1_000, 0)]
    second = run.init_later()
    assert run.init().error_code == CONCURRENT
    run.commit_log()
    assert second == [(NONE, 1_000, 1)]


def test_client_is_answered_when_its_transactions_would_time_out(run: TransactionRun) -> None:
    run.log.is_replicated = True
    answers = run.init_later(timeout_ms=700)
    run.host.timers.advance(699)
    assert answers == []
    run.host.timers.advance(1)
    assert answers == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)]
    run.commit_log()
    assert run.state() == "Empty"


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_record_that_cannot_be_written_changes_nothing(failure: int, code: int) -> None:
    run = TransactionRun()
    run.init()
    run.log.fails_with = failure
    assert run.init() == (code, -1, -1)
    assert run.add(1_000, 0) == code
    run.log.fails_with = None
    assert run.add(1_000, 0) == NONE
    run.log.fails_with = failure
    assert run.end(1_000, 0) == (code, -1, -1)
    assert run.init() == (code, -1, -1)
    run.log.fails_with = None
    assert run.state() == "Ongoing"
    assert run.end(1_000, 0).error_code == NONE


def test_fence_that_is_not_written_fences_but_bumps_the_epoch_once() -> None:
    run = TransactionRun(version=1)
    run.init()
    run.add(1_000, 0)
    run.log.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert run.init().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    run.log.fails_with = None
    assert run.add(1_000, 0, "u-0") == FENCED
    assert run.coordinator.describe("x").producer_epoch == 1
    assert run.init().error_code == CONCURRENT
    assert run.markers.sent[0].marker.producer_epoch == 1
    run.markers.write()
    assert run.init() == (NONE, 1_000, 2)


def test_fence_that_is_not_written_leaves_no_trace_in_version_2() -> None:
    run = TransactionRun(version=2)
    run.init()
    run.add(1_000, 0)
    run.log.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert run.init().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    run.log.fails_with = None
    assert run.add(1_000, 0, "u-0") == NONE
    assert run.end(1_000, 0) == (NONE, 1_000, 1)
