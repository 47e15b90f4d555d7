"""Errors that Kafka's protocol has a code for: what a log answers when it refuses.

`code` is the error code on the wire. Texts are Kafka's own where Kafka has one.

Source: org.apache.kafka.common.protocol.Errors, org.apache.kafka.common.errors.
"""

from __future__ import annotations

from dataclasses import dataclass

from cordwood.model.errors import CordwoodError, NoSpaceError


class KafkaError(CordwoodError):
    """An error with a code that clients know."""

    code: int = -1


class UnknownServerError(KafkaError):
    """An error that the broker did not expect; clients get no details."""


class OffsetOutOfRangeError(KafkaError):
    """An offset outside the log, or above the high watermark where it must not be."""

    code = 1


class CorruptMessageError(KafkaError):
    """A batch whose CRC, size or records are not what its header says."""

    code = 2


class UnknownTopicOrPartitionError(KafkaError):
    """A topic or partition that does not exist."""

    code = 3


class NotLeaderOrFollowerError(KafkaError):
    """A partition that another broker leads."""

    code = 6


class RequestTimedOutError(KafkaError):
    """A request whose records were not committed in time."""

    code = 7


class ReplicaNotAvailableError(KafkaError):
    """A partition of which this broker has no replica."""

    code = 9


class CoordinatorLoadInProgressError(KafkaError):
    """A coordinator that is still reading its records."""

    code = 14


class NotCoordinatorError(KafkaError):
    """A coordinator that another broker is, or whose records cannot be read."""

    code = 16


class RecordTooLargeError(KafkaError):
    """A batch larger than max.message.bytes."""

    code = 10


class RecordBatchTooLargeError(KafkaError):
    """More bytes in one append than segment.bytes allows."""

    code = 18


class InvalidTimestampError(KafkaError):
    """A record whose timestamp lies outside the topic's bounds."""

    code = 32


class PolicyViolationError(KafkaError):
    """A request that the topic's policy forbids."""

    code = 44


class UnsupportedForMessageFormatError(KafkaError):
    """A request that the magic of the log's batches does not allow."""

    code = 43


class OutOfOrderSequenceError(KafkaError):
    """A producer's batch that does not follow its last one."""

    code = 45


class InvalidProducerEpochError(KafkaError):
    """A producer's batch with an epoch older than the one known."""

    code = 47


class InvalidTxnStateError(KafkaError):
    """A batch that the producer's transaction does not allow."""

    code = 48


class TransactionCoordinatorFencedError(KafkaError):
    """A marker of a coordinator that has been replaced."""

    code = 52


class TopicAuthorizationError(KafkaError):
    """The client may not do this to the topic."""

    code = 29


class GroupAuthorizationError(KafkaError):
    """The client may not do this to the group."""

    code = 30


class ClusterAuthorizationError(KafkaError):
    """The client may not do this to the cluster."""

    code = 31


class TransactionalIdAuthorizationError(KafkaError):
    """A transactional id that the client may not use, or none where one is needed."""

    code = 53


class StorageError(KafkaError):
    """The log's directory is offline, or the disk refused the work.

    Source: org.apache.kafka.common.errors.KafkaStorageException.
    """

    code = 56

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

    code = 74


class UnsupportedCompressionTypeError(KafkaError):
    """A codec that the log or the request does not allow."""

    code = 76


class InvalidRecordError(KafkaError):
    """A batch or record that breaks a rule of its topic."""

    code = 87


class InconsistentTopicIdError(KafkaError):
    """A partition's directory that belongs to another topic of the same name."""

    code = 103


class UnknownLeaderEpochError(KafkaError):
    """A request with a leader epoch newer than the log's."""

    code = 75


class UnknownTopicIdError(KafkaError):
    """A topic id that no topic has."""

    code = 100


class FetchSessionIdNotFoundError(KafkaError):
    """A fetch session that is not, or no longer, kept."""

    code = 70


class FetchSessionTopicIdError(KafkaError):
    """A fetch session that goes from topic names to ids, or the other way round."""

    code = 106


class InvalidFetchSessionEpochError(KafkaError):
    """A request of a fetch session out of its order."""

    code = 71


class InvalidRequestError(KafkaError):
    """A request whose fields contradict each other."""

    code = 42


class InvalidTopicError(KafkaError):
    """A topic name that is not allowed, or collides with another."""

    code = 17


class TopicAlreadyExistsError(KafkaError):
    """A topic of that name is there."""

    code = 36


class InvalidPartitionsError(KafkaError):
    """A number of partitions that cannot be."""

    code = 37


class InvalidReplicationFactorError(KafkaError):
    """A replication factor that the brokers there are do not allow."""

    code = 38


class InvalidReplicaAssignmentError(KafkaError):
    """Replicas on brokers that cannot hold them."""

    code = 39


class InvalidConfigError(KafkaError):
    """A setting that is unknown, or a value that it does not take."""

    code = 40


class NotControllerError(KafkaError):
    """A request to a controller that is not, or no longer, the active one."""

    code = 41


class TopicDeletionDisabledError(KafkaError):
    """Topics cannot be deleted: delete.topic.enable is false."""

    code = 73


class StaleBrokerEpochError(KafkaError):
    """A broker that has registered again since."""

    code = 77


class PreferredLeaderNotAvailableError(KafkaError):
    """An election of a preferred leader that is not eligible."""

    code = 80


class EligibleLeadersNotAvailableError(KafkaError):
    """An election without a replica that may lead."""

    code = 83


class ElectionNotNeededError(KafkaError):
    """An election that would change nothing."""

    code = 84


class NoReassignmentInProgressError(KafkaError):
    """A reassignment to be cancelled that is not under way."""

    code = 85


class InvalidUpdateVersionError(KafkaError):
    """A feature level that cannot be set."""

    code = 95


class BrokerIdNotRegisteredError(KafkaError):
    """A broker that is not registered."""

    code = 102


class UnsupportedRequestError(KafkaError):
    """A request of which a part is of a version that is not known.

    Source: org.apache.kafka.common.errors.UnsupportedVersionException.
    """

    code = 35


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


@dataclass(frozen=True, slots=True)
class RecordError:
    """What is wrong with one record of a refused batch; `index` counts from 0 in the request."""

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
