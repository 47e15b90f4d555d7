"""ShareFetch (78), versions 1 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message ShareFetchRequest key=78 versions=1-2 flexible=0+
  groupId string? default=null
  memberId string?
  shareSessionEpoch int32
  maxWaitMs int32
  minBytes int32
  maxBytes int32 default=2147483647
  maxRecords int32
  batchSize int32
  shareAcquireMode int8 2+
  isRenewAck bool 2+
  topics []FetchTopic
    topicId uuid
    partitions []FetchPartition
      partitionIndex int32
      acknowledgementBatches []AcknowledgementBatch
        firstOffset int64
        lastOffset int64
        acknowledgeTypes []int8
  forgottenTopicsData []ForgottenTopic
    topicId uuid
    partitions []int32

message ShareFetchResponse key=78 versions=1-2 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string? default=null
  acquisitionLockTimeoutMs int32
  responses []ShareFetchableTopicResponse
    topicId uuid
    partitions []PartitionData
      partitionIndex int32
      errorCode int16
      errorMessage string? default=null
      acknowledgeErrorCode int16
      acknowledgeErrorMessage string? default=null
      currentLeader LeaderIdAndEpoch
        leaderId int32
        leaderEpoch int32
      records records
      acquiredRecords []AcquiredRecords
        firstOffset int64
        lastOffset int64
        deliveryCount int16
  nodeEndpoints []NodeEndpoint
    nodeId int32
    host string
    port int32
    rack string? default=null
"""


class ShareFetchRequest(Message):
    """The request in every version."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    max_records: int
    batch_size: int
    share_acquire_mode: int
    is_renew_ack: bool
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


class FetchTopic(Message):
    """An element of `topics` of ShareFetchRequest."""

    topic_id: UUID
    partitions: list[FetchPartition]


class FetchPartition(Message):
    """An element of `partitions` of FetchTopic."""

    partition_index: int
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgementBatch(Message):
    """An element of `acknowledgement_batches` of FetchPartition."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class ForgottenTopic(Message):
    """An element of `forgotten_topics_data` of ShareFetchRequest."""

    topic_id: UUID
    partitions: list[int]


class ShareFetchResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


class ShareFetchableTopicResponse(Message):
    """An element of `responses` of ShareFetchResponse."""

    topic_id: UUID
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of ShareFetchableTopicResponse."""

    partition_index: int
    error_code: int
    error_message: str | None
    acknowledge_error_code: int
    acknowledge_error_message: str | None
    current_leader: LeaderIdAndEpoch
    records: memoryview
    acquired_records: list[AcquiredRecords]


class LeaderIdAndEpoch(Message):
    """The struct `current_leader` of PartitionData."""

    leader_id: int
    leader_epoch: int


class AcquiredRecords(Message):
    """An element of `acquired_records` of PartitionData."""

    first_offset: int
    last_offset: int
    delivery_count: int


class NodeEndpoint(Message):
    """An element of `node_endpoints` of ShareFetchResponse."""

    node_id: int
    host: str
    port: int
    rack: str | None
