"""AlterReplicaLogDirs (34), versions 1 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message AlterReplicaLogDirsRequest key=34 versions=1-2 flexible=2+
  dirs []AlterReplicaLogDir
    path string
    topics []AlterReplicaLogDirTopic
      name string
      partitions []int32

message AlterReplicaLogDirsResponse key=34 versions=1-2 flexible=2+
  throttleTimeMs int32
  results []AlterReplicaLogDirTopicResult
    topicName string
    partitions []AlterReplicaLogDirPartitionResult
      partitionIndex int32
      errorCode int16
"""


class AlterReplicaLogDirsRequest(Message):
    """The request in every version."""

    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDir(Message):
    """An element of `dirs` of AlterReplicaLogDirsRequest."""

    path: str
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirTopic(Message):
    """An element of `topics` of AlterReplicaLogDir."""

    name: str
    partitions: list[int]


class AlterReplicaLogDirsResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    results: list[AlterReplicaLogDirTopicResult]


class AlterReplicaLogDirTopicResult(Message):
    """An element of `results` of AlterReplicaLogDirsResponse."""

    topic_name: str
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirPartitionResult(Message):
    """An element of `partitions` of AlterReplicaLogDirTopicResult."""

    partition_index: int
    error_code: int
