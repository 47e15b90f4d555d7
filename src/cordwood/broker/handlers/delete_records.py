"""DeleteRecords (21), versions 0 to 2: moves the log start offset up. Version 2 is flexible.

Source: kafka.server.ReplicaManager.deleteRecords, kafka.cluster.Partition.deleteRecordsOnLeader;
KIP-107.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cordwood.broker.api import Api, Call, Response, always
from cordwood.broker.handlers.cluster_facts import is_internal
from cordwood.model.kafka_errors import (
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
)
from cordwood.model.pauses import in_steps

if TYPE_CHECKING:
    from cordwood.broker.broker import Broker

_NO_LOW_WATERMARK = -1


def handle(broker: Broker, request: Any, _call: Call) -> Response:
    """Deletes, and says where each log starts now."""
    topics: dict[str, dict[int, Any]] = {}
    for topic in in_steps(request.topics):
        for each in in_steps(topic.partitions, every=64):
            topics.setdefault(topic.name, {})[each.partition_index] = each
    return {
        "topics": [
            {
                "name": name,
                "partitions": [
                    _delete(broker, name, each) for each in in_steps(partitions.values())
                ],
            }
            for name, partitions in in_steps(topics.items())
        ]
    }


def _delete(broker: Broker, topic: str, asked: Any) -> dict[str, Any]:
    fields = {"partition_index": asked.partition_index, "low_watermark": _NO_LOW_WATERMARK}
    try:
        partition = broker.partition(topic, asked.partition_index)
        if is_internal(topic):
            raise InvalidTopicError(f"Cannot delete records of internal topic {topic}.")
        log = partition.log
        if log.config.compact and not log.config.delete:
            raise PolicyViolationError(
                f"Records of partition {log.topic_partition} can not be deleted due to the "
                "configured policy"
            )
        low = log.delete_records(asked.offset)
    except KafkaError as error:
        return fields | {"error_code": error.code}
    return fields | {"low_watermark": low}


API = Api(21, "DeleteRecords", 0, 2, handle, is_long=always)
