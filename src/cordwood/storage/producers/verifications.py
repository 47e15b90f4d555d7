"""Verifications of transactions with their coordinator, before the first batch is written.

A transaction's first batch has to bring the guard of a verification under way, so that a batch that
was on its way for long does not begin a transaction that its coordinator does not know.

Source: KIP-890; org.apache.kafka.storage.internals.log.VerificationStateEntry, UnifiedLog.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cordwood.format.batch_header import TRANSACTIONAL_BIT, BatchHeader
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.kafka_errors import InvalidProducerEpochError, InvalidTxnStateError
from cordwood.storage.producers.producer_entry import (
    AttemptedSequence,
    ProducerStateEntry,
    VerificationGuard,
    VerificationState,
)

_Attempt = TypeVar("_Attempt", bound=AttemptedSequence)


class Verifications:
    """The verifications under way in one log, by producer.

    `is_required` is transaction.partition.verification.enable, and may be set at any time.
    """

    def __init__(
        self, entry_of: Callable[[int], ProducerStateEntry | None], *, is_required: bool
    ) -> None:
        """None is under way; `entry_of` returns the state of a producer."""
        self.is_required = is_required
        self._entry_of = entry_of
        self._by_producer: dict[int, VerificationState] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def has_ongoing_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether that producer has a transaction open in that epoch."""
        entry = self._entry_of(producer_id)
        return (
            entry is not None
            and entry.current_txn_first_offset is not None
            and entry.producer_epoch == producer_epoch
        )

    def create(
        self,
        producer_id: int,
        sequence: int,
        producer_epoch: int,
        *,
        now_ms: int,
        supports_epoch_bump: bool = True,
    ) -> VerificationState:
        """A producer's verification, begun now where there is none.

        Args:
            producer_id: whose.
            sequence: of the batch to be written.
            producer_epoch: likewise.
            now_ms: for its expiry.
            supports_epoch_bump: whether each transaction has an epoch of its own; what it was at
                first stays.
        """
        state = self._by_producer.get(producer_id)
        if state is None:
            state = VerificationState(
                now_ms, sequence, producer_epoch, supports_epoch_bump=supports_epoch_bump
            )
            self._by_producer[producer_id] = state
        state.note(sequence, producer_epoch)
        return state

    def get(self, producer_id: int) -> VerificationState | None:
        """A producer's verification under way."""
        return self._by_producer.get(producer_id)

    def remove(self, producer_id: int) -> None:
        """Ends a producer's verification."""
        self._by_producer.pop(producer_id, None)

    def maybe_start(
        self,
        producer_id: int,
        sequence: int,
        producer_epoch: int,
        *,
        now_ms: int,
        supports_epoch_bump: bool = True,
    ) -> VerificationGuard | None:
        """The guard that a transaction's first batch has to bring; None when one is under way.

        Raises:
            InvalidProducerEpochError: the epoch is older than the one known.

        Source: UnifiedLog.maybeStartTransactionVerification.
        """
        self._require_epoch(producer_id, producer_epoch)
        if self.has_ongoing_transaction(producer_id, producer_epoch):
            return None
        return self.create(
            producer_id,
            sequence,
            producer_epoch,
            now_ms=now_ms,
            supports_epoch_bump=supports_epoch_bump,
        ).guard

    def require_verified(
        self, header: BatchHeader, origin: AppendOrigin, guard: object | None
    ) -> None:
        """Refuses a batch that would begin a transaction nobody has verified.

        Args:
            header: of a batch with a producer id.
            origin: a client or a coordinator; others are let through.
            guard: from `maybe_start`.

        Raises:
            InvalidProducerEpochError: the epoch is older than the one known.
            InvalidTxnStateError: the guard is missing, or is not that of the producer's
                verification under way.

        Source: UnifiedLog.analyzeAndValidateProducerState, batchMissingRequiredVerification.
        """
        if not header.attributes & TRANSACTIONAL_BIT:
            return
        if origin is not AppendOrigin.CLIENT and origin is not AppendOrigin.COORDINATOR:
            return
        producer_id = header.producer_id
        if self.has_ongoing_transaction(producer_id, header.producer_epoch):
            return
        self._require_epoch(producer_id, header.producer_epoch)
        if self.is_required and not header.is_control:
            state = self._by_producer.get(producer_id)
            if state is None or state.guard is not guard:
                raise InvalidTxnStateError("Record was not part of an ongoing transaction")

    def _require_epoch(self, producer_id: int, producer_epoch: int) -> None:
        entry = self._entry_of(producer_id)
        if entry is not None and producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"Epoch of producer {producer_id} is {producer_epoch}, which is smaller than the "
                f"last seen epoch {entry.producer_epoch}"
            )

    def remove_older(self, oldest_ms: int) -> None:
        """Ends the verifications that began at a time (ms) or before."""
        self._by_producer = newer_than(oldest_ms, self._by_producer)


def newer_than(oldest_ms: int, attempts: dict[int, _Attempt]) -> dict[int, _Attempt]:
    """The attempts that began after a time (ms), by producer."""
    return {
        producer_id: each for producer_id, each in attempts.items() if each.timestamp > oldest_ms
    }
