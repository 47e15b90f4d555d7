"""ElectLeaders (43), versions 0 to 2.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message ElectLeadersRequest key=43 versions=0-2 flexible=2+
  electionType int8 1+
  topicPartitions []TopicPartitions?
    topic string
    partitions []int32
  timeoutMs int32 default=60000

message ElectLeadersResponse key=43 versions=0-2 flexible=2+
  throttleTimeMs int32
  errorCode int16 1+
  replicaElectionResults []ReplicaElectionResult
    topic string
    partitionResult []PartitionResult
      partitionId int32
      errorCode int16
      errorMessage string?
"""


class ElectLeadersRequest(Message):
    """The request in every version."""

    election_type: int
    topic_partitions: list[TopicPartitions] | None
    timeout_ms: int


class TopicPartitions(Message):
    """An element of `topic_partitions` of ElectLeadersRequest."""

    topic: str
    partitions: list[int]


class ElectLeadersResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    replica_election_results: list[ReplicaElectionResult]


class ReplicaElectionResult(Message):
    """An element of `replica_election_results` of ElectLeadersResponse."""

    topic: str
    partition_result: list[PartitionResult]


class PartitionResult(Message):
    """An element of `partition_result` of ReplicaElectionResult."""

    partition_id: int
    error_code: int
    error_message: str | None
