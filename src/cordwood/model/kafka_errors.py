"""Errors that Kafka's protocol has a code for: what a log answers when it refuses.

`code` is the error code on the wire, that of the class's name if a class names no other. Texts are
Kafka's own where Kafka has one.

Source: org.apache.kafka.common.protocol.Errors, org.apache.kafka.common.errors.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cordwood.model.error_codes import ErrorCode
from cordwood.model.errors import CordwoodError, NoSpaceError

_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class KafkaError(CordwoodError):
    """An error with a code that clients know."""

    code: int = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init_subclass__(cls) -> None:
        """Gives a class the code of its name: InvalidTimestampError has INVALID_TIMESTAMP."""
        if "code" not in vars(cls):
            name = _CAPITAL.sub("_", cls.__name__.removesuffix("Error")).upper()
            cls.code = ErrorCode.__members__.get(name, cls.code)


class UnknownServerError(KafkaError):
    """An error that the broker did not expect; clients get no details."""


class OffsetOutOfRangeError(KafkaError):
    """An offset outside the log, or above the high watermark where it must not be."""


class CorruptMessageError(KafkaError):
    """A batch whose CRC, size or records are not what its header says."""


class UnknownTopicOrPartitionError(KafkaError):
    """A topic or partition that does not exist."""


class NotLeaderOrFollowerError(KafkaError):
    """A partition that another broker leads."""


class RequestTimedOutError(KafkaError):
    """A request whose records were not committed in time."""


class NotEnoughReplicasError(KafkaError):
    """Fewer replicas are in sync than `min.insync.replicas`."""


class OffsetNotAvailableError(KafkaError):
    """A new leader does not know yet how far its log is committed (KIP-207)."""


class ReplicaNotAvailableError(KafkaError):
    """A partition of which this broker has no replica."""


class CoordinatorLoadInProgressError(KafkaError):
    """A coordinator that is still reading its records."""


class NotCoordinatorError(KafkaError):
    """A coordinator that another broker is, or whose records cannot be read."""


class RecordTooLargeError(KafkaError):
    """A batch larger than max.message.bytes."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordBatchTooLargeError(KafkaError):
    """More bytes in one append than segment.bytes allows."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class InvalidTimestampError(KafkaError):
    """A record whose timestamp lies outside the topic's bounds."""


class PolicyViolationError(KafkaError):
    """A request that the topic's policy forbids."""


class UnsupportedForMessageFormatError(KafkaError):
    """A request that the magic of the log's batches does not allow."""


class OutOfOrderSequenceError(KafkaError):
    """A producer's batch that does not follow its last one."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(KafkaError):
    """A producer's batch with an epoch older than the one known."""


class InvalidTxnStateError(KafkaError):
    """A batch that the producer's transaction does not allow."""


class InvalidProducerIdMappingError(KafkaError):
    """A producer id that is not the one of the transactional id."""


class TransactionCoordinatorFencedError(KafkaError):
    """A marker of a coordinator that has been replaced."""


class TopicAuthorizationError(KafkaError):
    """The client may not do this to the topic."""

    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class GroupAuthorizationError(KafkaError):
    """The client may not do this to the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class ClusterAuthorizationError(KafkaError):
    """The client may not do this to the cluster."""

    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class TransactionalIdAuthorizationError(KafkaError):
    """A transactional id that the client may not use, or none where one is needed."""

    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


class StorageError(KafkaError):
    """The log's directory is offline, or the disk refused the work.

    Source: org.apache.kafka.common.errors.KafkaStorageException.
    """

    code = ErrorCode.KAFKA_STORAGE_ERROR

    @property
    def is_out_of_space(self) -> bool:
        """Whether the cause is a full disk: the directory is online, and trying again is sound."""
        cause = self.__cause__
        if isinstance(cause, StorageError):
            return cause.is_out_of_space
        return isinstance(cause, NoSpaceError)


class NotCaughtUpError(StorageError):
    """A future log lacks records of the current one that it is to replace."""


class FencedLeaderEpochError(KafkaError):
    """A request with a leader epoch older than the log's."""


class UnsupportedCompressionTypeError(KafkaError):
    """A codec that the log or the request does not allow."""


class InvalidRecordError(KafkaError):
    """A batch or record that breaks a rule of its topic."""


class InconsistentTopicIdError(KafkaError):
    """A partition's directory that belongs to another topic of the same name."""


