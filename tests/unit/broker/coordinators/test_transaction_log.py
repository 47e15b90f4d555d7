"""Transactions over real logs: what is written, and what is found again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from cordwood.broker.coordinators import coordinator_log
from cordwood.broker.coordinators.topic_log import TopicLog
from cordwood.broker.coordinators.transaction_log import TRANSACTION_LOG
from cordwood.coordinator.transaction import records
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.requests import (
    EndAnswer,
    EndRequest,
    InitProducerIdAnswer,
    InitProducerIdRequest,
)
from cordwood.coordinator.transaction.service import TransactionCoordinator
from cordwood.coordinator.transaction.settings import TransactionSettings
from cordwood.coordinator.transaction.transaction import TransactionState
from cordwood.format.record_batch import Record, build_batch
from cordwood.format.transaction_state import TRANSACTION_RECORDS
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError, NotLeaderOrFollowerError, StorageError
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.log.log_reader import Isolation
from support.groups_under_test import GroupBroker
from support.log_under_test import batches_read
from support.transactions_under_test import Markers, ProducerIds, only, transaction

NONE = ErrorCode.NONE


class Run:
    """A coordinator over the logs of a broker."""

    def __init__(self, broker: GroupBroker) -> None:
        self.broker = broker
        self.log = TopicLog(TRANSACTION_LOG, broker, broker)
        self.markers = Markers()
        self.coordinator = TransactionCoordinator(
            self.log,
            broker,
            TransactionSettings(),
            version=lambda: 2,
            producer_ids=ProducerIds(),
            markers=self.markers,
        )
        self.coordinator.start()

    def init(self, transactional_id: str = "x") -> InitProducerIdAnswer:
        answers: list[InitProducerIdAnswer] = []
        request = InitProducerIdRequest(transactional_id=transactional_id, timeout_ms=60_000)
        self.coordinator.init_producer_id(request, answers.append)
        return only(answers)

    def add(self, producer_id: int, epoch: int) -> int:
        codes: list[int] = []
        self.coordinator.add_partitions(
            "x", producer_id, epoch, [TopicPartition("t", 0)], 2, codes.append
        )
        return only(codes)

    def commit(self, producer_id: int, epoch: int) -> EndAnswer:
        answers: list[EndAnswer] = []
        request = EndRequest(
            transactional_id="x",
            producer_id=producer_id,
            producer_epoch=epoch,
            commit=True,
            client_version=2,
        )
        self.coordinator.end(request, answers.append)
        return only(answers)

    def restarted(self) -> Run:
        self.coordinator.close()
        self.broker.close()
        return Run(self.broker)


@pytest.fixture
def broker(tmp_path: Path) -> GroupBroker:
    return GroupBroker(tmp_path, topic=TRANSACTION_STATE_TOPIC, served=TRANSACTION_STATE_TOPIC)


def write(broker: GroupBroker, *stored: tuple[bytes, bytes | None]) -> None:
    """Appends records as a coordinator of another release did."""
    made = [Record(number, 1, key, value) for number, (key, value) in enumerate(stored)]
    broker.append(
        TRANSACTION_STATE_TOPIC,
        0,
        build_batch(made, base_offset=0),
        origin=AppendOrigin.COORDINATOR,
    )


def test_transaction_is_written_and_found_again(
    broker: GroupBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(broker)
    assert run.init() == (NONE, 1_000, 0)
    assert run.add(1_000, 0) == NONE
    assert run.commit(1_000, 0) == (NONE, 1_000, 1)
    monkeypatch.setattr(coordinator_log, "_READ_BYTES", 100)
    again = run.restarted()
    assert again.coordinator.describe("x").state == "PrepareCommit"
    assert again.markers.sent[0].marker == (1_000, 1, True, 0, 2)
    again.markers.write()
    assert again.coordinator.describe("x").state == "CompleteCommit"
    states = [records.decode(each.key, each.value).transaction for each in broker.records()]
    assert [each.state for each in states if each is not None] == [
        TransactionState.EMPTY,
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.COMPLETE_COMMIT,
    ]


def test_batches_are_as_those_of_kafka(broker: GroupBroker) -> None:
    Run(broker).init()
    (batch,) = batches_read(
        broker.log(TRANSACTION_STATE_TOPIC, 0).reader.read(0, 1 << 20, isolation=Isolation.LOG_END)
    )
    header = batch.header
    assert (header.base_sequence, header.producer_id, header.attributes) == (-1, -1, 0)
    assert header.base_timestamp == broker.clock.now_ms()


def test_tombstone_removes_an_id_at_a_load(broker: GroupBroker) -> None:
    for known in (transaction(), None):
        write(broker, records.encode(TransactionRecord("x", known)))
    run = Run(broker)
    assert run.coordinator.describe("x").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_records_of_unknown_types_and_versions_are_left_alone(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    key, value = records.encode(TransactionRecord("x", transaction()))
    assert value is not None
    write(broker, (b"\0\1\0\0", b"\0\0"), (key, value), (key, b"\0\2"))
    assert Run(broker).coordinator.describe("x").state == "Empty"
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert len(warnings) == 2


def test_partition_with_a_record_that_cannot_be_read_is_not_loaded(
    broker: GroupBroker, caplog: pytest.LogCaptureFixture
) -> None:
    key, _ = records.encode(TransactionRecord("x", transaction()))
    write(broker, (key, TRANSACTION_RECORDS.encode_value(0, 1, {"transactionStatus": 9})))
    run = Run(broker)
    assert run.coordinator.describe("x").error_code == ErrorCode.NOT_COORDINATOR
    assert "transaction state 9" in caplog.text


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (NotLeaderOrFollowerError("it moved"), ErrorCode.NOT_COORDINATOR),
        (StorageError("the disk has failed"), ErrorCode.NOT_COORDINATOR),
    ],
)
def test_append_that_fails_has_the_code_for_clients(
    broker: GroupBroker, failure: KafkaError, code: int
) -> None:
    run = Run(broker)
    broker.fails_with = failure
    assert run.init() == (code, -1, -1)


def test_id_that_does_not_fit_is_refused(broker: GroupBroker) -> None:
    assert Run(broker).init("x" * 40_000).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_topic_that_is_not_there(tmp_path: Path) -> None:
    run = Run(GroupBroker(tmp_path, partitions=0, served=TRANSACTION_STATE_TOPIC))
    assert run.init().error_code == ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaError):
        run.log.leader_epoch(0)
    with pytest.raises(KafkaError):
        run.log.high_watermark(0)
