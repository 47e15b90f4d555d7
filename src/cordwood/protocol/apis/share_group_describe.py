"""ShareGroupDescribe (77), version 1.

Written by tools/message_schemas.py from the definitions of Kafka 4.3.0.
"""

from __future__ import annotations

from uuid import UUID

from cordwood.format.messages.message import Message

SCHEMAS = """
message ShareGroupDescribeRequest key=77 versions=1 flexible=0+
  groupIds []string
  includeAuthorizedOperations bool

message ShareGroupDescribeResponse key=77 versions=1 flexible=0+
  throttleTimeMs int32
  groups []DescribedGroup
    errorCode int16
    errorMessage string? default=null
    groupId string
    groupState string
    groupEpoch int32
    assignmentEpoch int32
    assignorName string
    members []Member
      memberId string
      rackId string? default=null
      memberEpoch int32
      clientId string
      clientHost string
      subscribedTopicNames []string
      assignment Assignment
        topicPartitions []TopicPartitions
          topicId uuid
          topicName string
          partitions []int32
    authorizedOperations int32 default=-2147483648
"""


class ShareGroupDescribeRequest(Message):
    """The request in every version."""

    group_ids: list[str]
    include_authorized_operations: bool


class ShareGroupDescribeResponse(Message):
    """The response in every version."""

    throttle_time_ms: int
    groups: list[DescribedGroup]


class DescribedGroup(Message):
    """An element of `groups` of ShareGroupDescribeResponse."""

    error_code: int
    error_message: str | None
    group_id: str
    group_state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: list[Member]
    authorized_operations: int


class Member(Message):
    """An element of `members` of DescribedGroup."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: list[str]
    assignment: Assignment


class Assignment(Message):
    """The struct `assignment` of Member."""

    topic_partitions: list[TopicPartitions]


class TopicPartitions(Message):
    """An element of `topic_partitions` of Assignment."""

    topic_id: UUID
    topic_name: str
    partitions: list[int]
