"""AssignReplicasToDirs (73), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message AssignReplicasToDirsRequest key=73 versions=0 flexible=0+
  brokerId int32
  brokerEpoch int64 default=-1
  directories []DirectoryData
    id uuid
    topics []TopicData
      topicId uuid
      partitions []PartitionData
        partitionIndex int32

message AssignReplicasToDirsResponse key=73 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  directories []AssignReplicasToDirsResponseDirectoryData
    id uuid
    topics []AssignReplicasToDirsResponseTopicData
      topicId uuid
      partitions []AssignReplicasToDirsResponsePartitionData
        partitionIndex int32
        errorCode int16
"""


class AssignReplicasToDirsRequest(Message):
    """The request in every version."""

    broker_id: int
    broker_epoch: int
    directories: list[DirectoryData]


class DirectoryData(Message):
    """An element of `directories` of AssignReplicasToDirsRequest."""

    id: UUID
    topics: list[TopicData]


class TopicData(Message):
    """An element of `topics` of DirectoryData."""

    topic_id: UUID
    partitions: list[PartitionData]


class PartitionData(Message):
    """An element of `partitions` of TopicData."""

    partition_index: int


class AssignReplicasToDirsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    directories: list[AssignReplicasToDirsResponseDirectoryData]


class AssignReplicasToDirsResponseDirectoryData(Message):
    """An element of `directories` of AssignReplicasToDirsResponse."""

    id: UUID
    topics: list[AssignReplicasToDirsResponseTopicData]


class AssignReplicasToDirsResponseTopicData(Message):
    """An element of `topics` of AssignReplicasToDirsResponseDirectoryData."""

    topic_id: UUID
    partitions: list[AssignReplicasToDirsResponsePartitionData]


class AssignReplicasToDirsResponsePartitionData(Message):
    """An element of `partitions` of AssignReplicasToDirsResponseTopicData."""

    partition_index: int
    error_code: int
