"""Markers, timeouts, expiry, loads, and what clients are shown.

Source of the cases: kafka.coordinator.transaction.TransactionCoordinatorTest,
TransactionStateManagerTest, TransactionMarkerChannelManagerTest (4.3).
"""

from __future__ import annotations

import logging

import pytest

from cordwood.coordinator.registry import Coordinators
from cordwood.coordinator.transaction.machine import COMPLETION_RETRY_MS
from cordwood.coordinator.transaction.settings import TransactionSettings
from cordwood.coordinator.transaction.transaction import (
    EPOCH_MAX,
    NO_TIMEOUT_MS,
    Transaction,
    TransactionState,
)
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    CoordinatorLoadInProgressError,
    InvalidRegularExpressionError,
)
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC
from cordwood.model.topic_partition import TopicPartition
from support.transactions_under_test import MemoryLog, TransactionRun, transaction

NONE = ErrorCode.NONE
T0 = TopicPartition("t", 0)
ONGOING = TransactionState.ONGOING
DAY_MS = 86_400_000


def ongoing(**fields: int) -> Transaction:
    return transaction(state=ONGOING, partitions=(T0,), start_ms=1_000_000, **fields)


def prepared(run: TransactionRun) -> None:
    """Has a transaction of x be prepared; its markers wait."""
    run.put(ongoing())
    assert run.end(7, 3).error_code == NONE


# ---- markers


def test_end_that_cannot_be_written_now_is_written_later() -> None:
    run = TransactionRun()
    prepared(run)
    run.log.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    run.markers.write()
    for _ in range(3):
        run.host.timers.advance(COMPLETION_RETRY_MS)
        assert run.state() == "PrepareCommit"
    assert run.add(7, 4) == ErrorCode.CONCURRENT_TRANSACTIONS
    run.log.fails_with = None
    run.host.timers.advance(COMPLETION_RETRY_MS)
    assert run.state() == "CompleteCommit"
    assert run.host.timers.pending == 0


@pytest.mark.parametrize(
    ("failure", "level"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, logging.INFO),
        (ErrorCode.KAFKA_STORAGE_ERROR, logging.INFO),
        (ErrorCode.MESSAGE_TOO_LARGE, logging.CRITICAL),
    ],
)
def test_end_that_cannot_be_written_here_is_left_to_the_next_load(
    failure: int, level: int, caplog: pytest.LogCaptureFixture
) -> None:
    run = TransactionRun()
    prepared(run)
    run.log.fails_with = failure
    caplog.set_level(logging.INFO)
    caplog.clear()
    run.markers.write()
    assert [record.levelno for record in caplog.records] == [level]
    assert run.host.timers.pending == 0
    run.log.fails_with = None
    run.restart()
    run.markers.write()
    assert run.state() == "CompleteCommit"


def test_load_sends_the_markers_of_prepared_transactions_again() -> None:
    run = TransactionRun()
    prepared(run)
    sent = run.markers.sent[0]
    run.restart()
    assert run.markers.cancelled == [0, 0]
    assert run.markers.sent[1][:3] == sent[:3]
    run.markers.write()
    assert run.state() == "CompleteCommit"
    run.restart()
    assert len(run.markers.sent) == 2


def test_load_of_a_record_that_is_not_committed_sends_no_markers_yet() -> None:
    run = TransactionRun()
    run.put(ongoing())
    run.log.is_replicated = True
    run.end_later(7, 3)
    run.restart()
    assert run.markers.sent == []
    assert run.state() == "Ongoing"
    run.commit_log()
    assert len(run.markers.sent) == 1


def test_resigned_coordinator_refuses_and_forgets() -> None:
    run = TransactionRun()
    prepared(run)
    sent = run.markers.sent[0]
    run.log.is_replicated = True
    waiting = run.init_later("y")
    run.coordinator.runtime.partitions.resign(0)
    assert waiting == [(ErrorCode.NOT_COORDINATOR, -1, -1)]
    assert run.markers.cancelled[-1] == 0
    assert run.init().error_code == ErrorCode.NOT_COORDINATOR
    assert run.end(7, 4).error_code == ErrorCode.NOT_COORDINATOR
    assert run.add(7, 4) == ErrorCode.NOT_COORDINATOR
    count = len(run.log.records())
    sent.done()
    assert len(run.log.records()) == count


