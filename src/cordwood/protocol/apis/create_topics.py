"""CreateTopics (19), versions 2 to 7.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message CreateTopicsRequest key=19 versions=2-7 flexible=5+
  topics []CreatableTopic
    name string
    numPartitions int32
    replicationFactor int16
    assignments []CreatableReplicaAssignment
      partitionIndex int32
      brokerIds []int32
    configs []CreatableTopicConfig
      name string
      value string?
  timeoutMs int32 default=60000
  validateOnly bool

message CreateTopicsResponse key=19 versions=2-7 flexible=5+
  throttleTimeMs int32
  topics []CreatableTopicResult
    name string
    topicId uuid 7+
    errorCode int16
    errorMessage string?
    topicConfigErrorCode int16 5+ tag=0
    numPartitions int32 5+ default=-1
    replicationFactor int16 5+ default=-1
    configs []CreatableTopicConfigs? 5+
      name string
      value string?
      readOnly bool
      configSource int8 default=-1
      isSensitive bool
"""


class CreateTopicsRequest(Message):
    """The request in every version."""

    topics: list[CreatableTopic]
    timeout_ms: int
    validate_only: bool


class CreatableTopic(Message):
    """An element of `topics` of CreateTopicsRequest."""

    name: str
    num_partitions: int
    replication_factor: int
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreatableReplicaAssignment(Message):
    """An element of `assignments` of CreatableTopic."""

    partition_index: int
    broker_ids: list[int]


class CreatableTopicConfig(Message):
    """An element of `configs` of CreatableTopic."""

    name: str
    value: str | None


class CreateTopicsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    topics: list[CreatableTopicResult]


class CreatableTopicResult(Message):
    """An element of `topics` of CreateTopicsResponse."""

    name: str
    topic_id: UUID
    error_code: int
    error_message: str | None
    topic_config_error_code: int
    num_partitions: int
    replication_factor: int
    configs: list[CreatableTopicConfigs] | None


class CreatableTopicConfigs(Message):
    """An element of `configs` of CreatableTopicResult."""

    name: str
    value: str | None
    read_only: bool
    config_source: int
    is_sensitive: bool
