"""ShareAcknowledge (79), versions 1 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message ShareAcknowledgeRequest key=79 versions=1-2 flexible=0+
  groupId string? default=null
  memberId string?
  shareSessionEpoch int32
  isRenewAck bool 2+
  topics []AcknowledgeTopic
    topicId uuid
    partitions []AcknowledgePartition
      partitionIndex int32
      acknowledgementBatches []AcknowledgementBatch
        firstOffset int64
        lastOffset int64
        acknowledgeTypes []int8

message ShareAcknowledgeResponse key=79 versions=1-2 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string? default=null
  acquisitionLockTimeoutMs int32 2+
  responses []ShareAcknowledgeTopicResponse
    topicId uuid
    partitions []PartitionData
      partitionIndex int32
      errorCode int16
      errorMessage string? default=null
      currentLeader LeaderIdAndEpoch
        leaderId int32
        leaderEpoch int32
  nodeEndpoints []NodeEndpoint
    nodeId int32
    host string
    port int32
    rack string? default=null
"""


class ShareAcknowledgeRequest(Message):
    """The request in every version."""

    group_id: str | None
    member_id: str | None
    share_session_epoch: int
    is_renew_ack: bool
    topics: list[AcknowledgeTopic]


class AcknowledgeTopic(Message):
    """An element of `topics` of ShareAcknowledgeRequest."""

    topic_id: UUID
    partitions: list[AcknowledgePartition]


class AcknowledgePartition(Message):
    """An element of `partitions` of AcknowledgeTopic."""

    partition_index: int
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgementBatch(Message):
    """An element of `acknowledgement_batches` of AcknowledgePartition."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class ShareAcknowledgeResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    acquisition_lock_timeout_ms: int
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


class ShareAcknowledgeTopicResponse(Message):
    """An element of `responses` of ShareAcknowledgeResponse."""

    topic_id: UUID
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of ShareAcknowledgeTopicResponse."""

    partition_index: int
    error_code: int
    error_message: str | None
    current_leader: LeaderIdAndEpoch


class LeaderIdAndEpoch(Message):
    """The struct `current_leader` of PartitionData."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(Message):
    """An element of `node_endpoints` of ShareAcknowledgeResponse."""

    node_id: int
    host: str
    port: int
    rack: str | None
