"""OffsetForLeaderEpoch (23), versions 2 to 4: the end offset of a leader epoch.

Versions: 3 the id of who asks, 4 flexible.

Source: kafka.server.ReplicaManager.lastOffsetForLeaderEpoch; KIP-320.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.model.kafka_errors import KafkaError, TopicAuthorizationError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType

_EndOffset = OffsetForLeaderEpochResponse.EpochEndOffset


def handle(context: BrokerContext, request: OffsetForLeaderEpochRequest) -> Response:
    """Looks every partition up."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    _look_up(context, topic.topic, each)
                    for each in in_steps(topic.partitions, every=8)
                ],
            )
            for topic in in_steps(request.topics)
        ]
    )


def _look_up(
    context: BrokerContext, topic: str, asked: OffsetForLeaderEpochRequest.OffsetForLeaderPartition
) -> _EndOffset:
    index = asked.partition
    try:
        if not (
            context.authorize_cluster(AclOperation.CLUSTER_ACTION)
            or context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)
        ):
            raise TopicAuthorizationError
        partition = context.broker.replicas.partition(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        epoch, end = partition.log.reader.end_offset_for_epoch(asked.leader_epoch)
    except KafkaError as error:
        return _EndOffset(partition=index, error_code=error.code)
    return _EndOffset(partition=index, leader_epoch=epoch, end_offset=end)


API = Api(23, "OffsetForLeaderEpoch", 2, 4, handle)