class UnknownLeaderEpochError(KafkaError):
    """A request with a leader epoch newer than the log's."""


class UnknownTopicIdError(KafkaError):
    """A topic id that no topic has."""


class FetchSessionIdNotFoundError(KafkaError):
    """A fetch session that is not, or no longer, kept."""


class FetchSessionTopicIdError(KafkaError):
    """A fetch session that goes from topic names to ids, or the other way round."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


class InvalidFetchSessionEpochError(KafkaError):
    """A request of a fetch session out of its order."""


class InvalidRegularExpressionError(KafkaError):
    """A regular expression that RE2 does not take."""


class InvalidRequestError(KafkaError):
    """A request whose fields contradict each other."""


class InvalidTopicError(KafkaError):
    """A topic name that is not allowed, or collides with another."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class TopicAlreadyExistsError(KafkaError):
    """A topic of that name is there."""


class InvalidPartitionsError(KafkaError):
    """A number of partitions that cannot be."""


class InvalidReplicationFactorError(KafkaError):
    """A replication factor that the brokers there are do not allow."""


class InvalidReplicaAssignmentError(KafkaError):
    """Replicas on brokers that cannot hold them."""


class InvalidConfigError(KafkaError):
    """A setting that is unknown, or a value that it does not take."""


class NotControllerError(KafkaError):
    """A request to a controller that is not, or no longer, the active one."""


class TopicDeletionDisabledError(KafkaError):
    """Topics cannot be deleted: delete.topic.enable is false."""


class StaleBrokerEpochError(KafkaError):
    """A broker that has registered again since."""


class DuplicateBrokerRegistrationError(KafkaError):
    """A registration with the id of a broker that is alive."""


class InvalidRegistrationError(KafkaError):
    """A registration of a broker that lacks something, or claims what is another's."""


class SnapshotNotFoundError(KafkaError):
    """A snapshot of the metadata log that there is not, or not any more."""


class PositionOutOfRangeError(KafkaError):
    """A position outside of a snapshot."""


class PreferredLeaderNotAvailableError(KafkaError):
    """An election of a preferred leader that is not eligible."""


class EligibleLeadersNotAvailableError(KafkaError):
    """An election without a replica that may lead."""


class ElectionNotNeededError(KafkaError):
    """An election that would change nothing."""


class NoReassignmentInProgressError(KafkaError):
    """A reassignment to be cancelled that is not under way."""


class InvalidUpdateVersionError(KafkaError):
    """A feature level that cannot be set."""


class BrokerIdNotRegisteredError(KafkaError):
    """A broker that is not registered."""


class ControllerIdNotRegisteredError(KafkaError):
    """A controller that is not registered."""


class UnsupportedRequestError(KafkaError):
    """A request of which a part is of a version that is not known.

    Source: org.apache.kafka.common.errors.UnsupportedVersionException.
    """

    code = ErrorCode.UNSUPPORTED_VERSION


class OffsetsOutOfOrderError(KafkaError):
    """Batches given to a follower whose offsets do not ascend."""


class UnexpectedAppendOffsetError(KafkaError):
    """A batch given to a follower that begins before the log's end.

    `first_offset` and `last_offset` (inclusive) are those of what was to be appended.
    """

    def __init__(self, message: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class InvalidOffsetError(KafkaError):
    """An offset that does not follow the last one of an index.

    Source: org.apache.kafka.common.errors.InvalidOffsetException.
    """


class SegmentOffsetOverflowError(KafkaError):
    """An offset too far from its segment's base for four bytes.

    `base_offset` is the segment's.

    Source: org.apache.kafka.common.errors.LogSegmentOffsetOverflowException.
    """

    def __init__(self, message: str, *, base_offset: int) -> None:
        super().__init__(message)
        self.base_offset = base_offset


class InconsistentClusterIdError(KafkaError):
    """Nodes of two clusters: the ids of their clusters differ."""


@dataclass(frozen=True, slots=True)
class RecordError:
    """The fault of one record of a refused batch; `index` counts from 0 in the request."""

    index: int
    message: str


class RecordValidationError(KafkaError):
    """Records that break rules, and which: the code is that of `cause`.

    Source: org.apache.kafka.storage.internals.log.RecordValidationException.
    """

    def __init__(self, cause: KafkaError, record_errors: list[RecordError]) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.record_errors = record_errors
        self.code = cause.code
