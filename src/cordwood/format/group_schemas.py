"""The fields of every record of `__consumer_offsets`, in the notation of `message_schema`.

Source: org.apache.kafka.coordinator.group.generated, org.apache.kafka.common.message (4.4.0).
"""

KEYS = """
message LegacyOffsetCommitKey key=0 versions=0 flexible=none
  group string
  topic string
  partition int32

message OffsetCommitKey key=1 versions=0 flexible=none
  group string
  topic string
  partition int32

message GroupMetadataKey key=2 versions=0 flexible=none
  group string

message ConsumerGroupMetadataKey key=3 versions=0 flexible=none
  groupId string

message ConsumerGroupPartitionMetadataKey key=4 versions=0 flexible=none
  groupId string

message ConsumerGroupMemberMetadataKey key=5 versions=0 flexible=none
  groupId string
  memberId string

message ConsumerGroupTargetAssignmentMetadataKey key=6 versions=0 flexible=none
  groupId string

message ConsumerGroupTargetAssignmentMemberKey key=7 versions=0 flexible=none
  groupId string
  memberId string

message ConsumerGroupCurrentMemberAssignmentKey key=8 versions=0 flexible=none
  groupId string
  memberId string

message ConsumerGroupRegularExpressionKey key=16 versions=0 flexible=none
  groupId string
  regularExpression string

message ShareGroupMemberMetadataKey key=10 versions=0 flexible=none
  groupId string
  memberId string

message ShareGroupMetadataKey key=11 versions=0 flexible=none
  groupId string

message ShareGroupTargetAssignmentMetadataKey key=12 versions=0 flexible=none
  groupId string

message ShareGroupTargetAssignmentMemberKey key=13 versions=0 flexible=none
  groupId string
  memberId string

message ShareGroupCurrentMemberAssignmentKey key=14 versions=0 flexible=none
  groupId string
  memberId string

message ShareGroupStatePartitionMetadataKey key=15 versions=0 flexible=none
  groupId string

message StreamsGroupMetadataKey key=17 versions=0 flexible=none
  groupId string

message StreamsGroupMemberMetadataKey key=19 versions=0 flexible=none
  groupId string
  memberId string

message StreamsGroupTargetAssignmentMetadataKey key=20 versions=0 flexible=none
  groupId string

message StreamsGroupTargetAssignmentMemberKey key=21 versions=0 flexible=none
  groupId string
  memberId string

message StreamsGroupCurrentMemberAssignmentKey key=22 versions=0 flexible=none
  groupId string
  memberId string

message StreamsGroupTopologyKey key=23 versions=0 flexible=none
  groupId string
"""

