"""WriteTxnMarkers (27), version 1: ends transactions that a Kafka left open.

kafka-transactions and `cordwood transactions abort` ask for this. There is no coordinator of
transactions that could ask for it by itself. Version 2, which has the level of
transaction.version, is not served.

Source: kafka.server.KafkaApis.handleWriteTxnMarkersRequest; KIP-98, KIP-664.
"""

from __future__ import annotations

import logging
from typing import Any

from cordwood.broker.authorizer import Operation
from cordwood.broker.delayed_produce import Uncommitted, is_replicated, when_committed
from cordwood.broker.request_context import RequestContext
from cordwood.format.control_record import ControlType, build_end_txn_marker
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError, UnknownServerError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.network.api import Api, Fields, Response
from cordwood.protocol.apis.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest

_log = logging.getLogger(__name__)


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> Response:
    """Writes a marker to each partition; answers when all are committed.

    A partition is answered once, even if it is named twice.
    """
    if not context.authorize_cluster(Operation.ALTER):
        context.require_cluster(Operation.CLUSTER_ACTION)
    uncommitted: list[Uncommitted] = []
    fields: Fields = {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            _write(context, marker, topic.name, index, uncommitted)
                            for index in dict.fromkeys(topic.partition_indexes)
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.markers
        ]
    }
    if not uncommitted:
        return fields
    timeout_ms = context.broker.settings.integer("request.timeout.ms")
    return when_committed(context, fields, uncommitted, timeout_ms)


def _write(
    context: RequestContext,
    marker: WritableTxnMarker,
    topic: str,
    index: int,
    uncommitted: list[Uncommitted],
) -> dict[str, Any]:
    """The answer for a partition; it is added to `uncommitted` if the marker is not committed."""
    try:
        offset = _append(context, marker, topic, index)
    except KafkaError as error:
        _log.warning(
            "Cannot write a marker of producer %s to %s-%s: %s",
            marker.producer_id,
            topic,
            index,
            error,
        )
        return {"partition_index": index, "error_code": error.code}
    _log.info(
        "Producer %s's transaction in %s-%s is %s by the marker at offset %s",
        marker.producer_id,
        topic,
        index,
        "committed" if marker.transaction_result else "aborted",
        offset,
    )
    answer = {"partition_index": index, "error_code": ErrorCode.NONE}
    if is_replicated(context, topic, index):
        uncommitted.append(Uncommitted(topic, index, offset + 1, answer))
    return answer


def _append(context: RequestContext, marker: WritableTxnMarker, topic: str, index: int) -> int:
    """Appends the marker; returns its offset.

    Raises:
        KafkaError: it cannot be appended.
    """
    if marker.producer_epoch < 0:
        raise UnknownServerError(f"Invalid producer epoch {marker.producer_epoch}")
    context.broker.replicas.partition(topic, index)
    if topic == GROUP_METADATA_TOPIC:
        context.broker.groups.require_loaded(index)
    commit = marker.transaction_result
    batch = build_end_txn_marker(
        offset=0,
        timestamp=context.broker.thread.clock.now_ms(),
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        control_type=ControlType.COMMIT if commit else ControlType.ABORT,
        coordinator_epoch=marker.coordinator_epoch,
    )
    if topic == GROUP_METADATA_TOPIC:
        # Its offsets are committed, or dropped, with it.
        return context.broker.groups.complete_transaction(
            index, batch, marker.producer_id, commit=commit
        ).first_offset
    return context.broker.replicas.append(topic, index, batch).first_offset


API = Api(27, "WriteTxnMarkers", 1, 1, handle)
