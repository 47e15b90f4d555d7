"""AlterPartition (56), versions 2 to 3.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message AlterPartitionRequest key=56 versions=2-3 flexible=0+
  brokerId int32
  brokerEpoch int64 default=-1
  topics []TopicData
    topicId uuid
    partitions []PartitionData
      partitionIndex int32
      leaderEpoch int32
      newIsr []int32 0-2
      newIsrWithEpochs []BrokerState 3+
        brokerId int32
        brokerEpoch int64 default=-1
      leaderRecoveryState int8
      partitionEpoch int32

message AlterPartitionResponse key=56 versions=2-3 flexible=0+
  throttleTimeMs int32
  errorCode int16
  topics []AlterPartitionResponseTopicData
    topicId uuid
    partitions []AlterPartitionResponsePartitionData
      partitionIndex int32
      errorCode int16
      leaderId int32
      leaderEpoch int32
      isr []int32
      leaderRecoveryState int8
      partitionEpoch int32
"""


class AlterPartitionRequest(Message):
    """The request in every version."""

    broker_id: int
    broker_epoch: int
    topics: list[TopicData]


class TopicData(Message):
    """An element of `topics` of AlterPartitionRequest."""

    topic_id: UUID
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of TopicData."""

    partition_index: int
    leader_epoch: int
    new_isr: list[int]
    new_isr_with_epochs: list[BrokerState]
    leader_recovery_state: int
    partition_epoch: int


class BrokerState(Message):
    """An element of `new_isr_with_epochs` of PartitionData."""

    broker_id: int
    broker_epoch: int


class AlterPartitionResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    topics: list[AlterPartitionResponseTopicData]


class AlterPartitionResponseTopicData(Message):
    """An element of `topics` of AlterPartitionResponse."""

    topic_id: UUID
    partitions: list[AlterPartitionResponsePartitionData]


class AlterPartitionResponsePartitionData(Message):
    """An element of `partitions` of AlterPartitionResponseTopicData."""

    partition_index: int
    error_code: int
    leader_id: int
    leader_epoch: int
    isr: list[int]
    leader_recovery_state: int
    partition_epoch: int