@pytest.mark.parametrize("change", ["another leader epoch", "another leader"])
def test_markers_of_an_earlier_leader_do_not_end_a_transaction(change: str) -> None:
    run = TransactionRun()
    prepared(run)
    if change == "another leader":
        run.log.led = ()
    else:
        run.log.epoch += 1
    run.markers.write()
    assert run.state() == "PrepareCommit"


def test_leader_of_another_epoch_sends_markers_with_it() -> None:
    run = TransactionRun()
    prepared(run)
    run.log.epoch += 1
    run.coordinator.runtime.partitions.elect(0)
    assert [each.marker.coordinator_epoch for each in run.markers.sent] == [4, 5]
    assert len(run.markers.waiting) == 1
    run.markers.write()
    assert run.state() == "CompleteCommit"


def test_coordinator_that_leads_again_loads_again() -> None:
    run = TransactionRun()
    prepared(run)
    run.coordinator.runtime.partitions.resign(0)
    run.coordinator.runtime.partitions.elect(0)
    assert len(run.markers.sent) == 2
    run.markers.write()
    assert run.state() == "CompleteCommit"


def test_unwritten_ends_are_counted() -> None:
    run = TransactionRun()
    prepared(run)
    run.log.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    assert run.coordinator.unwritten_ends == 0
    run.markers.write()
    assert run.coordinator.unwritten_ends == 1
    run.log.fails_with = None
    run.host.timers.advance(COMPLETION_RETRY_MS)
    assert run.coordinator.unwritten_ends == 0


def test_loads_are_timed() -> None:
    run = TransactionRun(MemoryLog(3))
    times = run.coordinator.runtime.partitions.load_times
    assert len(times) == 3
    assert {each.ended_s for each in times} == {run.clock.monotonic_s()}
    assert {each.duration_ms for each in times} == {0}


def test_marker_that_is_reported_twice_ends_a_transaction_once() -> None:
    run = TransactionRun()
    prepared(run)
    sent = run.markers.sent[0]
    run.markers.write()
    count = len(run.log.records())
    sent.done()
    assert len(run.log.records()) == count


def test_partition_that_moves_before_its_record_is_committed_sends_no_markers() -> None:
    run = TransactionRun()
    run.put(ongoing())
    run.log.is_replicated = True
    run.end_later(7, 3)
    run.log.led = ()
    run.commit_log()
    assert run.markers.sent == []


# ---- timeouts


@pytest.mark.parametrize("version", [0, 1, 2])
def test_transaction_is_aborted_when_its_time_is_up(version: int) -> None:
    run = TransactionRun(version=version)
    run.put(ongoing())
    run.clock.advance(60_000)
    run.coordinator.maintenance.abort_timed_out()
    assert run.state() == "Ongoing"
    run.clock.advance(1)
    run.coordinator.maintenance.abort_timed_out()
    assert run.state() == "PrepareAbort"
    marker = run.markers.sent[0].marker
    assert marker == (7, 4, False, 4, version if version == 2 else 0)
    run.coordinator.maintenance.abort_timed_out()
    run.markers.write()
    assert run.state() == "CompleteAbort"
    assert len(run.markers.sent) == 1
    assert run.add(7, 3) == ErrorCode.PRODUCER_FENCED


def test_timeout_of_a_producer_without_epochs_draws_an_id() -> None:
    run = TransactionRun()
    run.put(ongoing(producer_epoch=EPOCH_MAX - 1))
    run.clock.advance(60_001)
    run.ids.fails_with = CoordinatorLoadInProgressError("no block of ids yet")
    run.coordinator.maintenance.abort_timed_out()
    assert run.state() == "Ongoing"
    run.ids.fails_with = None
    run.coordinator.maintenance.abort_timed_out()
    run.markers.write()
    assert run.coordinator.describe("x").producer_id == 1_000


