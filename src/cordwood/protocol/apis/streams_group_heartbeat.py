"""StreamsGroupHeartbeat (88), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message StreamsGroupHeartbeatRequest key=88 versions=0 flexible=0+
  groupId string
  memberId string
  memberEpoch int32
  endpointInformationEpoch int32
  instanceId string? default=null
  rackId string? default=null
  rebalanceTimeoutMs int32 default=-1
  topology Topology? default=null
    epoch int32
    subtopologies []Subtopology
      subtopologyId string
      sourceTopics []string
      sourceTopicRegex []string
      stateChangelogTopics []TopicInfo
        name string
        partitions int32
        replicationFactor int16
        topicConfigs []KeyValue
          key string
          value string
      repartitionSinkTopics []string
      repartitionSourceTopics []TopicInfo
        name string
        partitions int32
        replicationFactor int16
        topicConfigs []KeyValue
          key string
          value string
      copartitionGroups []CopartitionGroup
        sourceTopics []int16
        sourceTopicRegex []int16
        repartitionSourceTopics []int16
  activeTasks []TaskIds? default=null
    subtopologyId string
    partitions []int32
  standbyTasks []TaskIds? default=null
    subtopologyId string
    partitions []int32
  warmupTasks []TaskIds? default=null
    subtopologyId string
    partitions []int32
  processId string? default=null
  userEndpoint Endpoint? default=null
    host string
    port uint16
  clientTags []KeyValue? default=null
    key string
    value string
  taskOffsets []TaskOffset? default=null
    subtopologyId string
    partition int32
    offset int64
  taskEndOffsets []TaskOffset? default=null
    subtopologyId string
    partition int32
    offset int64
  shutdownApplication bool

message StreamsGroupHeartbeatResponse key=88 versions=0 flexible=0+
  throttleTimeMs int32
  errorCode int16
  errorMessage string? default=null
  memberId string
  memberEpoch int32
  heartbeatIntervalMs int32
  acceptableRecoveryLag int32
  taskOffsetIntervalMs int32
  status []Status?
    statusCode int8
    statusDetail string
  activeTasks []TaskIds? default=null
    subtopologyId string
    partitions []int32
  standbyTasks []TaskIds? default=null
    subtopologyId string
    partitions []int32
  warmupTasks []TaskIds? default=null
    subtopologyId string
    partitions []int32
  endpointInformationEpoch int32
  partitionsByUserEndpoint []EndpointToPartitions? default=null
    userEndpoint Endpoint
      host string
      port uint16
    activePartitions []TopicPartition
      topic string
      partitions []int32
    standbyPartitions []TopicPartition
      topic string
      partitions []int32
"""


class StreamsGroupHeartbeatRequest(Message):
    """The request in every version."""

    group_id: str
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topology: Topology | None
    active_tasks: list[TaskIds] | None
    standby_tasks: list[TaskIds] | None
    warmup_tasks: list[TaskIds] | None
    process_id: str | None
    user_endpoint: Endpoint | None
    client_tags: list[KeyValue] | None
    task_offsets: list[TaskOffset] | None
    task_end_offsets: list[TaskOffset] | None
    shutdown_application: bool


class Topology(Message):
    """The struct `topology` of StreamsGroupHeartbeatRequest."""

    epoch: int
    subtopologies: list[Subtopology]


class Subtopology(Message):
    """An element of `subtopologies` of Topology."""

    subtopology_id: str
    source_topics: list[str]
    source_topic_regex: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[str]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


class TopicInfo(Message):
    """An element of `state_changelog_topics` of Subtopology."""

    name: str
    partitions: int
    replication_factor: int
    topic_configs: list[KeyValue]


class KeyValue(Message):
    """An element of `topic_configs` of TopicInfo."""

    key: str
    value: str


class CopartitionGroup(Message):
    """An element of `copartition_groups` of Subtopology."""

    source_topics: list[int]
    source_topic_regex: list[int]
    repartition_source_topics: list[int]


class TaskIds(Message):
    """An element of `active_tasks` of StreamsGroupHeartbeatRequest."""

    subtopology_id: str
    partitions: list[int]


class Endpoint(Message):
    """The struct `user_endpoint` of StreamsGroupHeartbeatRequest."""

    host: str
    port: int


class TaskOffset(Message):
    """An element of `task_offsets` of StreamsGroupHeartbeatRequest."""

    subtopology_id: str
    partition: int
    offset: int


class StreamsGroupHeartbeatResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    error_code: int
    error_message: str | None
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    acceptable_recovery_lag: int
    task_offset_interval_ms: int
    status: list[Status] | None
    active_tasks: list[TaskIds] | None
    standby_tasks: list[TaskIds] | None
    warmup_tasks: list[TaskIds] | None
    endpoint_information_epoch: int
    partitions_by_user_endpoint: list[EndpointToPartitions] | None


class Status(Message):
    """An element of `status` of StreamsGroupHeartbeatResponse."""

    status_code: int
    status_detail: str


class EndpointToPartitions(Message):
    """An element of `partitions_by_user_endpoint` of StreamsGroupHeartbeatResponse."""

    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


class TopicPartition(Message):
    """An element of `active_partitions` of EndpointToPartitions."""

    topic: str
    partitions: list[int]
