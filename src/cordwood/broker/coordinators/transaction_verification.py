"""Partitions are verified with the transaction coordinator, or added, before a first write.

Without that, a batch that arrives late would open a transaction that nobody ends.

Source: org.apache.kafka.server.transaction.AddPartitionsToTxnManager,
kafka.server.ReplicaManager.handleProduceAppend; KIP-890.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Protocol

from cordwood.broker.broker_channels import BrokerChannels
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.broker.coordinators.transaction_partitions import (
    TransactionPartitions,
    TransactionRequest,
)
from cordwood.broker.partition import Partition
from cordwood.client.errors import ClientError
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import AddPartitionsToTxnRequest
from cordwood.serving.node_thread import NodeThread

_PRODUCE_ADDS_SINCE: Final = 12
_PRODUCE_HAS_ABORTABLE_SINCE: Final = 11
_COMMIT_ADDS_SINCE: Final = 5
_COMMIT_HAS_ABORTABLE_SINCE: Final = 4
_ADDING_VERSION: Final = 2
# As many as the reservoir of a histogram of Kafka's holds.
_RECENT_MAX: Final = 1028


class Support(enum.Enum):
    """Abilities of a client by the version of its request.

    Source: AddPartitionsToTxnManager.TransactionSupportedOperation.
    """

    VERIFIED = enum.auto()
    """Partitions are verified; TRANSACTION_ABORTABLE is not known."""
    VERIFIED_ABORTABLE = enum.auto()
    """Partitions are verified; the error is TRANSACTION_ABORTABLE."""
    ADDED = enum.auto()
    """Partitions are added to the transaction by the write itself."""

    @classmethod
    def of_produce(cls, version: int) -> Support:
        """The abilities of a version of Produce."""
        return cls._of(version, _PRODUCE_HAS_ABORTABLE_SINCE, _PRODUCE_ADDS_SINCE)

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> Support:
        """The abilities of a version of TxnOffsetCommit."""
        return cls._of(version, _COMMIT_HAS_ABORTABLE_SINCE, _COMMIT_ADDS_SINCE)

    @classmethod
    def _of(cls, version: int, abortable_since: int, adds_since: int) -> Support:
        if version >= adds_since:
            return cls.ADDED
        return cls.VERIFIED_ABORTABLE if version >= abortable_since else cls.VERIFIED


class TransactionalWrite(NamedTuple):
    """A write of a producer's transaction: the base sequence of the batch of each partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    sequences: Mapping[TopicPartition, int]
    support: Support


class Verified(NamedTuple):
    """Error codes of partitions that must not be written, and the guards that the logs demand."""

    errors: Mapping[TopicPartition, int]
    guards: Mapping[TopicPartition, object]


class VerificationCounters:
    """Questions to the coordinator: partitions that were refused, and times in ms.

    Source: org.apache.kafka.server.transaction.AddPartitionsToTxnManager (VerificationFailureRate,
    VerificationTimeMs).
    """

    def __init__(self) -> None:
        self.failures = 0
        self.count = 0
        self.total_ms = 0.0
        self.recent_ms: deque[float] = deque(maxlen=_RECENT_MAX)

    def asked(self, failures: int, duration_ms: float) -> None:
        """A question was answered, and refused for so many partitions."""
        self.failures += failures
        self.count += 1
        self.total_ms += duration_ms
        self.recent_ms.append(duration_ms)


class Replicas(Protocol):
    """The methods of `ReplicaManager` that are used here."""

    def partition(self, topic: str, index: int, /) -> Partition:
        """A partition that is led here; raises KafkaError for another."""


