"""MarkerSender: markers are written to every partition, and again for as long as that is of use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from cordwood.broker.coordinators.transaction_markers import MarkerSender, MarkerWriter
from cordwood.coordinator.transaction.markers import TransactionMarker
from cordwood.metadata.image import PartitionImage
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    InvalidProducerEpochError,
    KafkaError,
    NotLeaderOrFollowerError,
    StorageError,
    TransactionCoordinatorFencedError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import WriteTxnMarkersRequest
from cordwood.protocol.messages import build, response_codec
from cordwood.testing.manual_clock import ManualClock
from support.groups_under_test import ManualTimers

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
OWN, REMOTE = 1, 2
MARKER = TransactionMarker(7, 3, True, 5, 2)


class Log:
    def __init__(self) -> None:
        self.high_watermark = 0


class Led:
    def __init__(self) -> None:
        self.log = Log()
        self.is_replicated = False

    def committed(self, offset: int) -> ErrorCode | None:
        is_committed = not self.is_replicated or self.log.high_watermark >= offset
        return ErrorCode.NONE if is_committed else None


class Image:
    def __init__(self, there: set[TopicPartition]) -> None:
        self._there = there
        self.leaders: dict[TopicPartition, int] = {}

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        place = TopicPartition(topic, index)
        if place not in self._there:
            return None
        leader = self.leaders.get(place, OWN)
        return PartitionImage(
            replicas=(leader,), isr=(leader,), leader=leader, leader_epoch=0, partition_epoch=0
        )


class Cluster:
    """Replacement of the broker's replicas, writer, metadata and thread, for a sender."""

    def __init__(self) -> None:
        self.there = {A, B}
        self.led = {A: Led(), B: Led()}
        self.errors: dict[TopicPartition, KafkaError] = {}
        self.tried: list[TopicPartition] = []
        self.written: list[TopicPartition] = []
        self.watched: list[tuple[Any, int]] = []
        self.timers = ManualTimers(ManualClock())
        self.call_later_ms = self.timers.call_later_ms
        self.sliced: list[Callable[[], object]] = []
        self.delayed = self.produce = self
        self.image = Image(self.there)
        self.asked: list[tuple[int, Any, Callable[[Any], object]]] = []
        it = cast("Any", self)
        self.sender = MarkerSender(cast("MarkerWriter", self), it, it, it, it, node_id=OWN)
        self.done = 0

    # ---- what a sender calls

    def write(self, marker: TransactionMarker, topic: str, index: int) -> int:
        assert marker == MARKER
        partition = TopicPartition(topic, index)
        self.tried.append(partition)
        if partition in self.errors:
            raise self.errors[partition]
        self.written.append(partition)
        return 10

    def partition(self, topic: str, index: int) -> Any:
        partition = TopicPartition(topic, index)
        if partition not in self.led:
            raise NotLeaderOrFollowerError
        return self.led[partition]

    def try_complete_else_watch(self, operation: Any, keys: object, timeout_ms: int) -> None:
        assert keys
        if operation.try_complete(None):
            operation.on_complete()
        else:
            self.watched.append((operation, timeout_ms))

    def ask_soon(
        self, broker_id: int, request: WriteTxnMarkersRequest, answered: Callable[[Any], object]
    ) -> None:
        (marker,) = request.markers
        self.asked.append((broker_id, marker, answered))

    def run_in_slices(self, run: Callable[[], object]) -> None:
        self.sliced.append(run)
        run()

    # ---- what a test does

    def send(self, *partitions: TopicPartition) -> None:
        def done() -> None:
            self.done += 1

        self.sender.send(4, MARKER, partitions, done)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_every_partition_has_one_marker_and_then_the_transaction_is_done(cluster: Cluster) -> None:
    cluster.send(A, B)
    assert cluster.written == [A, B]
    assert (cluster.done, cluster.sender.waiting_count, cluster.timers.pending) == (1, 0, 0)


@pytest.mark.parametrize("error", [NotLeaderOrFollowerError(), StorageError()])
def test_a_marker_that_cannot_be_written_is_tried_until_it_can(
    cluster: Cluster, error: KafkaError
) -> None:
    cluster.errors[A] = error
    cluster.send(A, B)
    for _ in range(3):
        assert (cluster.done, cluster.sender.waiting_count) == (0, 1)
        cluster.timers.advance(100)
    assert cluster.tried == [A, B, A, A, A], "B has its marker"
    cluster.errors.clear()
    cluster.timers.advance(100)
    assert (cluster.done, cluster.sender.waiting_count, cluster.timers.pending) == (1, 0, 0)


def test_a_partition_that_is_deleted_needs_no_marker(cluster: Cluster) -> None:
    cluster.errors[A] = NotLeaderOrFollowerError()
    cluster.send(A, B)
    cluster.there.remove(A)
    cluster.timers.advance(100)
    assert (cluster.done, cluster.written) == (1, [B])
    cluster.there.clear()
    cluster.send(A, B)
    assert (cluster.done, cluster.written) == (2, [B])


