"""OffsetDelete (47), version 0: deletes offsets of topics without a subscription.

Source: KIP-496; kafka.server.KafkaApis.handleOffsetDeleteRequest.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinator_answer import CoordinatorAnswer
from cordwood.coordinator.group.events import DeletedOffsets
from cordwood.model.error_codes import ErrorCode
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import OffsetDeleteRequest
from cordwood.serving.api import Api, Fields, Response, always
from cordwood.serving.authorizer import Operation, ResourceType, on_group

_MISSING = "is_missing"  # a key that no version of the response has


def handle(context: BrokerContext, request: OffsetDeleteRequest) -> Response:
    """Answers for each partition when the tombstone of its offset is committed."""
    image = context.broker.metadata.image
    allowed = context.authorized(
        Operation.READ, ResourceType.TOPIC, {topic.name for topic in in_steps(request.topics)}
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
) -> Fields:
    if deleted.error_code:
        return {"error_code": deleted.error_code}
    answers = dict(zip(there, deleted.partitions, strict=True))
    topics = [
        _topic(
            topic,
            answers,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if topic.name in allowed
            else ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
        for topic in in_steps(request.topics)
    ]
    # As in Kafka, what is not there comes first.
    topics.sort(key=lambda topic: not any(each[_MISSING] for each in topic["partitions"]))
    return {"topics": topics}


def _topic(topic: Any, answers: Mapping[tuple[str, int], int], missing: int) -> dict[str, Any]:
    partitions: list[dict[str, Any]] = []
    for each in in_steps(topic.partitions, every=16):
        code = answers.get((topic.name, each.partition_index))
        partitions.append(
            {
                "partition_index": each.partition_index,
                "error_code": missing if code is None else code,
                _MISSING: code is None,
            }
        )
    return {
        "name": topic.name,
        "partitions": sorted(partitions, key=lambda each: not each[_MISSING]),
    }


API = Api(47, "OffsetDelete", 0, 0, handle, needs=(on_group(Operation.DELETE),), is_long=always)
