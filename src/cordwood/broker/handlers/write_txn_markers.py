"""WriteTxnMarkers (27), version 1: ends transactions that a Kafka left open.

kafka-transactions and `cordwood transactions abort` ask for this. There is no coordinator of
transactions that could ask for it by itself. Version 2, which has the level of
transaction.version, is not served.

Source: kafka.server.KafkaApis.handleWriteTxnMarkersRequest; KIP-98, KIP-664.
"""

from __future__ import annotations

import logging
from contextlib import suppress
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

    Raises:
        UnknownServerError: a marker cannot be built. Those before it are written.
    """
    if not context.authorize_cluster(Operation.ALTER):
        context.require_cluster(Operation.CLUSTER_ACTION)
    uncommitted: list[Uncommitted] = []
    fields: Fields = {
        "markers": [_write_all(context, marker, uncommitted) for marker in request.markers]
    }
    if not uncommitted:
        return fields
    timeout_ms = context.broker.settings.integer("request.timeout.ms")
    return when_committed(context, fields, uncommitted, timeout_ms)


def _write_all(
    context: RequestContext, marker: WritableTxnMarker, uncommitted: list[Uncommitted]
) -> Fields:
    """The answer for a marker; partitions whose marker is not committed join `uncommitted`."""
    if marker.producer_epoch < 0 and _is_built(context, marker):
        raise UnknownServerError(f"Invalid producer epoch {marker.producer_epoch}")
    asked: dict[str, dict[int, None]] = {}
    for topic in marker.topics:
        asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return {
        "producer_id": marker.producer_id,
        "topics": [
            {
                "name": name,
                "partitions": [
                    _write(context, marker, name, index, uncommitted) for index in indexes
                ],
            }
            for name, indexes in asked.items()
        ],
    }


def _is_built(context: RequestContext, marker: WritableTxnMarker) -> bool:
    """Whether there is a partition for which the broker itself builds the marker's batch.

    The group coordinator builds that of a partition of __consumer_offsets.
    """
    for topic in marker.topics:
        if topic.name == GROUP_METADATA_TOPIC:
            continue
        for index in topic.partition_indexes:
            with suppress(KafkaError):
                context.broker.replicas.partition(topic.name, index)
                return True
    return False


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
    context.broker.replicas.partition(topic, index)
    if marker.producer_epoch < 0:  # the group coordinator cannot build the marker's batch
        raise UnknownServerError(f"Invalid producer epoch {marker.producer_epoch}")
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
