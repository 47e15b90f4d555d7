"""Adds partitions to a transaction, or verifies that they are in it.

Source: kafka.server.KafkaApis.handleAddPartitionsToTxnRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from cordwood.coordinator.transaction.service import TransactionCoordinator
from cordwood.metadata.cache import MetadataCache
from cordwood.model.error_codes import ErrorCode
from cordwood.model.topic_partition import TopicPartition

Errors = Mapping[TopicPartition, int]
"""An error code for each partition."""


class TransactionRequest(NamedTuple):
    """A producer's request for partitions of its transaction.

    `client_version` is the transaction version that the client's request stands for.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool
    client_version: int


class TransactionPartitions:
    """The partitions of the transactions that this broker coordinates."""

    def __init__(self, coordinator: TransactionCoordinator, metadata: MetadataCache) -> None:
        """`metadata` has the partitions that exist."""
        self._coordinator = coordinator
        self._metadata = metadata

    def coordinator_of(self, transactional_id: str) -> int | None:
        """The broker that leads the partition that a transactional id is kept in; None if none.

        Source: AddPartitionsToTxnManager.getTransactionCoordinator.
        """
        image = self._metadata.image
        place = self._coordinator.partition_for(transactional_id)
        partition = image.partition(place.topic, place.partition)
        leader = None if partition is None else image.brokers.get(partition.leader)
        return None if leader is None or leader.fenced else leader.broker_id

    def handle(
        self,
        request: TransactionRequest,
        reply: Callable[[Errors], object],
        *,
        refused: Errors | None = None,
    ) -> None:
        """Answers with an error code for each partition; adds all of them, or none.

        Args:
            request: which partitions, and whose.
            reply: receives the answer, immediately or when the change is committed.
            refused: the errors of partitions that the client must not write.
        """
        errors = dict(refused or {})
        for partition in request.partitions:
            if partition not in errors and not self._exists(partition):
                errors[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if errors:
            others = dict.fromkeys(request.partitions, int(ErrorCode.OPERATION_NOT_ATTEMPTED))
            reply({**others, **errors})
            return
        transactional_id, producer_id, epoch, partitions, verify_only, version = request
        if verify_only:
            reply(
                self._coordinator.verify_partitions(
                    transactional_id, producer_id, epoch, partitions
                )
            )
            return
        self._coordinator.add_partitions(
            transactional_id,
            producer_id,
            epoch,
            partitions,
            version,
            lambda code: reply(dict.fromkeys(partitions, code)),
        )

    def _exists(self, partition: TopicPartition) -> bool:
        image = self._metadata.image
        return image.partition(partition.topic, partition.partition) is not None