@pytest.mark.parametrize(
    "error", [InvalidProducerEpochError("old"), TransactionCoordinatorFencedError("old")]
)
def test_a_transaction_that_another_one_has_ended_is_not_reported(
    cluster: Cluster, error: KafkaError
) -> None:
    cluster.errors[A] = error
    cluster.send(A, B)
    assert (cluster.done, cluster.sender.waiting_count, cluster.timers.pending) == (0, 0, 0)


def test_nothing_is_written_for_a_partition_of_the_coordinator_that_moved(
    cluster: Cluster,
) -> None:
    cluster.errors[A] = NotLeaderOrFollowerError()
    cluster.send(A)
    cluster.sender.cancel(4)
    cluster.errors.clear()
    cluster.timers.advance(1000)
    assert (cluster.done, cluster.written, cluster.sender.waiting_count) == (0, [], 0)


def test_markers_count_when_they_are_committed(cluster: Cluster) -> None:
    cluster.led[A].is_replicated = True
    cluster.send(A, B)
    ((waiting, _timeout_ms),) = cluster.watched
    assert cluster.done == 0
    cluster.led[A].log.high_watermark = 10
    assert not waiting.try_complete(None)
    cluster.led[A].log.high_watermark = 11
    assert waiting.try_complete(None)
    waiting.on_complete()
    assert (cluster.done, cluster.written) == (1, [A, B])


def test_a_marker_is_written_by_the_next_leader_if_it_was_not_committed(cluster: Cluster) -> None:
    cluster.led[A].is_replicated = True
    cluster.send(A)
    ((waiting, _timeout_ms),) = cluster.watched
    led = cluster.led.pop(A)
    assert waiting.try_complete(None)
    cluster.errors[A] = NotLeaderOrFollowerError()
    waiting.on_complete()
    assert (cluster.done, cluster.sender.waiting_count) == (0, 1)
    cluster.errors.clear()
    led.is_replicated = False
    cluster.led[A] = led
    cluster.timers.advance(100)
    assert (cluster.done, cluster.written) == (1, [A, A])


def test_markers_that_are_not_committed_in_time_are_waited_for_again(cluster: Cluster) -> None:
    cluster.led[A].is_replicated = True
    cluster.send(A)
    ((waiting, _timeout_ms),) = cluster.watched
    waiting.on_expiration()
    waiting.on_complete()
    assert (cluster.done, len(cluster.watched), cluster.written) == (0, 2, [A])
    cluster.sender.cancel(4)
    waiting.on_complete()
    assert (cluster.done, len(cluster.watched)) == (0, 2)


def answer_of(**codes: int) -> Any:
    partitions = [
        {"partition_index": int(place[1:]), "error_code": code} for place, code in codes.items()
    ]
    fields = {"markers": [{"producer_id": 7, "topics": [{"name": "t", "partitions": partitions}]}]}
    return build(response_codec(27, 1), fields)


def test_markers_of_partitions_that_another_broker_leads_are_written_there(
    cluster: Cluster,
) -> None:
    cluster.image.leaders[B] = REMOTE
    cluster.send(A, B)
    assert cluster.written == [A]
    ((broker_id, marker, answered),) = cluster.asked
    assert broker_id == REMOTE
    of = WriteTxnMarkersRequest
    assert marker == of.WritableTxnMarker(
        producer_id=7,
        producer_epoch=3,
        transaction_result=True,
        coordinator_epoch=5,
        transaction_version=2,
        topics=[of.WritableTxnMarkerTopic(name="t", partition_indexes=[1])],
    )
    assert (cluster.done, cluster.sender.waiting_count) == (0, 1)
    answered(answer_of(p1=0))
    assert (cluster.done, cluster.sender.waiting_count) == (1, 0)


@pytest.mark.parametrize(
    "answer", [None, answer_of(p0=6), answer_of(p0=19)], ids=["none", "moved", "too few"]
)
def test_another_broker_that_does_not_write_a_marker_is_asked_again(
    cluster: Cluster, answer: Any
) -> None:
    cluster.image.leaders[A] = REMOTE
    cluster.send(A)
    cluster.asked.pop()[2](answer)
    assert (cluster.done, cluster.asked) == (0, [])
    cluster.image.leaders[A] = REMOTE + 1
    cluster.timers.advance(100)
    ((broker_id, _, answered),) = cluster.asked
    assert broker_id == REMOTE + 1
    answered(answer_of(p0=0))
    assert cluster.done == 1


def test_another_broker_that_knows_a_newer_coordinator_ends_the_sending(cluster: Cluster) -> None:
    cluster.image.leaders[A] = REMOTE
    cluster.send(A, B)
    cluster.asked.pop()[2](answer_of(p0=52))
    cluster.timers.advance(1000)
    assert (cluster.done, cluster.asked, cluster.sender.waiting_count) == (0, [], 0)


def test_many_partitions_are_written_in_slices(cluster: Cluster) -> None:
    many = [TopicPartition("t", n) for n in range(33)]
    cluster.there.update(many)
    cluster.led.update((each, Led()) for each in many)
    cluster.send(*many[:32])
    assert not cluster.sliced
    cluster.send(*many)
    assert len(cluster.sliced) == 1
    assert (cluster.done, len(cluster.written)) == (2, 65)