def test_transaction_that_ends_while_an_id_is_drawn_is_not_aborted() -> None:
    run = TransactionRun()
    run.put(ongoing(producer_epoch=EPOCH_MAX - 1))
    run.clock.advance(60_001)
    run.ids.is_slow = True
    run.coordinator.maintenance.abort_timed_out()
    ended = run.end_later(7, EPOCH_MAX - 1)
    run.ids.deliver()
    assert run.state() == "PrepareAbort"
    run.ids.deliver()
    assert ended == [(ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1)]


@pytest.mark.parametrize(
    "known",
    [
        ongoing(timeout_ms=NO_TIMEOUT_MS),
        transaction(),
        transaction(state=TransactionState.COMPLETE_COMMIT, start_ms=1),
        transaction(state=TransactionState.PREPARE_COMMIT, partitions=(T0,), start_ms=1),
    ],
)
def test_transaction_that_cannot_time_out(known: Transaction) -> None:
    run = TransactionRun()
    run.put(known)
    run.clock.advance(NO_TIMEOUT_MS)
    count = len(run.log.records())
    run.coordinator.maintenance.abort_timed_out()
    assert len(run.log.records()) == count


def test_transaction_with_a_transition_in_progress_is_not_aborted() -> None:
    run = TransactionRun()
    run.put(ongoing())
    run.clock.advance(60_001)
    run.log.is_replicated = True
    added = run.add_later(7, 3, [TopicPartition("u", 0)])
    run.coordinator.maintenance.abort_timed_out()
    run.commit_log()
    assert added == [NONE]
    assert run.state() == "Ongoing"
    run.coordinator.maintenance.abort_timed_out()
    run.commit_log()
    assert run.state() == "PrepareAbort"


def test_abort_that_cannot_be_written_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    run = TransactionRun(version=1)
    run.put(ongoing())
    run.clock.advance(60_001)
    run.log.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    run.coordinator.maintenance.abort_timed_out()
    assert any(record.levelno == logging.WARNING for record in caplog.records)
    run.log.fails_with = None
    run.coordinator.maintenance.abort_timed_out()
    assert run.markers.sent[0].marker.producer_epoch == 4, "bumped once"


# ---- expiry


@pytest.mark.parametrize("state", TransactionState)
def test_transactional_id_that_is_not_used_expires(state: TransactionState) -> None:
    run = TransactionRun()
    partitions = () if state.is_at_rest else (T0,)
    run.put(transaction(state=state, partitions=partitions, start_ms=1_000_000))
    run.clock.advance(7 * DAY_MS - 1)
    run.coordinator.maintenance.expire_ids()
    assert len(run.log.records()) == 1
    run.clock.advance(1)
    run.coordinator.maintenance.expire_ids()
    assert len(run.log.records()) == (2 if state.is_at_rest else 1)
    if state.is_at_rest:
        assert run.known() is None
        assert run.coordinator.describe("x").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert run.init() == (NONE, 1_000, 0)


def test_ids_of_a_partition_expire_in_one_batch_in_the_order_of_kafkas_map() -> None:
    run = TransactionRun()
    for number in range(5):
        run.init(f"id-{number * 37}")
    run.clock.advance(7 * DAY_MS)
    run.coordinator.maintenance.expire_ids()
    assert len(run.log.batches[0][-1]) == 5
    # The order is that of ConcurrentHashMap of JDK 17.
    expired = [(each.transactional_id, each.transaction) for each in run.log.records()[-5:]]
    assert expired == [(name, None) for name in ("id-148", "id-37", "id-74", "id-111", "id-0")]


def test_id_is_in_use_until_its_tombstone_is_committed() -> None:
    run = TransactionRun()
    run.put(transaction())
    run.clock.advance(7 * DAY_MS)
    run.log.is_replicated = True
    run.coordinator.maintenance.expire_ids()
    assert run.state() == "Empty"
    assert run.init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert run.add(7, 3) == ErrorCode.CONCURRENT_TRANSACTIONS
    run.coordinator.maintenance.expire_ids()
    run.commit_log()
    assert len(run.log.records()) == 2
    assert run.add(7, 3) == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_id_whose_record_is_not_committed_does_not_expire() -> None:
    run = TransactionRun()
    run.log.is_replicated = True
    run.init_later(timeout_ms=900_000)
    run.clock.advance(7 * DAY_MS)
    run.coordinator.maintenance.expire_ids()
    assert len(run.log.records()) == 1
    run.commit_log()
    run.coordinator.maintenance.expire_ids()
    assert len(run.log.records()) == 2


