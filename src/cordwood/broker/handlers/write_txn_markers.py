"""WriteTxnMarkers (27), versions 1 and 2: ends transactions in partitions.

Transaction coordinators of other brokers send it, and tools that end a transaction which a
coordinator has forgotten. Version 2 has the transaction version (KIP-1228).

Source: kafka.server.KafkaApis.handleWriteTxnMarkersRequest; KIP-98, KIP-664.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from cordwood.broker.authorizer import Operation
from cordwood.broker.delayed_produce import Uncommitted, is_replicated, when_committed
from cordwood.broker.request_context import RequestContext
from cordwood.coordinator.transaction.service import TransactionMarker
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError, UnknownServerError
from cordwood.model.topic_names import GROUP_METADATA_TOPIC
from cordwood.network.api import Api, Fields, Response
from cordwood.protocol.apis.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest

_log = logging.getLogger(__name__)

#: What the group coordinator answers where a partition's leader would answer the last one.
_OF_COORDINATOR = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


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
    context: RequestContext, asked: WritableTxnMarker, uncommitted: list[Uncommitted]
) -> Fields:
    """The answer for a marker; partitions whose marker is not committed join `uncommitted`."""
    if asked.producer_epoch < 0 and _is_built(context, asked):
        raise UnknownServerError(f"Invalid producer epoch {asked.producer_epoch}")
    marker = TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    partitions: dict[str, dict[int, None]] = {}
    for topic in asked.topics:
        partitions.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return {
        "producer_id": asked.producer_id,
        "topics": [
            {
                "name": name,
                "partitions": [
                    _write(context, marker, name, index, uncommitted) for index in indexes
                ],
            }
            for name, indexes in partitions.items()
        ],
    }


def _is_built(context: RequestContext, asked: WritableTxnMarker) -> bool:
    """Whether there is a partition for which the broker itself builds the marker's batch.

    The group coordinator builds that of a partition of __consumer_offsets.
    """
    for topic in asked.topics:
        if topic.name == GROUP_METADATA_TOPIC:
            continue
        for index in topic.partition_indexes:
            with suppress(KafkaError):
                context.broker.replicas.partition(topic.name, index)
                return True
    return False


def _write(
    context: RequestContext,
    marker: TransactionMarker,
    topic: str,
    index: int,
    uncommitted: list[Uncommitted],
) -> dict[str, Any]:
    """The answer for a partition; it is added to `uncommitted` if the marker is not committed."""
    try:
        offset = context.broker.markers.writer.write(marker, topic, index)
    except KafkaError as error:
        _log.warning(
            "Cannot write a marker of producer %s to %s-%s: %s",
            marker.producer_id,
            topic,
            index,
            error,
        )
        code = error.code
        if code in _OF_COORDINATOR:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return {"partition_index": index, "error_code": code}
    _log.info(
        "Producer %s's transaction in %s-%s is %s by the marker at offset %s",
        marker.producer_id,
        topic,
        index,
        "committed" if marker.commit else "aborted",
        offset,
    )
    answer = {"partition_index": index, "error_code": ErrorCode.NONE}
    if is_replicated(context, topic, index):
        uncommitted.append(Uncommitted(topic, index, offset + 1, answer))
    return answer


API = Api(27, "WriteTxnMarkers", 1, 2, handle)
