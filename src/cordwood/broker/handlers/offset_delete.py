"""OffsetDelete (47), version 0: a group forgets its offsets for topics it does not subscribe to.

Source: KIP-496; kafka.server.KafkaApis.handleOffsetDeleteRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordwood.broker.api import Api, Call, Response
from cordwood.broker.groups.errors import GroupError
from cordwood.model.kafka_errors import KafkaError

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker


def handle(broker: Broker, request: Any, _call: Call) -> Response:
    """Answers for each partition once the end of its offset is written."""
    image = broker.image
    there = [
        (topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
        if image.partition(topic.name, each.partition_index) is not None
    ]
    try:
        answers = dict(
            zip(there, broker.groups.delete_offsets(request.group_id, there), strict=True)
        )
    except KafkaError as error:
        return {"error_code": error.code}
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": answers.get(
                            (topic.name, each.partition_index),
                            GroupError.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


API = Api(47, "OffsetDelete", 0, 0, handle)