def test_id_whose_tombstone_cannot_be_written_stays(caplog: pytest.LogCaptureFixture) -> None:
    run = TransactionRun()
    run.put(transaction())
    run.clock.advance(7 * DAY_MS)
    run.log.fails_with = ErrorCode.NOT_ENOUGH_REPLICAS
    run.coordinator.maintenance.expire_ids()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert run.state() == "Empty"


# ---- the service


def test_periods_are_those_of_the_settings() -> None:
    settings = TransactionSettings.of(
        {
            "transaction.max.timeout.ms": "10",
            "transactional.id.expiration.ms": 20,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 30,
            "transaction.remove.expired.transaction.cleanup.interval.ms": 40,
            "transaction.state.log.num.partitions": 5,
            "transaction.two.phase.commit.enable": "true",
        }
    )
    assert settings == TransactionSettings(
        max_timeout_ms=10,
        id_expiration_ms=20,
        abort_interval_ms=30,
        expiration_interval_ms=40,
        topic_partitions=5,
        is_two_phase_commit_enabled=True,
    )
    assert TransactionSettings.of({}) == TransactionSettings()
    assert TransactionSettings.of({"transaction.two.phase.commit.enable": False}) == (
        TransactionSettings()
    )
    run = TransactionRun(abort_interval_ms=30, expiration_interval_ms=40)
    periods = {name: period for name, (period, _) in run.host.tasks.items()}
    assert periods == {"transaction-abort": 30, "transactionalId-expiration": 40}


def test_periodic_tasks_look_at_every_partition() -> None:
    run = TransactionRun(MemoryLog(3))
    names = [f"id-{number}" for number in range(12)]
    for name in names:
        run.init(name)
        number = names.index(name)
        run.add(1_000 + number, 0, transactional_id=name)
    run.clock.advance(60_001)
    run.host.tasks["transaction-abort"][1]()
    assert {run.state(name) for name in names} == {"PrepareAbort"}
    while run.markers.waiting:
        run.markers.write()
    run.clock.advance(7 * DAY_MS)
    run.host.tasks["transactionalId-expiration"][1]()
    assert [run.known(name) for name in names] == [None] * 12


def test_ids_are_spread_over_partitions_as_java_hashes_them() -> None:
    run = TransactionRun(MemoryLog(50))
    assert run.coordinator.partition_for("polygenelubricants").partition == 0
    assert run.coordinator.partition_for("console-consumer-1").partition == 24
    assert run.coordinator.partition_for("static").partition == 38, "its hash is negative"
    without_topic = TransactionRun(MemoryLog(0), topic_partitions=50)
    assert without_topic.coordinator.partition_for("static").partition == 38
    assert without_topic.init().error_code == ErrorCode.NOT_COORDINATOR


def test_deleted_topic_takes_all_transactions_away() -> None:
    run = TransactionRun()
    prepared(run)
    run.log.led = ()
    coordinators = Coordinators()
    coordinators.register(run.coordinator)
    coordinators.on_topics_deleted(["t"])
    assert run.state() == "PrepareCommit"
    coordinators.on_topics_deleted([TRANSACTION_STATE_TOPIC])
    assert run.markers.waiting == []
    assert run.coordinator.describe("x").error_code == ErrorCode.NOT_COORDINATOR


# ---- queries


def test_description() -> None:
    run = TransactionRun()
    run.put(
        transaction(
            state=ONGOING,
            partitions=(TopicPartition("u", 2), T0, TopicPartition("u", 1)),
            start_ms=5,
        )
    )
    found = run.coordinator.describe("x")
    assert found[:6] == (NONE, "Ongoing", 60_000, 5, 7, 3)
    assert {topic: sorted(numbers) for topic, numbers in found.topics} == {"t": [0], "u": [1, 2]}


