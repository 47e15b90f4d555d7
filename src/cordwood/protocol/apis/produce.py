"""Produce (0), versions 3 to 13.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message ProduceRequest key=0 versions=3-13 flexible=9+
  transactionalId string? default=null
  acks int16
  timeoutMs int32
  topicData []TopicProduceData
    name string 3-12
    topicId uuid 13+
    partitionData []PartitionProduceData
      index int32
      records records?

message ProduceResponse key=0 versions=3-13 flexible=9+
  responses []TopicProduceResponse
    name string 3-12
    topicId uuid 13+
    partitionResponses []PartitionProduceResponse
      index int32
      errorCode int16
      baseOffset int64
      logAppendTimeMs int64 default=-1
      logStartOffset int64 5+ default=-1
      recordErrors []BatchIndexAndErrorMessage 8+
        batchIndex int32
        batchIndexErrorMessage string? default=null
      errorMessage string? 8+ default=null
      currentLeader LeaderIdAndEpoch 10+ tag=0
        leaderId int32 default=-1
        leaderEpoch int32 default=-1
  throttleTimeMs int32
  nodeEndpoints []NodeEndpoint 10+ tag=0
    nodeId int32
    host string
    port int32
    rack string? default=null
"""


class ProduceRequest(Message):
    """The request in every version."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic_data: list[TopicProduceData]


class TopicProduceData(Message):
    """An element of `topic_data` of ProduceRequest."""

    name: str
    topic_id: UUID
    partition_data: list[PartitionProduceData]


class PartitionProduceData(Message):
    """An element of `partition_data` of TopicProduceData."""

    index: int
    records: memoryview | None


class ProduceResponse(Message):
    """The response in every version."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: int
    node_endpoints: list[NodeEndpoint]


class TopicProduceResponse(Message):
    """An element of `responses` of ProduceResponse."""

    name: str
    topic_id: UUID
    partition_responses: list[PartitionProduceResponse]


class PartitionProduceResponse(Message):
    """An element of `partition_responses` of TopicProduceResponse."""

    index: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: list[BatchIndexAndErrorMessage]
    error_message: str | None
    current_leader: LeaderIdAndEpoch


class BatchIndexAndErrorMessage(Message):
    """An element of `record_errors` of PartitionProduceResponse."""

    batch_index: int
    batch_index_error_message: str | None


class LeaderIdAndEpoch(Message):
    """The struct `current_leader` of PartitionProduceResponse."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(Message):
    """An element of `node_endpoints` of ProduceResponse."""

    node_id: int
    host: str
    port: int
    rack: str | None
