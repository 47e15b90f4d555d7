"""The change of one producer by an append: checked first, and applied when it is in the log.

Source: org.apache.kafka.storage.internals.log.ProducerAppendInfo.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from cordwood.format.batch_header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from cordwood.format.control_record import ControlType, EndTxnMarker
from cordwood.format.record import SEQUENCE_MAX
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    StorageError,
    TransactionCoordinatorFencedError,
)
from cordwood.model.topic_partition import TopicPartition
from cordwood.storage.producers.producer_entry import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    AttemptedSequence,
    BatchMetadata,
    CompletedTransaction,
    OngoingTransaction,
    ProducerStateEntry,
    VerificationState,
)

_log = logging.getLogger(__name__)

EPOCH_MAX = (1 << 15) - 1

#: transactions.protocol of a data batch: the checks of a data batch do not use it.
TRANSACTION_VERSION_UNKNOWN = -1
#: From this version on, each transaction has an epoch of its own (KIP-890).
TRANSACTION_VERSION_EPOCHS = 2


class ProducerAppendInfo:
    """The change of one producer by an append: validated, and applied by `update`.

    `entry` is the producer as it will be, with the batches of this append alone.
    """

    __slots__ = (
        "_current",
        "_origin",
        "_refused",
        "_topic_partition",
        "_verification",
        "_warn",
        "ends_verification",
        "entry",
        "producer_id",
        "started_transactions",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        current: ProducerStateEntry,
        origin: AppendOrigin,
        verification: VerificationState | None = None,
        *,
        refused: AttemptedSequence | None = None,
        on_warning: Callable[[str], None] = _log.warning,
    ) -> None:
        """Begins with the producer's present state.

        Args:
            topic_partition: of the log, for errors' texts.
            current: the producer as it is, empty when it is new.
            origin: how much is checked.
            verification: the producer's, while a transaction of its is being verified.
            refused: of the producer's batches that did not fit on the disk.
            on_warning: called for batches that a leader would have refused.
        """
        self.producer_id = current.producer_id
        self.entry = ProducerStateEntry(
            current.producer_id,
            current.producer_epoch,
            current.coordinator_epoch,
            current.last_timestamp,
            current.current_txn_first_offset,
        )
        self.started_transactions: list[OngoingTransaction] = []
        #: Whether the producer's verification is over once this has been appended.
        self.ends_verification = False
        self._topic_partition = topic_partition
        self._current = current
        self._origin = origin
        self._verification = verification
        self._refused = refused
        self._warn = on_warning

    def append(
        self,
        header: BatchHeader,
        marker: EndTxnMarker | None = None,
        *,
        transaction_version: int = 0,
    ) -> CompletedTransaction | None:
        """Checks a batch and takes note of it; the transaction that it ends, if any.

        Args:
            header: the batch's, with its offsets in the log.
            marker: what the batch says if it is a control batch; None for one without records,
                which a cleaning has left of a transaction that is gone.
            transaction_version: what a marker is written under; nothing to a follower.

        Raises:
            InvalidProducerEpochError: the epoch is older than the one known, unless replicated.
            OutOfOrderSequenceError: a client's sequence does not follow the last.
            StorageError: a client's batch before it did not fit on the disk.
            InvalidTxnStateError: a batch outside of the transaction that is open.
            TransactionCoordinatorFencedError: another coordinator has taken over, unless
                replicated.
        """
        attributes = header.attributes
        completed = None
        if not attributes & CONTROL_BIT:
            self.append_data_batch(
                header.producer_epoch,
                header.base_sequence,
                header.last_sequence,
                header.max_timestamp,
                header.base_offset,
                header.last_offset_delta,
                is_transactional=bool(attributes & TRANSACTIONAL_BIT),
            )
        elif marker is not None:
            # A marker's batch has one record: its maximum timestamp is the marker's.
            completed = self.append_end_txn_marker(
                marker,
                header.producer_epoch,
                header.base_offset,
                header.max_timestamp,
                transaction_version=transaction_version,
            )
        if attributes & TRANSACTIONAL_BIT and not self._verifies_the_next(header):
            self.ends_verification = True
        return completed

    def append_data_batch(
        self,
        producer_epoch: int,
        first_sequence: int,
        last_sequence: int,
        timestamp: int,
        first_offset: int,
        offset_delta: int,
        *,
        is_transactional: bool,
    ) -> None:
        """Checks and adds a data batch; `offset_delta` is its last offset less its first."""
        entry = self.entry
        if producer_epoch < entry.producer_epoch:
            self._refuse_epoch(producer_epoch, first_offset, TRANSACTION_VERSION_UNKNOWN)
        if self._origin is AppendOrigin.CLIENT:
            self._check_sequence(producer_epoch, first_sequence, first_offset)
        entry.add_batch(
            producer_epoch,
            BatchMetadata(last_sequence, first_offset + offset_delta, offset_delta, timestamp),
        )
        if is_transactional:
            if entry.current_txn_first_offset is None:
                entry.current_txn_first_offset = first_offset
                self.started_transactions.append(OngoingTransaction(self.producer_id, first_offset))
        elif entry.current_txn_first_offset is not None:
            raise InvalidTxnStateError(
                f"Expected transactional write from producer {self.producer_id} at offset "
                f"(offset={first_offset}, segment=[-1:-1]) in partition {self._topic_partition}"
            )

    def append_end_txn_marker(
        self,
        marker: EndTxnMarker,
        producer_epoch: int,
        offset: int,
        timestamp: int,
        *,
        transaction_version: int = 0,
    ) -> CompletedTransaction | None:
        """Checks and adds a marker; None if the transaction had no records here."""
        if self._origin is AppendOrigin.REPLICATION:
            transaction_version = 0
        self._check_marker_epoch(producer_epoch, offset, transaction_version)
        self._check_coordinator_epoch(marker, offset)
        first_offset = self.entry.current_txn_first_offset
        self.entry.end_transaction(producer_epoch, marker.coordinator_epoch, timestamp)
        if first_offset is None:
            return None
        is_aborted = marker.control_type is ControlType.ABORT
        return CompletedTransaction(self.producer_id, first_offset, offset, is_aborted)

    def _verifies_the_next(self, header: BatchHeader) -> bool:
        """Whether a marker ends one transaction while the next is being verified already.

        With an epoch for each transaction, the marker carries that of the next.
        """
        state = self._verification
        return (
            state is not None
            and state.supports_epoch_bump
            and header.is_control
            and header.producer_epoch == state.producer_epoch
        )

    def _check_marker_epoch(self, epoch: int, offset: int, transaction_version: int) -> None:
        known = self.entry.producer_epoch
        if transaction_version < TRANSACTION_VERSION_EPOCHS:
            if epoch < known:
                self._refuse_epoch(epoch, offset, transaction_version)
        elif epoch <= known:
            # The same marker again, after its answer was lost or its coordinator moved: it is
            # written once more. The last epoch of all cannot be followed by another.
            is_ended = self.entry.current_txn_first_offset is None
            if epoch < known or not (is_ended or epoch == EPOCH_MAX):
                self._refuse_epoch(epoch, offset, transaction_version)

    def _refuse_epoch(self, epoch: int, offset: int, transaction_version: int) -> None:
        comparison = "<=" if transaction_version >= TRANSACTION_VERSION_EPOCHS else "<"
        text = (
            f"Epoch of producer {self.producer_id} at offset {offset} in {self._topic_partition} "
            f"is {epoch}, which is {comparison} the last seen epoch {self.entry.producer_epoch} "
            f"(TV{transaction_version})"
        )
        if self._origin is not AppendOrigin.REPLICATION:
            raise InvalidProducerEpochError(text)
        self._warn(text)

    def _check_sequence(self, epoch: int, first_sequence: int, offset: int) -> None:
        entry = self.entry
        verification = self._verification
        if verification is not None:
            self._check_verification(verification, first_sequence, offset)
        refused = self._refused
        if refused is not None and epoch == refused.producer_epoch:
            self._check_refused(refused, first_sequence)
        if epoch != entry.producer_epoch:
            if first_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
                raise OutOfOrderSequenceError(
                    f"Invalid sequence number for new epoch of producer {self.producer_id} at "
                    f"offset {offset} in partition {self._topic_partition}: {epoch} (request "
                    f"epoch), {first_sequence} (seq. number), {entry.producer_epoch} (current "
                    "producer epoch)"
                )
            return
        current = self._current
        if entry.batches:
            last = entry.batches[-1].last_sequence
        elif epoch == current.producer_epoch:
            last = current.last_sequence
        else:
            last = NO_SEQUENCE
        follows = first_sequence == last + 1 or (first_sequence == 0 and last == SEQUENCE_MAX)
        # A producer whose records were all removed may continue with any sequence.
        if not follows and current.producer_epoch != NO_PRODUCER_EPOCH:
            raise OutOfOrderSequenceError(
                f"{self._out_of_order(offset)}: {first_sequence} (incoming seq. number), "
                f"{last} (current end sequence number)"
            )

    def _check_verification(
        self, verification: VerificationState, first_sequence: int, offset: int
    ) -> None:
        if verification.supports_epoch_bump and first_sequence != 0 and self._current.is_empty:
            raise OutOfOrderSequenceError(
                f"Invalid sequence number for producer {self.producer_id} at offset {offset} in "
                f"partition {self._topic_partition}: {first_sequence} (incoming seq. number). "
                "Expected sequence 0 for transactions v2 idempotent producer with no existing "
                "state."
            )
        if first_sequence > verification.lowest_sequence:
            raise OutOfOrderSequenceError(
                f"{self._out_of_order(offset)}: {first_sequence} (incoming seq. number), "
                f"{verification.lowest_sequence} (earliest seen sequence)"
            )

    def _check_refused(self, refused: AttemptedSequence, first_sequence: int) -> None:
        if first_sequence > refused.lowest_sequence:
            raise StorageError(
                f"A batch of producer {self.producer_id} with sequence {refused.lowest_sequence} "
                f"did not fit on the disk of {self._topic_partition}: sequence {first_sequence} "
                "is refused until it is written"
            )

    def _out_of_order(self, offset: int) -> str:
        return (
            f"Out of order sequence number for producer {self.producer_id} at offset {offset} in "
            f"partition {self._topic_partition}"
        )

    def _check_coordinator_epoch(self, marker: EndTxnMarker, offset: int) -> None:
        known = self.entry.coordinator_epoch
        if known <= marker.coordinator_epoch:
            return
        if self._origin is not AppendOrigin.REPLICATION:
            raise TransactionCoordinatorFencedError(
                f"Invalid coordinator epoch for producerId {self.producer_id} at offset {offset} "
                f"in partition {self._topic_partition}: {marker.coordinator_epoch} (zombie), "
                f"{known} (current)"
            )
        _log.info(
            "Detected invalid coordinator epoch for producerId %s at offset %s in partition %s: "
            "%s is older than previously known coordinator epoch %s",
            self.producer_id,
            offset,
            self._topic_partition,
            marker.coordinator_epoch,
            known,
        )
