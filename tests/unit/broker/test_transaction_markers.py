"""MarkerSender: markers are written to every partition, and again for as long as that is of use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from cordwood.broker.transaction_markers import MarkerSender, MarkerWriter
from cordwood.coordinator.transaction.service import TransactionMarker
from cordwood.model.kafka_errors import (
    InvalidProducerEpochError,
    KafkaError,
    NotLeaderOrFollowerError,
    StorageError,
    TransactionCoordinatorFencedError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.testing.manual_clock import ManualClock
from support.groups_under_test import ManualTimers

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
MARKER = TransactionMarker(7, 3, True, 5, 2)


class Log:
    def __init__(self) -> None:
        self.high_watermark = 0


class Led:
    def __init__(self) -> None:
        self.log = Log()
        self.is_sole_isr_member = True


class Image:
    def __init__(self, there: set[TopicPartition]) -> None:
        self._there = there

    def partition(self, topic: str, index: int) -> object:
        return object() if TopicPartition(topic, index) in self._there else None


class Cluster:
    """As the broker's replicas, writer, metadata and thread, for a sender."""

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
        self.sender = MarkerSender(
            cast("MarkerWriter", self), cast("Any", self), cast("Any", self), cast("Any", self)
        )
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
    cluster.led[A].is_sole_isr_member = False
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
    cluster.led[A].is_sole_isr_member = False
    cluster.send(A)
    ((waiting, _timeout_ms),) = cluster.watched
    led = cluster.led.pop(A)
    assert waiting.try_complete(None)
    cluster.errors[A] = NotLeaderOrFollowerError()
    waiting.on_complete()
    assert (cluster.done, cluster.sender.waiting_count) == (0, 1)
    cluster.errors.clear()
    led.is_sole_isr_member = True
    cluster.led[A] = led
    cluster.timers.advance(100)
    assert (cluster.done, cluster.written) == (1, [A, A])


def test_markers_that_are_not_committed_in_time_are_waited_for_again(cluster: Cluster) -> None:
    cluster.led[A].is_sole_isr_member = False
    cluster.send(A)
    ((waiting, _timeout_ms),) = cluster.watched
    waiting.on_expiration()
    waiting.on_complete()
    assert (cluster.done, len(cluster.watched), cluster.written) == (0, 2, [A])
    cluster.sender.cancel(4)
    waiting.on_complete()
    assert (cluster.done, len(cluster.watched)) == (0, 2)


def test_many_partitions_are_written_in_slices(cluster: Cluster) -> None:
    many = [TopicPartition("t", n) for n in range(33)]
    cluster.there.update(many)
    cluster.led.update((each, Led()) for each in many)
    cluster.send(*many[:32])
    assert not cluster.sliced
    cluster.send(*many)
    assert len(cluster.sliced) == 1
    assert (cluster.done, len(cluster.written)) == (2, 65)
