"""The partitions of a coordinator's topic that are led here, as its log.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorPartitionWriter;
kafka.coordinator.transaction.TransactionStateManager.appendTransactionToLog.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Generic, Protocol, TypeVar

from cordwood.broker.coordinators.coordinator_log import LogFormat, LogLoader
from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.log import Appended, EncodedRecord
from cordwood.metadata.image import MetadataImage
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import EncodingError
from cordwood.model.kafka_errors import KafkaError
from cordwood.storage.log.append_result import AppendResult
from cordwood.storage.log.partition_log import PartitionLog

_LOG = logging.getLogger(__name__)

S = TypeVar("S")
R = TypeVar("R")


class Metadata(Protocol):
    """Has the cluster's metadata."""

    @property
    def image(self) -> MetadataImage:
        """The newest image."""


class Partitions(Protocol):
    """The methods of `ReplicaManager` that are used here."""

    def log(self, topic: str, index: int, /) -> PartitionLog:
        """A partition's log; raises KafkaError if it is not led here."""

    def append(
        self,
        topic: str,
        index: int,
        records: bytes,
        /,
        *,
        origin: AppendOrigin,
        verification_guard: object | None,
        transaction_version: int,
    ) -> AppendResult:
        """Appends a batch; raises KafkaError."""


class TopicLog(Generic[S, R]):
    """A `CoordinatorLog`: records are committed when all replicas in sync have them."""

    def __init__(
        self, log_format: LogFormat[S, R], replicas: Partitions, metadata: Metadata
    ) -> None:
        """Reads and writes nothing yet.

        Args:
            log_format: of the records.
            replicas: the partitions that this broker leads.
            metadata: the topics of the cluster.
        """
        self.topic = log_format.topic
        self.contents = log_format.contents
        self._format = log_format
        self._replicas = replicas
        self._metadata = metadata

    def partitions(self) -> Collection[int]:
        """The partitions of the topic; none if there is no such topic."""
        topic = self._metadata.image.topics.get(self.topic)
        return () if topic is None else topic.partitions

    def high_watermark(self, partition: int) -> int:
        """The offset below which records are committed; raises KafkaError."""
        return self._replicas.log(self.topic, partition).high_watermark

    def leader_epoch(self, partition: int) -> int:
        """The leader epoch of a partition; raises KafkaError if it is not led here."""
        self._replicas.log(self.topic, partition)
        return self._metadata.image.topics[self.topic].partitions[partition].leader_epoch

    def loader(self, partition: int) -> LogLoader[S, R]:
        """Reads a partition; raises KafkaError if it is not led here."""
        return LogLoader(self._replicas.log(self.topic, partition), self._format)

    def encode(self, new: Sequence[R]) -> list[EncodedRecord]:
        """The bytes of records.

        Raises:
            CoordinatorRequestError: a value does not fit.
        """
        try:
            return self._format.encode(new)
        except EncodingError as error:
            _LOG.error("Cannot write to %s: %s", self.topic, error)
            raise CoordinatorRequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    def append(
        self,
        partition: int,
        made: Sequence[EncodedRecord],
        now_ms: int,
        producer: TransactionalProducer | None,
    ) -> Appended:
        """Appends a batch.

        Raises:
            CoordinatorRequestError: nothing was written; its code is what clients are answered.
        """
        batch = self._format.batch_of(made, now_ms, producer)
        guard = None if producer is None else producer.verification_guard
        try:
            return self._append(partition, batch, guard, 0)
        except KafkaError as error:
            _LOG.warning("Cannot write to %s-%d: %s", self.topic, partition, error)
            raise CoordinatorRequestError(
                self._format.error_of_append(error), str(error)
            ) from error

    def append_marker(self, partition: int, batch: bytes, transaction_version: int) -> Appended:
        """Appends a transaction marker; raises KafkaError."""
        return self._append(partition, batch, None, transaction_version)

    def _append(
        self, partition: int, batch: bytes, guard: object | None, transaction_version: int
    ) -> Appended:
        result = self._replicas.append(
            self.topic,
            partition,
            batch,
            origin=AppendOrigin.COORDINATOR,
            verification_guard=guard,
            transaction_version=transaction_version,
        )
        high_watermark = self._replicas.log(self.topic, partition).high_watermark
        return Appended(result.first_offset, result.last_offset + 1, high_watermark)
