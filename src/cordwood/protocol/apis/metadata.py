"""Metadata (3), versions 0 to 13.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message MetadataRequest key=3 versions=0-13 flexible=9+
  topics []MetadataRequestTopic?1+
    topicId uuid 10+
    name string?10+
  allowAutoTopicCreation bool 4+ default=true
  includeClusterAuthorizedOperations bool 8-10
  includeTopicAuthorizedOperations bool 8+

message MetadataResponse key=3 versions=0-13 flexible=9+
  throttleTimeMs int32 3+
  brokers []MetadataResponseBroker
    nodeId int32
    host string
    port int32
    rack string? 1+ default=null
  clusterId string? 2+ default=null
  controllerId int32 1+ default=-1
  topics []MetadataResponseTopic
    errorCode int16
    name string?12+
    topicId uuid 10+
    isInternal bool 1+
    partitions []MetadataResponsePartition
      errorCode int16
      partitionIndex int32
      leaderId int32
      leaderEpoch int32 7+ default=-1
      replicaNodes []int32
      isrNodes []int32
      offlineReplicas []int32 5+
    topicAuthorizedOperations int32 8+ default=-2147483648
  clusterAuthorizedOperations int32 8-10 default=-2147483648
  errorCode int16 13+
"""


class MetadataRequest(Message):
    """The request in every version."""

    topics: list[MetadataRequestTopic] | None
    allow_auto_topic_creation: bool
    include_cluster_authorized_operations: bool
    include_topic_authorized_operations: bool


class MetadataRequestTopic(Message):
    """An element of `topics` of MetadataRequest."""

    topic_id: UUID
    name: str | None


class MetadataResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    brokers: list[MetadataResponseBroker]
    cluster_id: str | None
    controller_id: int
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: int
    error_code: int


class MetadataResponseBroker(Message):
    """An element of `brokers` of MetadataResponse."""

    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataResponseTopic(Message):
    """An element of `topics` of MetadataResponse."""

    error_code: int
    name: str | None
    topic_id: UUID
    is_internal: bool
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: int


class MetadataResponsePartition(Message):
    """An element of `partitions` of MetadataResponseTopic."""

    error_code: int
    partition_index: int
    leader_id: int
    leader_epoch: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    offline_replicas: list[int]
