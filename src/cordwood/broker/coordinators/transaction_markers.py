"""Writes the markers of transactions to the logs of partitions.

Source: kafka.server.KafkaApis.handleWriteTxnMarkersRequest,
kafka.coordinator.transaction.TransactionMarkerChannelManager,
TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from cordwood.broker.broker_channels import BrokerChannels
from cordwood.broker.delayed_operations import DelayedOperations
from cordwood.broker.partition import Partition
from cordwood.coordinator.registry import Coordinators
from cordwood.coordinator.transaction.markers import TransactionMarker
from cordwood.coordinator.transaction.transaction import NO_PRODUCER_ID
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.metadata.cache import MetadataCache
from cordwood.metadata.image import NO_LEADER
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError, UnknownServerError
from cordwood.model.pauses import in_steps
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from cordwood.serving.node_thread import NodeThread
from cordwood.storage.log.append_result import AppendResult

_log = logging.getLogger(__name__)

#: How long to wait before markers that could not be written are tried again.
_RETRY_MS: Final = 100
#: A transaction with more partitions than this is written in slices.
_AT_ONCE_MAX: Final = 32
#: Another producer or coordinator has ended the transaction.
_TAKEN_OVER: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)


class Replicas(Protocol):
    """The methods of `ReplicaManager` that are used here."""

    @property
    def delayed(self) -> DelayedOperations:
        """Operations that wait for changes of partitions."""

    def partition(self, topic: str, index: int, /) -> Partition:
        """A partition that is led here; raises KafkaError for another."""

    def append(
        self, topic: str, index: int, records: bytes, /, *, transaction_version: int
    ) -> AppendResult:
        """Appends a batch; raises KafkaError."""


class _OfProducer(Protocol):
    """The fields of a marker that say whose transaction it ends."""

    @property
    def producer_id(self) -> int: ...

    @property
    def producer_epoch(self) -> int: ...


def is_impossible(marker: _OfProducer) -> bool:
    """Whether a marker has no batch, because it names no producer or no epoch.

    Source: MemoryRecordsBuilder.appendEndTxnMarker, close.
    """
    return marker.producer_id == NO_PRODUCER_ID or marker.producer_epoch < 0


class MarkerWriter:
    """Writes markers to partitions that are led here."""

    def __init__(self, replicas: Replicas, coordinators: Coordinators, thread: NodeThread) -> None:
        """Writes nothing yet.

        Args:
            replicas: the partitions that this broker leads.
            coordinators: those that commit what a transaction has changed of their state.
            thread: has the clock.
        """
        self._replicas = replicas
        self._coordinators = coordinators
        self._thread = thread

    def write(self, marker: TransactionMarker, topic: str, index: int) -> int:
        """Appends a marker to a partition; returns the marker's offset.

        Raises:
            KafkaError: it cannot be appended. Errors of a coordinator are those of a partition's
                leader.
        """
        self._replicas.partition(topic, index)
        if is_impossible(marker):  # the group coordinator cannot build the marker's batch
            raise UnknownServerError(f"No marker without a producer's id and epoch: {marker}")
        coordinator = self._coordinators.transactional(topic)
        if coordinator is not None:
            coordinator.runtime.partitions.require(index)
        batch = build_end_txn_marker(
            offset=0,
            timestamp=self._thread.clock.now_ms(),
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            control_type=ControlType.COMMIT if marker.commit else ControlType.ABORT,
            coordinator_epoch=marker.coordinator_epoch,
        )
        if coordinator is not None:
            return coordinator.runtime.complete_transaction(
                index,
                batch,
                marker.producer_id,
                commit=marker.commit,
                transaction_version=marker.transaction_version,
            ).first_offset
        return self._replicas.append(
            topic, index, batch, transaction_version=marker.transaction_version
        ).first_offset


class MarkerSender:
    """Has the markers of transactions written to all their partitions, however long it takes.

    Implements `cordwood.coordinator.transaction.markers.MarkerSender`.
    """

    def __init__(
        self,
        writer: MarkerWriter,
        replicas: Replicas,
        metadata: MetadataCache,
        thread: NodeThread,
        channels: BrokerChannels,
        *,
        node_id: int,
    ) -> None:
        """Writes nothing yet.

        Args:
            writer: writes markers to partitions that are led here.
            replicas: the partitions that this broker leads.
            metadata: has the partitions that exist, and their leaders.
            thread: calls again later.
            channels: the other brokers.
            node_id: of this broker.
        """
        self.channels = channels
        self._node_id = node_id
        self.writer = writer
        self.replicas = replicas
        self.thread = thread
        self._metadata = metadata
        self._sending: dict[int, set[_Sending]] = {}

    def check_invariants(self) -> None:
        """Checks the markers of all transactions."""
        for sent in self._sending.values():
            for each in sent:
                each.check_invariants()

    @property
    def waiting_count(self) -> int:
        """The number of transactions with a partition that cannot be given its marker at present.

        Source: TransactionMarkerChannelManager, the metric UnknownDestinationQueueSize.
        """
        return sum(each.is_waiting for sent in self._sending.values() for each in sent)

    def send(
        self,
        state_partition: int,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[], None],
    ) -> None:
        """Writes a marker to each partition; calls `done` when all have it, or are deleted."""
        sending = _Sending(self, marker, partitions, done)
        running = self._sending.setdefault(state_partition, set())
        running.add(sending)
        sending.on_end = lambda: running.discard(sending)
        if len(partitions) > _AT_ONCE_MAX:
            self.thread.run_in_slices(sending.write)
        else:
            sending.write()

    def cancel(self, state_partition: int) -> None:
        """Forgets the markers of a partition of `__transaction_state` that is not led here."""
        for sending in self._sending.pop(state_partition, ()):
            sending.is_cancelled = True

    def exists(self, partition: TopicPartition) -> bool:
        """Whether the cluster has such a partition."""
        return self._metadata.image.partition(partition.topic, partition.partition) is not None

    def leader_elsewhere(self, partition: TopicPartition) -> int | None:
        """The broker that leads a partition; None if it is this one, or none."""
        image = self._metadata.image.partition(partition.topic, partition.partition)
        if image is None or image.leader in {NO_LEADER, self._node_id}:
            return None
        return image.leader


class _Sending:
    """The markers of one transaction; an operation that waits until they are committed."""

    def __init__(
        self,
        sender: MarkerSender,
        marker: TransactionMarker,
        partitions: Sequence[TopicPartition],
        done: Callable[[], None],
    ) -> None:
        self._sender = sender
        self._marker = marker
        self._unwritten = dict.fromkeys(partitions)
        self._uncommitted: dict[TopicPartition, int] = {}
        #: What other brokers have been asked to write, and have not answered.
        self._asked: set[TopicPartition] = set()
        self._is_retry_due = False
        self._done = done
        self._is_tried = False
        self.on_end: Callable[[], object] = lambda: None
        self.is_cancelled = False

    def check_invariants(self) -> None:
        """Checks that a marker is to be written or to be committed, and not both."""
        assert self._asked <= self._unwritten.keys(), (self._asked, self._unwritten.keys())
        both = self._unwritten.keys() & self._uncommitted.keys()
        assert not both, both
        assert not self.is_cancelled, "forgotten, and sent all the same"

    @property
    def is_waiting(self) -> bool:
        """Whether a partition has been tried, and has no marker yet."""
        return self._is_tried and bool(self._unwritten)

    def write(self) -> None:
        """Writes the markers that are not written, and tries those that fail again later."""
        self._is_retry_due = False
        elsewhere: dict[int, list[TopicPartition]] = {}
        for partition in in_steps(list(self._unwritten), every=16):
            if self.is_cancelled:
                return
            if partition in self._asked:
                continue
            leader = self._sender.leader_elsewhere(partition)
            if leader is None:
                self._write(partition)
            else:
                elsewhere.setdefault(leader, []).append(partition)
        if self.is_cancelled:
            return
        for leader, partitions in elsewhere.items():
            self._ask(leader, partitions)
        self._is_tried = True
        self._wait()

    def _wait(self) -> None:
        if len(self._unwritten) > len(self._asked):
            if not self._is_retry_due:
                self._is_retry_due = True
                self._sender.thread.call_later_ms(_RETRY_MS, self.write)
        elif self._asked:
            return  # until they are answered
        elif self._uncommitted:
            keys = [(each.topic, each.partition) for each in self._uncommitted]
            timeout_ms = _RETRY_MS
            self._sender.replicas.delayed.produce.try_complete_else_watch(self, keys, timeout_ms)
        else:
            self.on_complete()

    def _ask(self, leader: int, partitions: Sequence[TopicPartition]) -> None:
        """Has another broker write markers; it answers when they are committed."""
        self._asked.update(partitions)
        topics: dict[str, list[int]] = {}
        for each in partitions:
            topics.setdefault(each.topic, []).append(each.partition)
        marker = self._marker
        written = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            topics=[
                WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ],
        )
        self._sender.channels.ask_soon(
            leader,
            WriteTxnMarkersRequest(markers=[written]),
            lambda answer: self._answered(partitions, answer),
        )

    def _answered(
        self, partitions: Sequence[TopicPartition], answer: WriteTxnMarkersResponse | None
    ) -> None:
        self._asked.difference_update(partitions)
        codes = {} if answer is None else _codes_of(answer)
        for each in partitions:
            code = codes.get(each, ErrorCode.NETWORK_EXCEPTION)
            if code == ErrorCode.NONE:
                del self._unwritten[each]
            elif code in _TAKEN_OVER:
                self._give_up(ErrorCode.of(code).name)
                return
        if not self.is_cancelled:
            self._wait()

    def _give_up(self, reason: object) -> None:
        _log.info(
            "Markers of producer %d are not written any more: %s",
            self._marker.producer_id,
            reason,
        )
        self.is_cancelled = True
        self.on_end()

    def _write(self, partition: TopicPartition) -> None:
        sender = self._sender
        topic, index = partition.topic, partition.partition
        if not sender.exists(partition):
            _log.info("%s is deleted: it needs no transaction marker", partition)
            del self._unwritten[partition]
            return
        try:
            offset = sender.writer.write(self._marker, topic, index)
        except KafkaError as error:
            if error.code in _TAKEN_OVER:
                self._give_up(error)
            else:
                _log.info("The marker for %s is tried again: %s", partition, error)
            return
        del self._unwritten[partition]
        if sender.replicas.partition(topic, index).committed(offset + 1) is None:
            self._uncommitted[partition] = offset + 1

    # ---- as cordwood.purgatory.purgatory.DelayedOperation

    def try_complete(self, _grown_bytes: int | None) -> bool:
        """Whether all markers are committed, or one has to be written by another leader."""
        for partition, required in list(self._uncommitted.items()):
            try:
                led = self._sender.replicas.partition(partition.topic, partition.partition)
            except KafkaError:
                del self._uncommitted[partition]
                self._unwritten[partition] = None
                continue
            if led.committed(required) is not None:
                del self._uncommitted[partition]
        return not self._uncommitted

    def on_expiration(self) -> None:
        """Nothing: `on_complete` continues."""

    def on_complete(self) -> None:
        """Ends, or writes what is to be written again."""
        if self.is_cancelled:
            return
        if self._unwritten or self._uncommitted:
            self.write()
            return
        self.on_end()
        self._done()


def _codes_of(answer: WriteTxnMarkersResponse) -> dict[TopicPartition, int]:
    """The error codes in the answer to one marker."""
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for marker in answer.markers
        for topic in marker.topics
        for each in topic.partitions
    }
