"""DescribeTopicPartitions (75), version 0: topics page by page.

Source: kafka.server.handlers.DescribeTopicPartitionsRequestHandler; KIP-966.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.metadata.image import PartitionImage
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import InvalidTopicError
from cordwood.model.pauses import in_steps
from cordwood.model.topic_names import require_topic_name
from cordwood.protocol.data import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.handlers.cluster_facts import (
    PartitionPlaces,
    is_internal,
)

_Cursor = DescribeTopicPartitionsResponse.Cursor
_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponsePartition


def handle(context: BrokerContext, request: DescribeTopicPartitionsRequest) -> Response:
    """Answers from the image, topics by name, up to the limit of partitions."""
    image = context.broker.metadata.image
    cursor = request.cursor
    names = {topic.name for topic in in_steps(request.topics, every=64)} or set(image.topics)
    first_partition = 0
    if cursor is not None:
        names = {name for name in names if name >= cursor.topic_name}
        first_partition = cursor.partition_index
        is_amiss = bool(request.topics) and cursor.topic_name not in names
        if first_partition < 0 or is_amiss:
            code = ErrorCode.INVALID_REQUEST
            return DescribeTopicPartitionsResponse(
                topics=[_Topic(name=topic.name, error_code=code) for topic in request.topics]
            )
    asked = names
    names = context.authorized(AclOperation.DESCRIBE, ResourceType.TOPIC, in_steps(asked, every=64))
    denied = [_unauthorized(name) for name in sorted(asked - names)] if request.topics else []
    limit = max(
        1,
        min(
            request.response_partition_limit,
            context.broker.settings.max_request_partition_size_limit,
        ),
    )
    places = PartitionPlaces(image, context.listener)
    topics: list[_Topic] = []
    for name in in_steps(sorted(names)):
        at = first_partition if cursor is not None and name == cursor.topic_name else 0
        if limit <= 0:
            return DescribeTopicPartitionsResponse(
                topics=topics + denied,
                next_cursor=_Cursor(topic_name=name, partition_index=at),
            )
        topic = image.topics.get(name)
        if topic is None:
            topics.append(_unknown(context, name))
            continue
        indexes = [index for index in sorted(topic.partitions) if index >= at]
        shown, rest = indexes[:limit], indexes[limit:]
        limit -= len(shown)
        topics.append(
            _Topic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=is_internal(name),
                partitions=[
                    _partition(places, index, topic.partitions[index])
                    for index in in_steps(shown, every=8)
                ],
                topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, name),
            )
        )
        if rest:
            return DescribeTopicPartitionsResponse(
                topics=topics + denied,
                next_cursor=_Cursor(topic_name=name, partition_index=rest[0]),
            )
    return DescribeTopicPartitionsResponse(topics=topics + denied)


def _partition(places: PartitionPlaces, index: int, partition: PartitionImage) -> _Partition:
    described = places.described(_Partition, index, partition)
    described.eligible_leader_replicas = partition.elr
    described.last_known_elr = partition.last_known_elr
    return described


def _unauthorized(name: str) -> _Topic:
    return _Topic(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def _unknown(context: BrokerContext, name: str) -> _Topic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        require_topic_name(name)
    except InvalidTopicError:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return _Topic(
        name=name,
        error_code=code,
        is_internal=is_internal(name),
        topic_authorized_operations=context.authorized_operations(ResourceType.TOPIC, name),
    )


API = Api(75, "DescribeTopicPartitions", 0, 0, handle, is_long=always)
