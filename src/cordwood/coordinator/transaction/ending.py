"""Whether a transaction may be ended as a client wants it to be.

With transaction version 2 each end of a transaction bumps the epoch. So the epoch of a request says
whether it is repeated: then the transaction has the next epoch, or a new producer id. A client that
does not know the state of its transaction aborts it, which is possible if there is none.

Source: kafka.coordinator.transaction.TransactionCoordinator.endTransaction, endTransactionWithTV1;
KIP-890.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from cordwood.coordinator.transaction.requests import EndRequest
from cordwood.coordinator.transaction.transaction import (
    EPOCH_BUMP_VERSION,
    EPOCH_MAX,
    Transaction,
    TransactionState,
)
from cordwood.model.error_codes import ErrorCode

_LOG = logging.getLogger(__name__)

_COMPLETED: Final[Mapping[TransactionState, bool]] = {
    TransactionState.COMPLETE_COMMIT: True,
    TransactionState.COMPLETE_ABORT: False,
}
"""Whether it was a commit that is completed."""


def end_error(
    known: Transaction | None, request: EndRequest, *, is_pending: bool
) -> ErrorCode | None:
    """The answer if the transaction is not ended by this request; None if it is.

    Args:
        known: the committed transaction; None if there is none.
        request: the request.
        is_pending: whether a transition is in progress.
    """
    if request.client_version < EPOCH_BUMP_VERSION:
        return _error_before_epoch_bumps(known, request, is_pending=is_pending)
    if is_pending:
        # First of all: the new producer id may be in the record that is not committed.
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return _error_with_epoch_bumps(known, request)


def _error_with_epoch_bumps(known: Transaction, request: EndRequest) -> ErrorCode | None:
    """The error of `end_error` from transaction version 2 on, if no transition is in progress."""
    has_new_producer_id = (
        known.prev_producer_id == request.producer_id
        and request.producer_epoch == EPOCH_MAX - 1
        and known.producer_epoch == 0
    )
    has_next_epoch = known.producer_epoch == request.producer_epoch + 1
    is_repeated = has_new_producer_id or has_next_epoch
    completed = _COMPLETED.get(known.state)
    if known.producer_id != request.producer_id and not has_new_producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != request.producer_epoch and (completed is None or not is_repeated):
        return ErrorCode.PRODUCER_FENCED
    if known.state is TransactionState.ONGOING:
        return None
    if is_repeated and completed is request.commit:
        return ErrorCode.NONE
    if not request.commit and not is_repeated:
        return None
    return _invalid_state(known, request)


def _error_before_epoch_bumps(
    known: Transaction | None, request: EndRequest, *, is_pending: bool
) -> ErrorCode | None:
    """The error of `end_error` up to transaction version 1."""
    if known is None or known.producer_id != request.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if known.producer_epoch != request.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.state is TransactionState.ONGOING:
        return None
    if _COMPLETED.get(known.state) is request.commit:
        return ErrorCode.NONE
    return _invalid_state(known, request)


def _invalid_state(known: Transaction, request: EndRequest) -> ErrorCode:
    _LOG.warning(
        "%s is in state %s, and its producer wants to %s a transaction",
        known.transactional_id,
        known.state.kafka_name,
        "commit" if request.commit else "abort",
    )
    return ErrorCode.INVALID_TXN_STATE