class TransactionVerification:
    """Verifies the partitions of writes."""

    def __init__(
        self,
        replicas: Replicas,
        partitions: TransactionPartitions,
        thread: NodeThread,
        channels: BrokerChannels,
        *,
        node_id: int,
        is_enabled: bool,
        retry_ms: int,
        retry_max_ms: int,
    ) -> None:
        """Verifies nothing yet.

        Args:
            replicas: the partitions that this broker leads.
            partitions: adds partitions to transactions, and looks them up.
            thread: owns this object.
            channels: the other brokers.
            node_id: of this broker.
            is_enabled: transaction.partition.verification.enable; may be set at any time.
            retry_ms: add.partitions.to.txn.retry.backoff.ms.
            retry_max_ms: add.partitions.to.txn.retry.backoff.max.ms.
        """
        self._replicas = replicas
        self._partitions = partitions
        self._broker_thread = thread
        self._channels = channels
        self._node_id = node_id
        self.is_enabled = is_enabled
        self._retry_ms = retry_ms
        self._retry_max_ms = retry_max_ms
        self.counters = VerificationCounters()

    async def begin(self, write: TransactionalWrite, *, retries: bool = False) -> Verified:
        """Verifies or adds the partitions of a write whose transaction is not open there.

        Args:
            write: which partitions, and of which transaction.
            retries: whether to wait a little for the end of the producer's last transaction, which
                is cheaper than to have its client send the records again.
        """
        if write.support is not Support.ADDED and not self.is_enabled:
            return Verified({}, {})
        loop = self._broker_thread.loop
        ends_s = loop.time() + self._retry_max_ms / 1000
        while True:
            verified = await self._begin_once(write)
            if not retries or write.support is not Support.ADDED:
                return verified
            if ErrorCode.CONCURRENT_TRANSACTIONS not in verified.errors.values():
                return verified
            if loop.time() >= ends_s:
                return verified
            await asyncio.sleep(self._retry_ms / 1000)

    async def _begin_once(self, write: TransactionalWrite) -> Verified:
        errors: dict[TopicPartition, int] = {}
        guards: dict[TopicPartition, object] = {}
        for partition, sequence in write.sequences.items():
            try:
                led = self._replicas.partition(partition.topic, partition.partition)
                guard = led.log.maybe_start_verification(
                    write.producer_id,
                    sequence,
                    write.producer_epoch,
                    bumps_epoch=write.support is Support.ADDED,
                )
            except KafkaError as error:
                errors[partition] = error.code
                continue
            if guard is not None:
                guards[partition] = guard
        if guards:
            errors.update(await self._ask(write, guards.keys()))
        return Verified(errors, guards)

    async def _ask(
        self, write: TransactionalWrite, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        coordinator = self._partitions.coordinator_of(write.transactional_id)
        if coordinator is None:
            return dict.fromkeys(partitions, int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        request = TransactionRequest(
            write.transactional_id,
            write.producer_id,
            write.producer_epoch,
            tuple(partitions),
            verify_only=write.support is not Support.ADDED,
            client_version=_ADDING_VERSION,
        )
        loop = self._broker_thread.loop
        begun_s = loop.time()
        if coordinator == self._node_id:
            answer = CoordinatorAnswer[Mapping[TopicPartition, int]](self._broker_thread)
            self._partitions.handle(request, answer)
            found = await answer.value()
        else:
            found = await self._ask_broker(coordinator, request)
        errors = {
            partition: _as_of_a_write(code, write.support)
            for partition, code in found.items()
            if code
        }
        self.counters.asked(len(errors), 1000 * (loop.time() - begun_s))
        return errors

    async def _ask_broker(
        self, coordinator: int, request: TransactionRequest
    ) -> Mapping[TopicPartition, int]:
        """Another broker's answer; NETWORK_EXCEPTION for all without one."""
        errors = dict.fromkeys(request.partitions, int(ErrorCode.NETWORK_EXCEPTION))
        try:
            answer = await self._channels.ask(coordinator, _request_of(request))
        except ClientError:
            return errors
        if answer.error_code:
            return dict.fromkeys(request.partitions, answer.error_code)
        for transaction in answer.results_by_transaction:
            for topic in transaction.topic_results:
                for each in topic.results_by_partition:
                    place = TopicPartition(topic.name, each.partition_index)
                    errors[place] = each.partition_error_code
        return errors


def _request_of(request: TransactionRequest) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for each in request.partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        verify_only=request.verify_only,
        topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def _as_of_a_write(code: int, support: Support) -> int:
    """The error of a write for an error of the coordinator."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and support is Support.VERIFIED:
        return ErrorCode.INVALID_TXN_STATE
    return code
