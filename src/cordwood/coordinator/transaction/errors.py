"""Errors of the transaction APIs.

Source: kafka.coordinator.transaction.TransactionStateManager.appendTransactionToLog.
"""

from __future__ import annotations

from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError

_OF_AN_APPEND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def error_of_append(error: KafkaError) -> int:
    """The error code for a client whose record could not be written."""
    return int(_OF_AN_APPEND.get(error.code, error.code))  # type: ignore[call-overload]


class TransactionRequestError(KafkaError):
    """A request is refused; `code` is the error code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message or ErrorCode.of(code).name)
        self.code = int(code)


class IllegalTransitionError(TransactionRequestError):
    """A transition that a transaction's state does not allow.

    Clients are answered UNKNOWN_SERVER_ERROR, as for the IllegalStateException that Kafka throws.
    """

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
