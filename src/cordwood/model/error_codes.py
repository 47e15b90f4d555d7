"""Kafka's error codes: number, name, Java exception, whether clients retry, and message.

This is the only table of error codes: `model.kafka_errors` refers to it by name, and so do all
callers that compare or answer a code. tests/compat/test_error_codes.py compares it with Kafka's.

Source: org.apache.kafka.common.protocol.Errors (4.3.0).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Self

_RETRIABLE = True
_FATAL = False


class ErrorCode(IntEnum):
    """A code on the wire, by Kafka's name.

    `exception` is the simple name of the Java class, empty for NONE. `is_retriable` is true where
    the class extends RetriableException. `message` is the text that Kafka shows when the broker
    sent none.
    """

    exception: str
    is_retriable: bool
    message: str

    def __new__(
        cls, code: int, exception: str = "", is_retriable: bool = False, message: str = ""
    ) -> Self:
        """Builds a member from its row of the table."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.exception = exception
        member.is_retriable = is_retriable
        member.message = message
        return member

    UNKNOWN_SERVER_ERROR = (
        -1,
        "UnknownServerException",
        _FATAL,
        "The server experienced an unexpected error when processing the request.",
    )
    NONE = 0
    OFFSET_OUT_OF_RANGE = (
        1,
        "OffsetOutOfRangeException",
        _FATAL,
        "The requested offset is not within the range of offsets maintained by the server.",
    )
    CORRUPT_MESSAGE = (
        2,
        "CorruptRecordException",
        _RETRIABLE,
        "This message has failed its CRC checksum, exceeds the valid size, has a null key for a"
        " compacted topic, or is otherwise corrupt.",
    )
    UNKNOWN_TOPIC_OR_PARTITION = (
        3,
        "UnknownTopicOrPartitionException",
        _RETRIABLE,
        "This server does not host this topic-partition.",
    )
    INVALID_FETCH_SIZE = (
        4,
        "InvalidFetchSizeException",
        _FATAL,
        "The requested fetch size is invalid.",
    )
    LEADER_NOT_AVAILABLE = (
        5,
        "LeaderNotAvailableException",
        _RETRIABLE,
        "There is no leader for this topic-partition as we are in the middle of a leadership "
        "election.",
    )
    NOT_LEADER_OR_FOLLOWER = (
        6,
        "NotLeaderOrFollowerException",
        _RETRIABLE,
        "For requests intended only for the leader, this error indicates that the broker is not"
        " the current leader. For requests intended for any replica, this error indicates that "
        "the broker is not a replica of the topic partition.",
    )
    REQUEST_TIMED_OUT = 7, "TimeoutException", _RETRIABLE, "The request timed out."
    BROKER_NOT_AVAILABLE = 8, "BrokerNotAvailableException", _FATAL, "The broker is not available."
    REPLICA_NOT_AVAILABLE = (
        9,
        "ReplicaNotAvailableException",
        _RETRIABLE,
        "The replica is not available for the requested topic-partition. Produce/Fetch requests"
        " and other requests intended only for the leader or follower return "
        "NOT_LEADER_OR_FOLLOWER if the broker is not a replica of the topic-partition.",
    )
    MESSAGE_TOO_LARGE = (
        10,
        "RecordTooLargeException",
        _FATAL,
        "The request included a message larger than the max message size the server will accept.",
    )
    STALE_CONTROLLER_EPOCH = (
        11,
        "ControllerMovedException",
        _FATAL,
        "The controller moved to another broker.",
    )
    OFFSET_METADATA_TOO_LARGE = (
        12,
        "OffsetMetadataTooLarge",
        _FATAL,
        "The metadata field of the offset request was too large.",
    )
    NETWORK_EXCEPTION = (
        13,
        "NetworkException",
        _RETRIABLE,
        "The server disconnected before a response was received.",
    )
    COORDINATOR_LOAD_IN_PROGRESS = (
        14,
        "CoordinatorLoadInProgressException",
        _RETRIABLE,
        "The coordinator is loading and hence can't process requests.",
    )
    COORDINATOR_NOT_AVAILABLE = (
        15,
        "CoordinatorNotAvailableException",
        _RETRIABLE,
        "The coordinator is not available.",
    )
    NOT_COORDINATOR = (
        16,
        "NotCoordinatorException",
        _RETRIABLE,
        "This is not the correct coordinator.",
    )
    INVALID_TOPIC_EXCEPTION = (
        17,
        "InvalidTopicException",
        _FATAL,
        "The request attempted to perform an operation on an invalid topic.",
    )
    RECORD_LIST_TOO_LARGE = (
        18,
        "RecordBatchTooLargeException",
        _FATAL,
        "The request included message batch larger than the configured segment size on the server.",
    )
    NOT_ENOUGH_REPLICAS = (
        19,
        "NotEnoughReplicasException",
        _RETRIABLE,
        "Messages are rejected since there are fewer in-sync replicas than required.",
    )
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = (
        20,
        "NotEnoughReplicasAfterAppendException",
        _RETRIABLE,
        "Messages are written to the log, but to fewer in-sync replicas than required.",
    )
    INVALID_REQUIRED_ACKS = (
        21,
        "InvalidRequiredAcksException",
        _FATAL,
        "Produce request specified an invalid value for required acks.",
    )
    ILLEGAL_GENERATION = (
        22,
        "IllegalGenerationException",
        _FATAL,
        "Specified group generation id is not valid.",
    )
    INCONSISTENT_GROUP_PROTOCOL = (
        23,
        "InconsistentGroupProtocolException",
        _FATAL,
        "The group member's supported protocols are incompatible with those of existing members"
        " or first group member tried to join with empty protocol type or empty protocol list.",
    )
    INVALID_GROUP_ID = 24, "InvalidGroupIdException", _FATAL, "The group id is invalid."
    UNKNOWN_MEMBER_ID = (
        25,
        "UnknownMemberIdException",
        _FATAL,
        "The coordinator is not aware of this member.",
    )
    INVALID_SESSION_TIMEOUT = (
        26,
        "InvalidSessionTimeoutException",
        _FATAL,
        "The session timeout is not within the range allowed by the broker (as configured by "
        "group.min.session.timeout.ms and group.max.session.timeout.ms).",
    )
    REBALANCE_IN_PROGRESS = (
        27,
        "RebalanceInProgressException",
        _FATAL,
        "The group is rebalancing, so a rejoin is needed.",
    )
    INVALID_COMMIT_OFFSET_SIZE = (
        28,
        "InvalidCommitOffsetSizeException",
        _FATAL,
        "The committing offset data size is not valid.",
    )
    TOPIC_AUTHORIZATION_FAILED = (
        29,
        "TopicAuthorizationException",
        _FATAL,
        "Topic authorization failed.",
    )
    GROUP_AUTHORIZATION_FAILED = (
        30,
        "GroupAuthorizationException",
        _FATAL,
        "Group authorization failed.",
    )
    CLUSTER_AUTHORIZATION_FAILED = (
        31,
        "ClusterAuthorizationException",
        _FATAL,
        "Cluster authorization failed.",
    )
    INVALID_TIMESTAMP = (
        32,
        "InvalidTimestampException",
        _FATAL,
        "The timestamp of the message is out of acceptable range.",
    )
    UNSUPPORTED_SASL_MECHANISM = (
        33,
        "UnsupportedSaslMechanismException",
        _FATAL,
        "The broker does not support the requested SASL mechanism.",
    )
    ILLEGAL_SASL_STATE = (
        34,
        "IllegalSaslStateException",
        _FATAL,
        "Request is not valid given the current SASL state.",
    )
    UNSUPPORTED_VERSION = (
        35,
        "UnsupportedVersionException",
        _FATAL,
        "The version of API is not supported.",
    )
    TOPIC_ALREADY_EXISTS = (
        36,
        "TopicExistsException",
        _FATAL,
        "Topic with this name already exists.",
    )
    INVALID_PARTITIONS = (
        37,
        "InvalidPartitionsException",
        _FATAL,
        "Number of partitions is below 1.",
    )
    INVALID_REPLICATION_FACTOR = (
        38,
        "InvalidReplicationFactorException",
        _FATAL,
        "Replication factor is below 1 or larger than the number of available brokers.",
    )
    INVALID_REPLICA_ASSIGNMENT = (
        39,
        "InvalidReplicaAssignmentException",
        _FATAL,
        "Replica assignment is invalid.",
    )
    INVALID_CONFIG = 40, "InvalidConfigurationException", _FATAL, "Configuration is invalid."
    NOT_CONTROLLER = (
        41,
        "NotControllerException",
        _RETRIABLE,
        "This is not the correct controller for this cluster.",
    )
    INVALID_REQUEST = (
        42,
        "InvalidRequestException",
        _FATAL,
        "This most likely occurs because of a request being malformed by the client library or "
        "the message was sent to an incompatible broker. See the broker logs for more details.",
    )
    UNSUPPORTED_FOR_MESSAGE_FORMAT = (
        43,
        "UnsupportedForMessageFormatException",
        _FATAL,
        "The message format version on the broker does not support the request.",
    )
    POLICY_VIOLATION = (
        44,
        "PolicyViolationException",
        _FATAL,
        "Request parameters do not satisfy the configured policy.",
    )
    OUT_OF_ORDER_SEQUENCE_NUMBER = (
        45,
        "OutOfOrderSequenceException",
        _FATAL,
        "The broker received an out of order sequence number.",
    )
    DUPLICATE_SEQUENCE_NUMBER = (
        46,
        "DuplicateSequenceException",
        _FATAL,
        "The broker received a duplicate sequence number.",
    )
    INVALID_PRODUCER_EPOCH = (
        47,
        "InvalidProducerEpochException",
        _FATAL,
        "Producer attempted to produce with an old epoch.",
    )
    INVALID_TXN_STATE = (
        48,
        "InvalidTxnStateException",
        _FATAL,
        "The producer attempted a transactional operation in an invalid state.",
    )
    INVALID_PRODUCER_ID_MAPPING = (
        49,
        "InvalidPidMappingException",
        _FATAL,
        "The producer attempted to use a producer id which is not currently assigned to its "
        "transactional id.",
    )
    INVALID_TRANSACTION_TIMEOUT = (
        50,
        "InvalidTxnTimeoutException",
        _FATAL,
        "The transaction timeout is larger than the maximum value allowed by the broker (as "
        "configured by transaction.max.timeout.ms).",
    )
    CONCURRENT_TRANSACTIONS = (
        51,
        "ConcurrentTransactionsException",
        _RETRIABLE,
        "The producer attempted to update a transaction while another concurrent operation on "
        "the same transaction was ongoing.",
    )
    TRANSACTION_COORDINATOR_FENCED = (
        52,
        "TransactionCoordinatorFencedException",
        _FATAL,
        "Indicates that the transaction coordinator sending a WriteTxnMarker is no longer the "
        "current coordinator for a given producer.",
    )
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = (
        53,
        "TransactionalIdAuthorizationException",
        _FATAL,
        "Transactional Id authorization failed.",
    )
    SECURITY_DISABLED = 54, "SecurityDisabledException", _FATAL, "Security features are disabled."
    OPERATION_NOT_ATTEMPTED = (
        55,
        "OperationNotAttemptedException",
        _FATAL,
        "The broker did not attempt to execute this operation. This may happen for batched RPCs"
        " where some operations in the batch failed, causing the broker to respond without "
        "trying the rest.",
    )
    KAFKA_STORAGE_ERROR = (
        56,
        "KafkaStorageException",
        _RETRIABLE,
        "Disk error when trying to access log file on the disk.",
    )
    LOG_DIR_NOT_FOUND = (
        57,
        "LogDirNotFoundException",
        _FATAL,
        "The user-specified log directory is not found in the broker config.",
    )
    SASL_AUTHENTICATION_FAILED = (
        58,
        "SaslAuthenticationException",
        _FATAL,
        "SASL Authentication failed.",
    )
    UNKNOWN_PRODUCER_ID = (
        59,
        "UnknownProducerIdException",
        _FATAL,
        "This exception is raised by the broker if it could not locate the producer metadata "
        "associated with the producerId in question. This could happen if, for instance, the "
        "producer's records were deleted because their retention time had elapsed. Once the "
        "last records of the producerId are removed, the producer's metadata is removed from "
        "the broker, and future appends by the producer will return this exception.",
    )
    REASSIGNMENT_IN_PROGRESS = (
        60,
        "ReassignmentInProgressException",
        _FATAL,
        "A partition reassignment is in progress.",
    )
    DELEGATION_TOKEN_AUTH_DISABLED = (
        61,
        "DelegationTokenDisabledException",
        _FATAL,
        "Delegation Token feature is not enabled.",
    )
    DELEGATION_TOKEN_NOT_FOUND = (
        62,
        "DelegationTokenNotFoundException",
        _FATAL,
        "Delegation Token is not found on server.",
    )
    DELEGATION_TOKEN_OWNER_MISMATCH = (
        63,
        "DelegationTokenOwnerMismatchException",
        _FATAL,
        "Specified Principal is not valid Owner/Renewer.",
    )
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = (
        64,
        "UnsupportedByAuthenticationException",
        _FATAL,
        "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on "
        "delegation token authenticated channels.",
    )
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = (
        65,
        "DelegationTokenAuthorizationException",
        _FATAL,
        "Delegation Token authorization failed.",
    )
    DELEGATION_TOKEN_EXPIRED = (
        66,
        "DelegationTokenExpiredException",
        _FATAL,
        "Delegation Token is expired.",
    )
    INVALID_PRINCIPAL_TYPE = (
        67,
        "InvalidPrincipalTypeException",
        _FATAL,
        "Supplied principalType is not supported.",
    )
    NON_EMPTY_GROUP = 68, "GroupNotEmptyException", _FATAL, "The group is not empty."
    GROUP_ID_NOT_FOUND = 69, "GroupIdNotFoundException", _FATAL, "The group id does not exist."
    FETCH_SESSION_ID_NOT_FOUND = (
        70,
        "FetchSessionIdNotFoundException",
        _RETRIABLE,
        "The fetch session ID was not found.",
    )
    INVALID_FETCH_SESSION_EPOCH = (
        71,
        "InvalidFetchSessionEpochException",
        _RETRIABLE,
        "The fetch session epoch is invalid.",
    )
    LISTENER_NOT_FOUND = (
        72,
        "ListenerNotFoundException",
        _RETRIABLE,
        "There is no listener on the leader broker that matches the listener on which metadata "
        "request was processed.",
    )
    TOPIC_DELETION_DISABLED = (
        73,
        "TopicDeletionDisabledException",
        _FATAL,
        "Topic deletion is disabled.",
    )
    FENCED_LEADER_EPOCH = (
        74,
        "FencedLeaderEpochException",
        _RETRIABLE,
        "The leader epoch in the request is older than the epoch on the broker.",
    )
    UNKNOWN_LEADER_EPOCH = (
        75,
        "UnknownLeaderEpochException",
        _RETRIABLE,
        "The leader epoch in the request is newer than the epoch on the broker.",
    )
    UNSUPPORTED_COMPRESSION_TYPE = (
        76,
        "UnsupportedCompressionTypeException",
        _FATAL,
        "The requesting client does not support the compression type of given partition.",
    )
    STALE_BROKER_EPOCH = 77, "StaleBrokerEpochException", _FATAL, "Broker epoch has changed."
    OFFSET_NOT_AVAILABLE = (
        78,
        "OffsetNotAvailableException",
        _RETRIABLE,
        "The leader high watermark has not caught up from a recent leader election so the "
        "offsets cannot be guaranteed to be monotonically increasing.",
    )
    MEMBER_ID_REQUIRED = (
        79,
        "MemberIdRequiredException",
        _FATAL,
        "The group member needs to have a valid member id before actually entering a consumer "
        "group.",
    )
    PREFERRED_LEADER_NOT_AVAILABLE = (
        80,
        "PreferredLeaderNotAvailableException",
        _RETRIABLE,
        "The preferred leader was not available.",
    )
    GROUP_MAX_SIZE_REACHED = (
        81,
        "GroupMaxSizeReachedException",
        _FATAL,
        "The group has reached its maximum size.",
    )
    FENCED_INSTANCE_ID = (
        82,
        "FencedInstanceIdException",
        _FATAL,
        "The broker rejected this static consumer since another consumer with the same "
        "group.instance.id has registered with a different member.id.",
    )
    ELIGIBLE_LEADERS_NOT_AVAILABLE = (
        83,
        "EligibleLeadersNotAvailableException",
        _RETRIABLE,
        "Eligible topic partition leaders are not available.",
    )
    ELECTION_NOT_NEEDED = (
        84,
        "ElectionNotNeededException",
        _RETRIABLE,
        "Leader election not needed for topic partition.",
    )
    NO_REASSIGNMENT_IN_PROGRESS = (
        85,
        "NoReassignmentInProgressException",
        _FATAL,
        "No partition reassignment is in progress.",
    )
    GROUP_SUBSCRIBED_TO_TOPIC = (
        86,
        "GroupSubscribedToTopicException",
        _FATAL,
        "Deleting offsets of a topic is forbidden while the consumer group is actively "
        "subscribed to it.",
    )
    INVALID_RECORD = (
        87,
        "InvalidRecordException",
        _FATAL,
        "This record has failed the validation on broker and hence will be rejected.",
    )
    UNSTABLE_OFFSET_COMMIT = (
        88,
        "UnstableOffsetCommitException",
        _RETRIABLE,
        "There are unstable offsets that need to be cleared.",
    )
    THROTTLING_QUOTA_EXCEEDED = (
        89,
        "ThrottlingQuotaExceededException",
        _RETRIABLE,
        "The throttling quota has been exceeded.",
    )
    PRODUCER_FENCED = (
        90,
        "ProducerFencedException",
        _FATAL,
        "There is a newer producer with the same transactionalId which fences the current one.",
    )
    RESOURCE_NOT_FOUND = (
        91,
        "ResourceNotFoundException",
        _FATAL,
        "A request illegally referred to a resource that does not exist.",
    )
    DUPLICATE_RESOURCE = (
        92,
        "DuplicateResourceException",
        _FATAL,
        "A request illegally referred to the same resource twice.",
    )
    UNACCEPTABLE_CREDENTIAL = (
        93,
        "UnacceptableCredentialException",
        _FATAL,
        "Requested credential would not meet criteria for acceptability.",
    )
    INCONSISTENT_VOTER_SET = (
        94,
        "InconsistentVoterSetException",
        _FATAL,
        "Indicates that the either the sender or recipient of a voter-only request is not one "
        "of the expected voters.",
    )
    INVALID_UPDATE_VERSION = (
        95,
        "InvalidUpdateVersionException",
        _FATAL,
        "The given update version was invalid.",
    )
    FEATURE_UPDATE_FAILED = (
        96,
        "FeatureUpdateFailedException",
        _FATAL,
        "Unable to update finalized features due to an unexpected server error.",
    )
    PRINCIPAL_DESERIALIZATION_FAILURE = (
        97,
        "PrincipalDeserializationException",
        _FATAL,
        "Request principal deserialization failed during forwarding. This indicates an internal"
        " error on the broker cluster security setup.",
    )
    SNAPSHOT_NOT_FOUND = (
        98,
        "SnapshotNotFoundException",
        _FATAL,
        "Requested snapshot was not found.",
    )
    POSITION_OUT_OF_RANGE = (
        99,
        "PositionOutOfRangeException",
        _FATAL,
        "Requested position is not greater than or equal to zero, and less than the size of the"
        " snapshot.",
    )
    UNKNOWN_TOPIC_ID = (
        100,
        "UnknownTopicIdException",
        _RETRIABLE,
        "This server does not host this topic ID.",
    )
    DUPLICATE_BROKER_REGISTRATION = (
        101,
        "DuplicateBrokerRegistrationException",
        _FATAL,
        "This broker ID is already in use.",
    )
    BROKER_ID_NOT_REGISTERED = (
        102,
        "BrokerIdNotRegisteredException",
        _FATAL,
        "The given broker ID was not registered.",
    )
    INCONSISTENT_TOPIC_ID = (
        103,
        "InconsistentTopicIdException",
        _RETRIABLE,
        "The log's topic ID did not match the topic ID in the request.",
    )
    INCONSISTENT_CLUSTER_ID = (
        104,
        "InconsistentClusterIdException",
        _FATAL,
        "The clusterId in the request does not match that found on the server.",
    )
    TRANSACTIONAL_ID_NOT_FOUND = (
        105,
        "TransactionalIdNotFoundException",
        _FATAL,
        "The transactionalId could not be found.",
    )
    FETCH_SESSION_TOPIC_ID_ERROR = (
        106,
        "FetchSessionTopicIdException",
        _RETRIABLE,
        "The fetch session encountered inconsistent topic ID usage.",
    )
    INELIGIBLE_REPLICA = (
        107,
        "IneligibleReplicaException",
        _FATAL,
        "The new ISR contains at least one ineligible replica.",
    )
    NEW_LEADER_ELECTED = (
        108,
        "NewLeaderElectedException",
        _FATAL,
        "The AlterPartition request successfully updated the partition state but the leader has"
        " changed.",
    )
    OFFSET_MOVED_TO_TIERED_STORAGE = (
        109,
        "OffsetMovedToTieredStorageException",
        _FATAL,
        "The requested offset is moved to tiered storage.",
    )
    FENCED_MEMBER_EPOCH = (
        110,
        "FencedMemberEpochException",
        _FATAL,
        "The member epoch is fenced by the group coordinator. The member must abandon all its "
        "partitions and rejoin.",
    )
    UNRELEASED_INSTANCE_ID = (
        111,
        "UnreleasedInstanceIdException",
        _FATAL,
        "The instance ID is still used by another member in the consumer group. That member "
        "must leave first.",
    )
    UNSUPPORTED_ASSIGNOR = (
        112,
        "UnsupportedAssignorException",
        _FATAL,
        "The assignor or its version range is not supported by the consumer group.",
    )
    STALE_MEMBER_EPOCH = (
        113,
        "StaleMemberEpochException",
        _FATAL,
        "The member epoch is stale. The member must retry after receiving its updated member "
        "epoch via the ConsumerGroupHeartbeat API.",
    )
    MISMATCHED_ENDPOINT_TYPE = (
        114,
        "MismatchedEndpointTypeException",
        _FATAL,
        "The request was sent to an endpoint of the wrong type.",
    )
    UNSUPPORTED_ENDPOINT_TYPE = (
        115,
        "UnsupportedEndpointTypeException",
        _FATAL,
        "This endpoint type is not supported yet.",
    )
    UNKNOWN_CONTROLLER_ID = (
        116,
        "UnknownControllerIdException",
        _FATAL,
        "This controller ID is not known.",
    )
    UNKNOWN_SUBSCRIPTION_ID = (
        117,
        "UnknownSubscriptionIdException",
        _FATAL,
        "Client sent a push telemetry request with an invalid or outdated subscription ID.",
    )
    TELEMETRY_TOO_LARGE = (
        118,
        "TelemetryTooLargeException",
        _FATAL,
        "Client sent a push telemetry request larger than the maximum size the broker will accept.",
    )
    INVALID_REGISTRATION = (
        119,
        "InvalidRegistrationException",
        _FATAL,
        "The controller has considered the broker registration to be invalid.",
    )
    TRANSACTION_ABORTABLE = (
        120,
        "TransactionAbortableException",
        _FATAL,
        "The server encountered an error with the transaction. The client can abort the "
        "transaction to continue using this transactional ID.",
    )
    INVALID_RECORD_STATE = (
        121,
        "InvalidRecordStateException",
        _FATAL,
        "The record state is invalid. The acknowledgement of delivery could not be completed.",
    )
    SHARE_SESSION_NOT_FOUND = (
        122,
        "ShareSessionNotFoundException",
        _RETRIABLE,
        "The share session was not found.",
    )
    INVALID_SHARE_SESSION_EPOCH = (
        123,
        "InvalidShareSessionEpochException",
        _RETRIABLE,
        "The share session epoch is invalid.",
    )
    FENCED_STATE_EPOCH = (
        124,
        "FencedStateEpochException",
        _FATAL,
        "The share coordinator rejected the request because the share-group state epoch did not"
        " match.",
    )
    INVALID_VOTER_KEY = (
        125,
        "InvalidVoterKeyException",
        _FATAL,
        "The voter key doesn't match the receiving replica's key.",
    )
    DUPLICATE_VOTER = (
        126,
        "DuplicateVoterException",
        _FATAL,
        "The voter is already part of the set of voters.",
    )
    VOTER_NOT_FOUND = (
        127,
        "VoterNotFoundException",
        _FATAL,
        "The voter is not part of the set of voters.",
    )
    INVALID_REGULAR_EXPRESSION = (
        128,
        "InvalidRegularExpression",
        _FATAL,
        "The regular expression is not valid.",
    )
    REBOOTSTRAP_REQUIRED = (
        129,
        "RebootstrapRequiredException",
        _FATAL,
        "Client metadata is stale. The client should rebootstrap to obtain new metadata.",
    )
    STREAMS_INVALID_TOPOLOGY = (
        130,
        "StreamsInvalidTopologyException",
        _FATAL,
        "The supplied topology is invalid.",
    )
    STREAMS_INVALID_TOPOLOGY_EPOCH = (
        131,
        "StreamsInvalidTopologyEpochException",
        _FATAL,
        "The supplied topology epoch is invalid.",
    )
    STREAMS_TOPOLOGY_FENCED = (
        132,
        "StreamsTopologyFencedException",
        _FATAL,
        "The supplied topology epoch is outdated.",
    )
    SHARE_SESSION_LIMIT_REACHED = (
        133,
        "ShareSessionLimitReachedException",
        _RETRIABLE,
        "The limit of share sessions has been reached.",
    )

    @classmethod
    def of(cls, code: int) -> Self:
        """The member for `code`; UNKNOWN_SERVER_ERROR for an unknown code, as in Kafka."""
        return cls(code if code in cls._value2member_map_ else -1)

    @property
    def java_class(self) -> str:
        """The full name of the Java exception."""
        is_elsewhere = self is ErrorCode.INVALID_RECORD
        package = "org.apache.kafka.common" + ("" if is_elsewhere else ".errors")
        return f"{package}.{self.exception}"
