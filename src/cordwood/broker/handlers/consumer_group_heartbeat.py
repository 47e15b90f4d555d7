"""ConsumerGroupHeartbeat (68), versions 0 and 1: a member of a consumer group (KIP-848).

Versions: 1 regular expressions, and member ids that the client makes.

Source: kafka.server.KafkaApis.handleConsumerGroupHeartbeat.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.group.classic.member import Client
from cordwood.coordinator.group.consumer.member import HeartbeatAnswer, HeartbeatRequest
from cordwood.model.error_codes import ErrorCode
from cordwood.protocol.data import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType, on_group

_CLIENT_MAKES_IDS_SINCE = 1


def handle(context: BrokerContext, request: ConsumerGroupHeartbeatRequest) -> Response:
    """Answers when what the member has changed is committed."""
    if not context.broker.serves_consumer_groups:
        return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    context.require(on_group(AclOperation.READ), request)
    for topic in request.subscribed_topic_names or ():
        if not context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic):
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    answer = CoordinatorAnswer[HeartbeatAnswer](context.broker.thread)
    context.broker.groups.consumer_heartbeat(
        _question(context, request),
        answer,
        needs_member_id=context.api_version >= _CLIENT_MAKES_IDS_SINCE,
    )
    return answer.response(_fields)


def _question(context: BrokerContext, request: ConsumerGroupHeartbeatRequest) -> HeartbeatRequest:
    names, owned = request.subscribed_topic_names, request.topic_partitions
    return HeartbeatRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        member_epoch=request.member_epoch,
        client=Client(context.client_id or "", f"/{context.client_host}"),
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=None if names is None else tuple(names),
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=(
            None
            if owned is None
            else tuple((each.topic_id, tuple(each.partitions)) for each in owned)
        ),
        may_describe=lambda topic: context.authorize(
            AclOperation.DESCRIBE, ResourceType.TOPIC, topic
        ),
    )


def _fields(answer: HeartbeatAnswer) -> ConsumerGroupHeartbeatResponse:
    assignment = answer.assignment
    return ConsumerGroupHeartbeatResponse(
        error_code=answer.error_code,
        error_message=answer.error_message,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=(
            None
            if assignment is None
            else ConsumerGroupHeartbeatResponse.Assignment(
                topic_partitions=[
                    ConsumerGroupHeartbeatResponse.TopicPartitions(**each._asdict())
                    for each in assignment
                ]
            )
        ),
    )


API = Api(68, "ConsumerGroupHeartbeat", 0, 1, handle, parks=True)
