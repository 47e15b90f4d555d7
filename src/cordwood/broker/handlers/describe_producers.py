"""DescribeProducers (61), version 0: active producers and open transactions of any replica.

Source: kafka.server.ReplicaManager.activeProducerState; KIP-664.
"""

from __future__ import annotations

from typing import Any

from cordwood.broker.broker_context import BrokerContext
from cordwood.model.kafka_errors import KafkaError, TopicAuthorizationError
from cordwood.model.pauses import in_steps
from cordwood.model.topic_names import require_topic_name
from cordwood.protocol.data import DescribeProducersRequest
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import Operation, ResourceType
from cordwood.serving.handlers.error_fields import error_fields

_NONE = -1


def handle(context: BrokerContext, request: DescribeProducersRequest) -> Response:
    """Lists the producers that have not expired."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _describe(context, topic.name, index)
                    for index in in_steps(topic.partition_indexes, every=8)
                ],
            }
            for topic in in_steps(request.topics)
        ]
    }


def _describe(context: BrokerContext, topic: str, index: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"partition_index": index}
    if not context.authorize(Operation.READ, ResourceType.TOPIC, topic):
        error = TopicAuthorizationError("Topic authorization failed.")
        return fields | error_fields(error)
    try:
        require_topic_name(topic)
        log = context.broker.replicas.readable(topic, index).log
    except KafkaError as error:
        # Of a partition that its topic lacks no more is said.
        text = None if topic in context.broker.metadata.image.topics else str(error)
        return fields | {"error_code": error.code, "error_message": text}
    with log.lock:
        producers = list(log.producer_state.active_producers.items())
    return fields | {
        "active_producers": [
            {
                "producer_id": producer_id,
                "producer_epoch": entry.producer_epoch,
                "last_sequence": entry.last_sequence,
                "last_timestamp": entry.last_timestamp,
                "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": _NONE
                if entry.current_txn_first_offset is None
                else entry.current_txn_first_offset,
            }
            for producer_id, entry in in_steps(producers, every=16)
        ]
    }


API = Api(61, "DescribeProducers", 0, 0, handle, is_long=always)
