"""Markers of transactions whose end is decided: sent, and completed when all are written.

Source: kafka.coordinator.transaction.TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from cordwood.coordinator.led_partitions import CoordinatorHost
from cordwood.coordinator.log import CoordinatorLog
from cordwood.coordinator.runtime import CoordinatorRuntime
from cordwood.coordinator.transaction import events
from cordwood.coordinator.transaction.machine import Prepared
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.shard import TransactionShard
from cordwood.coordinator.transaction.transaction import TransactionState
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_partition import TopicPartition

_LOG = logging.getLogger(__name__)

TransactionRuntime = CoordinatorRuntime[
    TransactionShard, events.TransactionEvent, TransactionRecord
]


class TransactionMarker(NamedTuple):
    """The producer, outcome and coordinator in the marker of a transaction."""

    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class MarkerSender(Protocol):
    """Writes markers to the logs of partitions, here and on other brokers."""

    def send(
        self,
        state_partition: int,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[], None],
        /,
    ) -> None:
        """Writes a marker to each partition, and tries again for as long as that is of use.

        `done` is called once, on the broker's thread, when each partition has the marker or is gone
        for good. It is not called if another producer or coordinator has taken over.
        """

    def cancel(self, state_partition: int, /) -> None:
        """Forgets the markers of a partition of `__transaction_state` that is not led here."""


class TransactionStateLog(CoordinatorLog[TransactionShard, TransactionRecord], Protocol):
    """The log of transactions."""

    def leader_epoch(self, partition: int, /) -> int:
        """The leader epoch of a partition that is led here: the coordinator's epoch in markers.

        Raises:
            KafkaError: the partition is not led here.
        """


class Markers:
    """Sends the markers of a transaction when its Prepare is committed, then completes it."""

    def __init__(
        self,
        runtime: TransactionRuntime,
        log: TransactionStateLog,
        host: CoordinatorHost,
        sender: MarkerSender,
    ) -> None:
        """Sends nothing yet."""
        self._runtime = runtime
        self._log = log
        self._host = host
        self._sender = sender

    def send(self, prepared: Prepared) -> None:
        """Sends the markers of a transaction whose end is decided.

        Source: TransactionMarkerChannelManager.addTxnMarkersToSend.
        """
        partition, transaction = prepared
        try:
            epoch = self._log.leader_epoch(partition)
        except KafkaError as error:
            _LOG.info(
                "The markers of %s are not sent from here: %s", transaction.transactional_id, error
            )
            return
        marker = TransactionMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is TransactionState.PREPARE_COMMIT,
            epoch,
            transaction.client_version,
        )
        event = events.MarkersWritten(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            prepared_ms=self._host.clock.now_ms(),
        )
        done = partial(self._written, partition, epoch, event)
        if transaction.partitions:
            self._sender.send(partition, marker, transaction.partitions, done)
        else:
            done()

    def _written(self, partition: int, epoch: int, event: events.MarkersWritten) -> None:
        """Writes the end of a transaction, unless the partition has moved since."""
        try:
            is_led_as_before = self._log.leader_epoch(partition) == epoch
        except KafkaError:
            is_led_as_before = False
        if is_led_as_before and self._runtime.partitions.active(partition) is not None:
            self._runtime.write(partition, event)
        else:
            _LOG.info("No longer the coordinator of %s with epoch %d", event, epoch)
