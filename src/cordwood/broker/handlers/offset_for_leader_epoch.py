"""OffsetForLeaderEpoch (23), versions 2 to 4: where an epoch ended, for who may have diverged.

Versions: 3 the id of who asks, 4 flexible.

Source: kafka.server.ReplicaManager.lastOffsetForLeaderEpoch; KIP-320.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordwood.broker.api import Api, Call, Response
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.pauses import in_steps

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker


def handle(broker: Broker, request: Any, _call: Call) -> Response:
    """Looks every partition up."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    _look_up(broker, topic.topic, each)
                    for each in in_steps(topic.partitions, every=8)
                ],
            }
            for topic in in_steps(request.topics)
        ]
    }


def _look_up(broker: Broker, topic: str, asked: Any) -> dict[str, Any]:
    fields = {"partition": asked.partition}
    try:
        partition = broker.partition(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        epoch, end = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except KafkaError as error:
        return fields | {"error_code": error.code}
    return fields | {"leader_epoch": epoch, "end_offset": end}


API = Api(23, "OffsetForLeaderEpoch", 2, 4, handle)
