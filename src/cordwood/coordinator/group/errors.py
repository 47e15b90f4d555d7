"""Error codes of the group APIs.

Source: org.apache.kafka.common.protocol.Errors;
org.apache.kafka.coordinator.group.GroupMetadataManager.appendGroupMetadataErrorToResponseError.
"""

from __future__ import annotations

from enum import IntEnum

from cordwood.model.kafka_errors import KafkaError


class GroupError(IntEnum):
    """Codes on the wire, by Kafka's names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    KAFKA_STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88
    UNKNOWN_TOPIC_ID = 100


_OF_AN_APPEND = {
    GroupError.UNKNOWN_TOPIC_OR_PARTITION: GroupError.COORDINATOR_NOT_AVAILABLE,
    GroupError.NOT_ENOUGH_REPLICAS: GroupError.COORDINATOR_NOT_AVAILABLE,
    GroupError.REQUEST_TIMED_OUT: GroupError.COORDINATOR_NOT_AVAILABLE,
    GroupError.NOT_LEADER_OR_FOLLOWER: GroupError.NOT_COORDINATOR,
    GroupError.KAFKA_STORAGE_ERROR: GroupError.NOT_COORDINATOR,
    GroupError.MESSAGE_TOO_LARGE: GroupError.UNKNOWN_SERVER_ERROR,
    GroupError.RECORD_LIST_TOO_LARGE: GroupError.UNKNOWN_SERVER_ERROR,
}


def error_of_append(error: KafkaError) -> int:
    """The error code for a client whose records could not be written."""
    return _OF_AN_APPEND.get(error.code, error.code)  # type: ignore[call-overload, no-any-return]


class GroupRequestError(KafkaError):
    """A group refuses a request; `code` is the error code."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message or GroupError(code).name)
        self.code = int(code)
