"""Errors of the APIs that a coordinator serves.

Source: org.apache.kafka.coordinator.group.GroupMetadataManager,
kafka.coordinator.transaction.TransactionStateManager.
"""

from __future__ import annotations

from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError

_OF_AN_APPEND = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def error_of_append(error: KafkaError) -> int:
    """The error code for a client whose records could not be written."""
    return int(_OF_AN_APPEND.get(error.code, error.code))  # type: ignore[call-overload]


def error_of_fetch(error: KafkaError) -> int:
    """The error code for a client whose OffsetFetch waited for records that were not committed.

    Consumers before 3.9 do not send it again after COORDINATOR_NOT_AVAILABLE.

    Source: GroupCoordinatorService.handleOffsetFetchException.
    """
    code = error_of_append(error)
    is_replaced = code != error.code and code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    return int(ErrorCode.NOT_COORDINATOR) if is_replaced else code


class CoordinatorRequestError(KafkaError):
    """A coordinator refuses a request; `code` is the error code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message or ErrorCode.of(code).name)
        self.code = int(code)
