"""ConsumerGroupDescribe (69), versions 0 and 1: states and members of consumer groups (KIP-848).

Versions: 1 the protocol of each member (KIP-1099).

Source: kafka.server.KafkaApis.handleConsumerGroupDescribe, ConsumerGroup.asDescribedGroup,
ConsumerGroupMember.asConsumerGroupDescribeMember.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from cordwood.broker.broker_context import BrokerContext
from cordwood.coordinator.group.consumer.group import ConsumerGroup
from cordwood.coordinator.group.consumer.member import ConsumerMember
from cordwood.format.java_map import JavaHashSet
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.handlers.cluster_facts import NOT_ASKED

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1
_Group = ConsumerGroupDescribeResponse.DescribedGroup


def handle(context: BrokerContext, request: ConsumerGroupDescribeRequest) -> Response:
    """Answers from memory."""
    if not context.broker.serves_consumer_groups:
        code = ErrorCode.UNSUPPORTED_VERSION
        return ConsumerGroupDescribeResponse(
            groups=[_refused(group_id, code) for group_id in request.group_ids]
        )
    wants_operations = bool(request.include_authorized_operations)
    denied, groups = [], []
    for group_id in in_steps(request.group_ids, every=8):
        if not context.authorize(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            denied.append(_refused(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        described = _describe(context, group_id)
        if not described.error_code and wants_operations:
            described.authorized_operations = context.authorized_operations(
                ResourceType.GROUP, group_id
            )
        groups.append(described)
    return ConsumerGroupDescribeResponse(groups=denied + groups)


def _describe(context: BrokerContext, group_id: str) -> _Group:
    if not group_id:
        return _refused(group_id, ErrorCode.INVALID_GROUP_ID)
    try:
        group = context.broker.groups.describe(group_id, ConsumerGroup)
    except KafkaError as error:
        message = str(error) if error.code == ErrorCode.GROUP_ID_NOT_FOUND else None
        return _refused(group_id, error.code, message)
    described = _described(context, group)
    topics = {
        each.topic_name
        for member in described.members
        for assignment in (member.assignment, member.target_assignment)
        for each in assignment.topic_partitions
    }
    if not all(
        context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, each) for each in topics
    ):
        return _refused(
            group_id,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            "The group has described topic(s) that the client is not authorized to describe.",
        )
    return described


def _refused(group_id: str, code: int, message: str | None = None) -> _Group:
    return _Group(
        group_id=group_id,
        error_code=code,
        error_message=message,
        group_state="",
        assignor_name="",
    )


def _described(context: BrokerContext, group: ConsumerGroup) -> _Group:
    default = context.broker.groups.settings.consumer.assignors[0]
    return _Group(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor or default,
        members=[_member(context, group, each) for each in in_steps(group.members(), every=16)],
        authorized_operations=NOT_ASKED,
    )


def _member(
    context: BrokerContext, group: ConsumerGroup, member: ConsumerMember
) -> ConsumerGroupDescribeResponse.Member:
    # What a member has still to give up is its own.
    assigned: dict[UUID, list[int]] = {}
    for epochs in (member.assigned, member.revoking):
        for topic_id, partitions in epochs.items():
            assigned.setdefault(topic_id, []).extend(partitions)
    return ConsumerGroupDescribeResponse.Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client.client_id,
        client_host=member.client.client_host,
        subscribed_topic_names=list(JavaHashSet.of(sorted(member.topics), len(member.topics))),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(context, assigned),
        target_assignment=_assignment(context, group.target(member.member_id)),
        member_type=_CLASSIC_MEMBER if member.uses_classic_protocol else _CONSUMER_MEMBER,
    )


def _assignment(
    context: BrokerContext, partitions: Mapping[UUID, Iterable[int]]
) -> ConsumerGroupDescribeResponse.Assignment:
    names = context.broker.metadata.image.topic_names
    return ConsumerGroupDescribeResponse.Assignment(
        topic_partitions=[
            ConsumerGroupDescribeResponse.TopicPartitions(
                topic_id=topic_id, topic_name=names[topic_id], partitions=list(numbers)
            )
            for topic_id, numbers in partitions.items()
            if topic_id in names
        ]
    )


API = Api(69, "ConsumerGroupDescribe", 0, 1, handle, is_long=always)