VALUES = """
message LegacyOffsetCommitValue key=0 versions=0 flexible=none
  offset int64
  metadata string
  commitTimestamp int64

message OffsetCommitValue key=1 versions=0-4 flexible=4+
  offset int64
  leaderEpoch int32 3+ default=-1
  metadata string
  commitTimestamp int64
  expireTimestamp int64 1 default=-1
  topicId uuid 4+ tag=0

message GroupMetadataValue key=2 versions=0-4 flexible=4+
  protocolType string
  generation int32
  protocol string?
  leader string?
  currentStateTimestamp int64 2+ default=-1
  members []{}
    memberId string
    groupInstanceId string? 3+ default=null
    clientId string
    clientHost string
    rebalanceTimeout int32 1+ default=-1
    sessionTimeout int32
    subscription bytes
    assignment bytes

message ConsumerGroupMetadataValue key=3 versions=0 flexible=0+
  epoch int32
  metadataHash int64 tag=0 default=0

message ConsumerGroupPartitionMetadataValue key=4 versions=0 flexible=0+
  topics []{}
    topicId uuid
    topicName string
    numPartitions int32
    partitionMetadata []{}
      partition int32
      racks []string

message ConsumerGroupMemberMetadataValue key=5 versions=0 flexible=0+
  instanceId string?
  rackId string?
  clientId string
  clientHost string
  subscribedTopicNames []string
  subscribedTopicRegex string?
  rebalanceTimeoutMs int32 default=-1
  serverAssignor string?
  classicMemberMetadata {}? tag=0
    sessionTimeoutMs int32
    supportedProtocols []{}
      name string
      metadata bytes

message ConsumerGroupTargetAssignmentMetadataValue key=6 versions=0 flexible=0+
  assignmentEpoch int32
  assignmentTimestamp int64 tag=0 default=0

message ConsumerGroupTargetAssignmentMemberValue key=7 versions=0 flexible=0+
  topicPartitions []{}
    topicId uuid
    partitions []int32

message ConsumerGroupCurrentMemberAssignmentValue key=8 versions=0 flexible=0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []{}
    topicId uuid
    partitions []int32
    assignmentEpochs []int32? tag=0
  partitionsPendingRevocation []{}
    topicId uuid
    partitions []int32
    assignmentEpochs []int32? tag=0

message ConsumerGroupRegularExpressionValue key=16 versions=0 flexible=0+
  topics []string
  version int64
  timestamp int64

message ShareGroupMemberMetadataValue key=10 versions=0 flexible=0+
  rackId string?
  clientId string
  clientHost string
  subscribedTopicNames []string

message ShareGroupMetadataValue key=11 versions=0 flexible=0+
  epoch int32
  metadataHash int64

message ShareGroupTargetAssignmentMetadataValue key=12 versions=0 flexible=0+
  assignmentEpoch int32
  assignmentTimestamp int64 tag=0 default=0

message ShareGroupTargetAssignmentMemberValue key=13 versions=0 flexible=0+
  topicPartitions []{}
    topicId uuid
    partitions []int32

message ShareGroupCurrentMemberAssignmentValue key=14 versions=0 flexible=0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  assignedPartitions []{}
    topicId uuid
    partitions []int32

message ShareGroupStatePartitionMetadataValue key=15 versions=0 flexible=0+
  initializingTopics []{}
    topicId uuid
    topicName string
    partitions []int32
  initializedTopics []{}
    topicId uuid
    topicName string
    partitions []int32
  deletingTopics []{}
    topicId uuid
    topicName string

message StreamsGroupMetadataValue key=17 versions=0 flexible=0+
  epoch int32
  metadataHash int64
  validatedTopologyEpoch int32 tag=0 default=-1
  lastAssignmentConfigs []{}? tag=1
    key string
    value string
  storedDescriptionTopologyEpoch int32 tag=2 default=-1
  failedDescriptionTopologyEpoch int32 tag=3 default=-1

message StreamsGroupMemberMetadataValue key=19 versions=0 flexible=0+
  instanceId string?
  rackId string?
  clientId string
  clientHost string
  rebalanceTimeoutMs int32 default=-1
  topologyEpoch int32
  processId string
  userEndpoint {}? default=null
    host string
    port uint16
  clientTags []{}
    key string
    value string

message StreamsGroupTargetAssignmentMetadataValue key=20 versions=0 flexible=0+
  assignmentEpoch int32
  assignmentTimestamp int64 tag=0 default=0

message StreamsGroupTargetAssignmentMemberValue key=21 versions=0 flexible=0+
  activeTasks []{}
    subtopologyId string
    partitions []int32
  standbyTasks []{}
    subtopologyId string
    partitions []int32
  warmupTasks []{}
    subtopologyId string
    partitions []int32

message StreamsGroupCurrentMemberAssignmentValue key=22 versions=0 flexible=0+
  memberEpoch int32
  previousMemberEpoch int32
  state int8
  activeTasks []{}
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag=0
  standbyTasks []{}
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag=0
  warmupTasks []{}
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag=0
  activeTasksPendingRevocation []{}
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag=0
  standbyTasksPendingRevocation []{}
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag=0
  warmupTasksPendingRevocation []{}
    subtopologyId string
    partitions []int32
    assignmentEpochs []int32? tag=0

message StreamsGroupTopologyValue key=23 versions=0 flexible=0+
  epoch int32
  subtopologies []{}
    subtopologyId string
    sourceTopics []string
    sourceTopicRegex []string
    stateChangelogTopics []{}
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []{}
        key string
        value string
    repartitionSinkTopics []string
    repartitionSourceTopics []{}
      name string
      partitions int32
      replicationFactor int16
      topicConfigs []{}
        key string
        value string
    copartitionGroups []{}
      sourceTopics []int16
      sourceTopicRegex []int16
      repartitionSourceTopics []int16
"""

CONSUMER_PROTOCOL = """
message ConsumerProtocolAssignment versions=0-3 flexible=none
  assignedPartitions []{}
    topic string
    partitions []int32
  userData bytes? default=null

message ConsumerProtocolSubscription versions=0-3 flexible=none
  topics []string
  userData bytes? default=null
  ownedPartitions []{} 1+
    topic string
    partitions []int32
  generationId int32 2+ default=-1
  rackId string? 3+ default=null
"""
