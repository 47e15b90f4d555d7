"""WriteTxnMarkers (27), versions 1 and 2: ends transactions in partitions.

Transaction coordinators of other brokers send it, and tools that end a transaction which a
coordinator has forgotten. Version 2 has the transaction version (KIP-1228).

Source: kafka.server.KafkaApis.handleWriteTxnMarkersRequest; KIP-98, KIP-664.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinators.transaction_markers import is_impossible
from cordwood.broker.delayed_produce import Uncommitted, is_replicated, when_committed
from cordwood.coordinator.transaction.markers import TransactionMarker
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, on_cluster

_log = logging.getLogger(__name__)

#: What the group coordinator answers where a partition's leader would answer the last one.
_OF_COORDINATOR = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


_Result = WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult


class _Written(NamedTuple):
    """The answer for a partition; the marker's end if it has to be committed first."""

    answer: _Result
    end_offset: int | None


_Answers = dict[TopicPartition, _Written]


def handle(context: BrokerContext, request: WriteTxnMarkersRequest) -> Response:
    """Writes a marker to each partition; answers when all are committed.

    A partition of a producer is answered once, even if it is named twice, or in two markers: with
    the error of the last.
    """
    if not context.authorize_cluster(AclOperation.ALTER):
        context.require(on_cluster(AclOperation.CLUSTER_ACTION), request)
    answers: dict[int, _Answers] = {}
    for marker in request.markers:
        if is_impossible(marker) and _is_built(context, marker):
            _log.error("Cannot build the marker of a producer without id or epoch: %s", marker)
            return _all_failed(request)
        _write_all(context, marker, answers.setdefault(marker.producer_id, {}))
    fields = _fields(answers)
    uncommitted = [
        Uncommitted(each.topic, each.partition, written.end_offset, written.answer)
        for of_producer in answers.values()
        for each, written in of_producer.items()
        if written.end_offset is not None
    ]
    if not uncommitted:
        return fields
    timeout_ms = context.broker.settings.integer("request.timeout.ms")
    return when_committed(context, fields, uncommitted, timeout_ms)


def _all_failed(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Answers as Kafka after an exception: only the last marker of a producer has an answer."""
    code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
    answers: dict[int, _Answers] = {}
    for marker in request.markers:
        answers[marker.producer_id] = {
            each: _Written(
                _Result(partition_index=each.partition, error_code=code),
                None,
            )
            for each in _partitions(marker)
        }
    return _fields(answers)


def _fields(answers: Mapping[int, _Answers]) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WriteTxnMarkersResponse.WritableTxnMarkerResult(
                producer_id=producer_id, topics=_by_topic(of_producer)
            )
            for producer_id, of_producer in answers.items()
        ]
    )


def _partitions(asked: WriteTxnMarkersRequest.WritableTxnMarker) -> list[TopicPartition]:
    """Each partition once, in the order of the request."""
    named = (
        TopicPartition(topic.name, index)
        for topic in asked.topics
        for index in topic.partition_indexes
    )
    return list(dict.fromkeys(named))


def _by_topic(answers: _Answers) -> list[WriteTxnMarkersResponse.WritableTxnMarkerTopicResult]:
    topics: dict[str, list[_Result]] = {}
    for partition, written in answers.items():
        topics.setdefault(partition.topic, []).append(written.answer)
    return [
        WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(name=name, partitions=partitions)
        for name, partitions in topics.items()
    ]


def _write_all(
    context: BrokerContext, asked: WriteTxnMarkersRequest.WritableTxnMarker, answers: _Answers
) -> None:
    """Writes a marker to its partitions; adds their answers."""
    marker = TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    for partition in _partitions(asked):
        answers[partition] = _write(context, marker, partition.topic, partition.partition)


def _is_built(context: BrokerContext, asked: WriteTxnMarkersRequest.WritableTxnMarker) -> bool:
    """Whether there is a partition for which the broker itself builds the marker's batch.

    A coordinator builds that of a partition of its topic.
    """
    for topic in asked.topics:
        if context.broker.coordinators.transactional(topic.name) is not None:
            continue
        for index in topic.partition_indexes:
            with suppress(KafkaError):
                context.broker.replicas.partition(topic.name, index)
                return True
    return False


def _write(context: BrokerContext, marker: TransactionMarker, topic: str, index: int) -> _Written:
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
        return _Written(
            _Result(partition_index=index, error_code=code),
            None,
        )
    _log.info(
        "Producer %s's transaction in %s-%s is %s by the marker at offset %s",
        marker.producer_id,
        topic,
        index,
        "committed" if marker.commit else "aborted",
        offset,
    )
    answer = _Result(partition_index=index, error_code=ErrorCode.NONE)
    return _Written(answer, offset + 1 if is_replicated(context, topic, index) else None)


API = Api(27, "WriteTxnMarkers", 1, 2, handle)
