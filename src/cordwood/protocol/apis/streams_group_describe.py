"""StreamsGroupDescribe (89), version 0.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from cordwood.format.messages.message import Message

SCHEMAS = """
message StreamsGroupDescribeRequest key=89 versions=0 flexible=0+
  groupIds []string
  includeAuthorizedOperations bool

message StreamsGroupDescribeResponse key=89 versions=0 flexible=0+
  throttleTimeMs int32
  groups []DescribedGroup
    errorCode int16
    errorMessage string? default=null
    groupId string
    groupState string
    groupEpoch int32
    assignmentEpoch int32
    topology Topology? default=null
      epoch int32
      subtopologies []Subtopology? default=null
        subtopologyId string
        sourceTopics []string
        repartitionSinkTopics []string
        stateChangelogTopics []TopicInfo
          name string
          partitions int32
          replicationFactor int16
          topicConfigs []KeyValue
            key string
            value string
        repartitionSourceTopics []TopicInfo
          name string
          partitions int32
          replicationFactor int16
          topicConfigs []KeyValue
            key string
            value string
    members []Member
      memberId string
      memberEpoch int32
      instanceId string? default=null
      rackId string? default=null
      clientId string
      clientHost string
      topologyEpoch int32
      processId string
      userEndpoint Endpoint? default=null
        host string
        port uint16
      clientTags []KeyValue
        key string
        value string
      taskOffsets []TaskOffset
        subtopologyId string
        partition int32
        offset int64
      taskEndOffsets []TaskOffset
        subtopologyId string
        partition int32
        offset int64
      assignment Assignment
        activeTasks []TaskIds
          subtopologyId string
          partitions []int32
        standbyTasks []TaskIds
          subtopologyId string
          partitions []int32
        warmupTasks []TaskIds
          subtopologyId string
          partitions []int32
      targetAssignment Assignment
        activeTasks []TaskIds
          subtopologyId string
          partitions []int32
        standbyTasks []TaskIds
          subtopologyId string
          partitions []int32
        warmupTasks []TaskIds
          subtopologyId string
          partitions []int32
      isClassic bool
    authorizedOperations int32 default=-2147483648
"""


class StreamsGroupDescribeRequest(Message):
    """The request in every version."""

    group_ids: list[str]
    include_authorized_operations: bool


class StreamsGroupDescribeResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    groups: list[DescribedGroup]


class DescribedGroup(Message):
    """An element of `groups` of StreamsGroupDescribeResponse."""

    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    topology: Topology | None
    members: list[Member]
    authorized_operations: int


class Topology(Message):
    """The struct `topology` of DescribedGroup."""

    epoch: int
    subtopologies: list[Subtopology] | None


class Subtopology(Message):
    """An element of `subtopologies` of Topology."""

    subtopology_id: str
    source_topics: list[str]
    repartition_sink_topics: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


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


class Member(Message):
    """An element of `members` of DescribedGroup."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: bool


class Endpoint(Message):
    """The struct `user_endpoint` of Member."""

    host: str
    port: int


class TaskOffset(Message):
    """An element of `task_offsets` of Member."""

    subtopology_id: str
    partition: int
    offset: int


class Assignment(Message):
    """The struct `assignment` of Member."""

    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class TaskIds(Message):
    """An element of `active_tasks` of Assignment."""

    subtopology_id: str
    partitions: list[int]
