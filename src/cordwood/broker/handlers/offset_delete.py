"""OffsetDelete (47), version 0: deletes offsets of topics without a subscription.

Source: KIP-496; kafka.server.KafkaApis.handleOffsetDeleteRequest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from operator import itemgetter

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.group.events import DeletedOffsets
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import OffsetDeleteRequest, OffsetDeleteResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType, on_group


def handle(context: BrokerContext, request: OffsetDeleteRequest) -> Response:
    """Answers for each partition when the tombstone of its offset is committed."""
    image = context.broker.metadata.image
    allowed = context.authorized(
        AclOperation.READ, ResourceType.TOPIC, {topic.name for topic in in_steps(request.topics)}
    )
    there = [
        (topic.name, each.partition_index)
        for topic in in_steps(request.topics)
        if topic.name in allowed
        for each in in_steps(topic.partitions, every=64)
        if image.partition(topic.name, each.partition_index) is not None
    ]
    answer = CoordinatorAnswer[DeletedOffsets](context.broker.thread)
    context.broker.groups.delete_offsets(request.group_id, there, answer, by=context.requester)
    return answer.response(lambda deleted: _fields(request, allowed, there, deleted))


def _fields(
    request: OffsetDeleteRequest,
    allowed: Collection[str],
    there: list[tuple[str, int]],
    deleted: DeletedOffsets,
) -> OffsetDeleteResponse:
    if deleted.error_code:
        return OffsetDeleteResponse(error_code=deleted.error_code)
    answers = dict(zip(there, deleted.partitions, strict=True))
    topics = []
    for topic in in_steps(request.topics):
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic.name not in allowed:
            missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topics.append(_topic(topic, answers, missing))
    # As in Kafka, what is not there comes first.
    topics.sort(key=itemgetter(0))
    return OffsetDeleteResponse(topics=[topic for _, topic in topics])


def _topic(
    asked: OffsetDeleteRequest.OffsetDeleteRequestTopic,
    answers: Mapping[tuple[str, int], int],
    missing: int,
) -> tuple[bool, OffsetDeleteResponse.OffsetDeleteResponseTopic]:
    """Whether all partitions of a topic are there, and its answer."""
    there: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = []
    not_there: list[OffsetDeleteResponse.OffsetDeleteResponsePartition] = []
    for each in in_steps(asked.partitions, every=16):
        code = answers.get((asked.name, each.partition_index))
        (not_there if code is None else there).append(
            OffsetDeleteResponse.OffsetDeleteResponsePartition(
                partition_index=each.partition_index, error_code=missing if code is None else code
            )
        )
    topic = OffsetDeleteResponse.OffsetDeleteResponseTopic(
        name=asked.name, partitions=not_there + there
    )
    return not not_there, topic


API = Api(47, "OffsetDelete", 0, 0, handle, needs=(on_group(AclOperation.DELETE),), is_long=always)