def test_description_of_what_is_not_there() -> None:
    run = TransactionRun()
    assert run.coordinator.describe("x").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert run.coordinator.describe("").error_code == ErrorCode.INVALID_REQUEST
    run.coordinator.close()
    assert run.coordinator.describe("x").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    listed = run.coordinator.list_transactions(["bad"])
    assert listed == (ErrorCode.COORDINATOR_NOT_AVAILABLE, (), ())


def listing() -> TransactionRun:
    run = TransactionRun()
    run.init("a-1")
    run.init("a-2")
    run.add(1_001, 0, transactional_id="a-2")
    run.clock.advance(100)
    run.init("b-1")
    run.add(1_002, 0, transactional_id="b-1")
    run.clock.advance(10)
    return run


@pytest.mark.parametrize(
    ("states", "producer_ids", "duration_ms", "pattern", "expected"),
    [
        ((), (), -1, None, {"a-1", "a-2", "b-1"}),
        ((), (), -1, "", {"a-1", "a-2", "b-1"}),
        (("Ongoing",), (), -1, None, {"a-2", "b-1"}),
        (("Ongoing", "Empty"), (), -1, None, {"a-1", "a-2", "b-1"}),
        (("Dead", "PrepareEpochFence"), (), -1, None, set()),
        ((), (1_000, 1_002, 5), -1, None, {"a-1", "b-1"}),
        # One that has not begun has begun at -1.
        ((), (), 0, None, {"a-1", "a-2", "b-1"}),
        ((), (), 10, None, {"a-1", "a-2"}),
        ((), (), 9, None, {"a-1", "a-2", "b-1"}),
        ((), (), 110, None, {"a-1"}),
        ((), (), -1, "a", set()),
        ((), (), -1, "a-.", {"a-1", "a-2"}),
        (("Ongoing",), (1_001, 1_002), 50, ".*", {"a-2"}),
    ],
)
def test_list(
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_ms: int,
    pattern: str | None,
    expected: set[str],
) -> None:
    found = listing().coordinator.list_transactions(states, producer_ids, duration_ms, pattern)
    assert found.error_code == NONE
    assert found.unknown_states == ()
    assert {each.transactional_id for each in found.transactions} == expected


def test_list_names_states_that_are_not_known_and_lists_the_others() -> None:
    coordinator = listing().coordinator
    found = coordinator.list_transactions(["ongoing", "Ongoing", "bad", "bad"])
    assert found.unknown_states == ("ongoing", "bad")
    assert {each.transactional_id for each in found.transactions} == {"a-2", "b-1"}
    # Only such states: nothing is listed.
    assert coordinator.list_transactions(["bad"]) == (NONE, ("bad",), ())


def test_list_refuses_a_pattern_that_is_not_one() -> None:
    with pytest.raises(InvalidRegularExpressionError):
        listing().coordinator.list_transactions(pattern="(")


def test_list_is_in_the_order_of_partitions_and_of_kafkas_map() -> None:
    run = TransactionRun(MemoryLog(4))
    names = [f"id-{number}" for number in range(40)]
    for name in names:
        run.init(name)
    listed = [each.transactional_id for each in run.coordinator.list_transactions().transactions]
    assert sorted(listed) == sorted(names)
    partitions = [run.coordinator.partition_for(name).partition for name in listed]
    assert partitions == sorted(partitions)


def test_list_has_what_is_committed() -> None:
    run = listing()
    run.log.is_replicated = True
    run.init_later("c")
    run.add_later(1_000, 0, transactional_id="a-1")
    before = {each[0]: each.state for each in run.coordinator.list_transactions().transactions}
    assert before == {"a-1": "Empty", "a-2": "Ongoing", "b-1": "Ongoing"}
    run.commit_log()
    after = {each[0]: each.state for each in run.coordinator.list_transactions().transactions}
    assert after == {"a-1": "Ongoing", "a-2": "Ongoing", "b-1": "Ongoing", "c": "Empty"}
