"""DescribeProducers (61), version 0: active producers and open transactions of any replica.

Source: kafka.server.ReplicaManager.activeProducerState; KIP-664.
"""

from __future__ import annotations

from cordwood.broker.broker_context import BrokerContext
from cordwood.model.kafka_errors import KafkaError, TopicAuthorizationError
from cordwood.model.pauses import in_steps
from cordwood.model.topic_names import require_topic_name
from cordwood.protocol.data import DescribeProducersRequest, DescribeProducersResponse
from cordwood.serving.api import Api, Response, always
from cordwood.serving.authorizer import AclOperation, ResourceType

_NONE = -1
_Partition = DescribeProducersResponse.PartitionResponse


def handle(context: BrokerContext, request: DescribeProducersRequest) -> Response:
    """Lists the producers that have not expired."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersResponse.TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(context, topic.name, index)
                    for index in in_steps(topic.partition_indexes, every=8)
                ],
            )
            for topic in in_steps(request.topics)
        ]
    )


def _describe(context: BrokerContext, topic: str, index: int) -> _Partition:
    if not context.authorize(AclOperation.READ, ResourceType.TOPIC, topic):
        error = TopicAuthorizationError("Topic authorization failed.")
        return _Partition(partition_index=index, error_code=error.code, error_message=str(error))
    try:
        require_topic_name(topic)
        log = context.broker.replicas.readable(topic, index).log
    except KafkaError as error:
        # Of a partition that its topic lacks no more is said.
        text = None if topic in context.broker.metadata.image.topics else str(error)
        return _Partition(partition_index=index, error_code=error.code, error_message=text)
    with log.lock:
        producers = list(log.producer_state.active_producers.items())
    return _Partition(
        partition_index=index,
        active_producers=[
            DescribeProducersResponse.ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=_NONE
                if entry.current_txn_first_offset is None
                else entry.current_txn_first_offset,
            )
            for producer_id, entry in in_steps(producers, every=16)
        ],
    )


API = Api(61, "DescribeProducers", 0, 0, handle, is_long=always)
