"""Errors of the transaction APIs beyond those of all coordinators."""

from __future__ import annotations

from cordwood.coordinator.errors import CoordinatorRequestError
from cordwood.coordinator.errors import error_of_append as _error_of_append
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError


def error_of_append(error: KafkaError) -> int:
    """The error code for a client whose record could not be written.

    Source: kafka.coordinator.transaction.TransactionStateManager.appendTransactionToLog.
    """
    if error.code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
        return int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _error_of_append(error)


class IllegalTransitionError(CoordinatorRequestError):
    """A transition that a transaction's state does not allow.

    Clients are answered UNKNOWN_SERVER_ERROR, as for the IllegalStateException that Kafka throws.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
