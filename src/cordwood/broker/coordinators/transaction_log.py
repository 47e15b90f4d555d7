"""`__transaction_state` as the log of the transaction coordinator.

Source: kafka.coordinator.transaction.TransactionStateManager (appendTransactionToLog,
loadTransactionMetadata).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from cordwood.broker.coordinators.coordinator_log import (
    CoordinatorTopic,
    LogLoader,
    Metadata,
    Partitions,
)
from cordwood.coordinator.effects import TransactionalProducer
from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.log import Appended, EncodedRecord
from cordwood.coordinator.transaction import records
from cordwood.coordinator.transaction.errors import error_of_append
from cordwood.coordinator.transaction.records import TransactionRecord
from cordwood.coordinator.transaction.shard import TransactionShard
from cordwood.format.record_batch import LegacyBatch, RecordBatch
from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CorruptError, EncodingError, UnsupportedVersionError
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_names import TRANSACTION_STATE_TOPIC

_REMEDY = (
    "Producers with a transactional id of this partition are answered NOT_COORDINATOR. Stop the "
    "broker and restore the partition's directory from a copy, or remove it: transactions that are "
    "open then have to be aborted with `cordwood transactions`"
)

_LOG = logging.getLogger(__name__)

#: The first bytes of values that are known.
_VALUE_VERSIONS = frozenset((b"\0\0", b"\0\1"))


class TransactionLog:
    """The partitions of `__transaction_state` that are led here.

    Records are not compressed, and are committed when all replicas in sync have them, whatever the
    broker's settings say.
    """

    topic = TRANSACTION_STATE_TOPIC
    contents = "transactions"

    def __init__(self, replicas: Partitions, metadata: Metadata) -> None:
        """Reads and writes nothing yet.

        Args:
            replicas: the partitions that this broker leads.
            metadata: the topics of the cluster.
        """
        self._topic = CoordinatorTopic(TRANSACTION_STATE_TOPIC, replicas, metadata)
        self._metadata = metadata

    def partitions(self) -> Collection[int]:
        """The partitions of the topic; none if there is no such topic."""
        return self._topic.partitions()

    def high_watermark(self, partition: int) -> int:
        """The offset below which records are committed; raises KafkaError."""
        return self._topic.log(partition).high_watermark

    def leader_epoch(self, partition: int) -> int:
        """The leader epoch of a partition; raises KafkaError if it is not led here."""
        self._topic.log(partition)
        topic = self._metadata.image.topics[TRANSACTION_STATE_TOPIC]
        return topic.partitions[partition].leader_epoch

    # ---- writing

    def encode(self, new: Sequence[TransactionRecord]) -> list[EncodedRecord]:
        """The bytes of records.

        Raises:
            CoordinatorRequestError: a value does not fit.
        """
        try:
            return [records.encode(record) for record in new]
        except EncodingError as error:
            _LOG.error("Cannot write to %s: %s", TRANSACTION_STATE_TOPIC, error)
            raise CoordinatorRequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error

    def append(
        self,
        partition: int,
        made: Sequence[EncodedRecord],
        now_ms: int,
        _producer: TransactionalProducer | None,
    ) -> Appended:
        """Appends a batch; no record of the topic is part of a transaction.

        Raises:
            CoordinatorRequestError: nothing was written; the code is the one that clients are
                answered.
        """
        try:
            return self._topic.append(partition, records.batch_of(made, now_ms=now_ms))
        except KafkaError as error:
            _LOG.info("Cannot write to %s-%d: %s", TRANSACTION_STATE_TOPIC, partition, error)
            raise CoordinatorRequestError(error_of_append(error), str(error)) from error

    def append_marker(self, partition: int, batch: bytes, transaction_version: int) -> Appended:
        """Appends a transaction marker; raises KafkaError."""
        return self._topic.append(partition, batch, transaction_version=transaction_version)

    # ---- reading

    def loader(self, partition: int) -> LogLoader[TransactionShard]:
        """Reads a partition; raises KafkaError if it is not led here."""
        return LogLoader(
            self._topic.log(partition),
            _Replay,
            remedy=_REMEDY,
            loaded=lambda state: (len(state.transactions), "transactions"),
        )


class _Replay:
    """Replays batches. A record waits: mostly, a later one of its key takes its place."""

    def __init__(self, state: TransactionShard) -> None:
        self.offset = 0
        self._state = state
        # The newest value of each key with its offset.
        self._newest: dict[bytes | None, tuple[bytes | None, int]] = {}

    def batch(self, batch: RecordBatch | LegacyBatch) -> None:
        """Takes the records of a batch; control records say nothing of transactional ids."""
        if isinstance(batch, LegacyBatch):
            for record in batch.records():
                self._take(record.offset, record.key, record.value)
        elif not batch.header.is_control:
            base_offset = batch.header.base_offset
            for _, offset_delta, key, value, _, _ in batch.iter_fields():
                self._take(base_offset + offset_delta, key, value)

    def _take(self, offset: int, key: bytes | None, value: bytes | None) -> None:
        if value is None or value[:2] in _VALUE_VERSIONS:
            self._newest[key] = value, offset
        else:  # it does not take the place of one that is known
            self.offset = offset
            self._record(key, value)

    def flush(self) -> None:
        """Replays the records that wait."""
        for key, (value, offset) in self._newest.items():
            self.offset = offset
            self._record(key, value)
        self._newest.clear()

    def _record(self, key: bytes | None, value: bytes | None) -> None:
        """Replays a record; one of an unknown type or version is logged and left alone."""
        try:
            record = records.decode(key, value)
        except UnsupportedVersionError as error:
            _LOG.warning(
                "The record at offset %d of %s-%d is ignored: %s. It may be left over from an "
                "aborted upgrade.",
                self.offset,
                TRANSACTION_STATE_TOPIC,
                self._state.partition,
                error,
            )
        except CorruptError as error:
            raise type(error)(
                f"the transaction at offset {self.offset} cannot be read: {error.reason}"
            ) from error
        else:
            self._state.replay(record)
