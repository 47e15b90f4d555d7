"""Produce (0), versions 3 to 13: appends batches to partitions.

Versions: 5 log start offset, 7 zstd, 8 errors of single records (KIP-467), 9 flexible, 10 where the
leader is (KIP-951), 12 transactions of version 2 (KIP-890), 13 topic ids (KIP-516).

acks=0 is not answered; where such a request fails the connection is closed, as in Kafka, which is
the one way to make the producer look for the leader again. acks=all is answered when the high
watermark has passed the batches, which with one replica is so when they are in the log.

The partitions of a transaction are verified, or added to it, before they are written for the first
time.

Source: kafka.server.KafkaApis.handleProduceRequest, ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final

from cordwood.broker.broker_context import BrokerContext
from cordwood.broker.coordinators.transaction_verification import (
    Support,
    TransactionalWrite,
    Verified,
)
from cordwood.broker.delayed_produce import Uncommitted, is_replicated, when_committed
from cordwood.broker.handlers.produce_checks import (
    has_transactional_batch,
    require_one_batch,
    transactional_batch,
)
from cordwood.format.messages.message import Message, maker
from cordwood.format.record_batch import may_expand_beyond
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    CorruptMessageError,
    InvalidProducerIdMappingError,
    KafkaError,
    NotLeaderOrFollowerError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RecordValidationError,
    StorageError,
    TopicAuthorizationError,
    TransactionalIdAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from cordwood.model.pauses import in_steps
from cordwood.model.topic_partition import TopicPartition
from cordwood.protocol.data import ProduceRequest, ProduceResponse
from cordwood.protocol.messages import build, request_codec
from cordwood.serving.api import Api, Encoded, Response
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.serving.handlers.cluster_facts import current_leader, endpoints_of, is_internal
from cordwood.serving.request_errors import UnansweredRequestError
from cordwood.storage.log.append_result import AppendResult

_log = logging.getLogger(__name__)

# Looked up once: members of an enum are slow to look up.
_WRITE, _TOPIC = AclOperation.WRITE, ResourceType.TOPIC
_VALID_ACKS = frozenset({-1, 0, 1})
_ADMIN_CLIENT = "__admin_client"
"""The only client that may write to the coordinators' topics. Source: AdminUtils."""
_INLINE_BYTES_MAX = 1 << 20
_INLINE_EXPANDED_BYTES_MAX = 4 << 20
_LEADERS_SINCE = 10
_TOPIC_IDS_SINCE = 13

_ALL = -1

_Partition = ProduceResponse.PartitionProduceResponse
_new_response = maker(ProduceResponse)
_new_topic = maker(ProduceResponse.TopicProduceResponse)
_new_partition = maker(_Partition)

_UNVERIFIED: Final = Verified({}, {})
"""Of a request without transactions."""

_OF_COORDINATOR = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

# Source: ReplicaManager.appendRecordsToLeader.
_WITHOUT_START_OFFSET = (
    UnknownTopicOrPartitionError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    RecordBatchTooLargeError,
    CorruptMessageError,
    StorageError,
)


def handle(context: BrokerContext, request: ProduceRequest) -> Response:
    """Appends all; answers at once, but acks=all when all is committed."""
    try:
        is_transactional = has_transactional_batch(request)
    except CorruptMessageError as error:
        return _all_refused(request, error)
    if is_transactional:
        return _handle_transaction(context, request)
    return _append_all(context, request, _UNVERIFIED)


def _append_all(context: BrokerContext, request: ProduceRequest, verified: Verified) -> Response:
    topics = []
    failed = False
    uncommitted: list[Uncommitted] = []
    for topic in in_steps(request.topic_data):
        name, error = _name_of(context, topic, context.api_version)
        partitions = []
        for data in in_steps(topic.partition_data):
            if error is not None:
                answer = _refused(data.index, error.code, None)
            else:
                result = _append(context, name, data, verified, request.acks)
                if isinstance(result, AppendResult):
                    is_waited_for = request.acks == _ALL and is_replicated(
                        context, name, data.index
                    )
                    answer = _done(data.index, result)
                    if is_waited_for:
                        required = result.last_offset + 1
                        uncommitted.append(Uncommitted(name, data.index, required, answer))
                else:
                    answer = result
            failed = failed or answer.error_code != 0
            partitions.append(answer)
        topics.append(
            _new_topic(name=name, topic_id=topic.topic_id, partition_responses=partitions)
        )
    if request.acks == 0:
        if failed:
            raise UnansweredRequestError("a produce request with acks=0 failed")
        return None
    response = _new_response(responses=topics)
    if uncommitted:
        return when_committed(context, response, uncommitted, request.timeout_ms)
    if failed and context.api_version >= _LEADERS_SINCE:
        _add_leaders(context, response)
    return response


def _add_leaders(context: BrokerContext, response: ProduceResponse) -> None:
    """Adds where the leaders of partitions are that are not led here (KIP-951)."""
    image = context.broker.metadata.image
    leaders = []
    for topic in in_steps(response.responses):
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = current_leader(image, topic.name, answer.index)
                answer.current_leader = ProduceResponse.LeaderIdAndEpoch(
                    leader_id=leader, leader_epoch=epoch
                )
                leaders.append(leader)
    response.node_endpoints = [
        ProduceResponse.NodeEndpoint(
            node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack
        )
        for each in (endpoints_of(context, leaders) if leaders else ())
    ]


def _name_of(
    context: BrokerContext, topic: ProduceRequest.TopicProduceData, version: int
) -> tuple[str, KafkaError | None]:
    if version < _TOPIC_IDS_SINCE:
        name = topic.name
    else:
        try:
            name = context.broker.metadata.topic_name(topic.topic_id)
        except KafkaError as error:
            return "", error
    if not context.authorize(_WRITE, _TOPIC, name):
        return name, TopicAuthorizationError()
    return name, None


def _all_refused(request: ProduceRequest, fault: KafkaError) -> Response:
    """The same error for every partition."""
    if request.acks == 0:
        raise UnansweredRequestError(str(fault))
    text = str(fault) or None
    return ProduceResponse(
        responses=[
            _new_topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    _refused(data.index, fault.code, text) for data in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def _append(
    context: BrokerContext,
    name: str,
    data: ProduceRequest.PartitionProduceData,
    verified: Verified,
    acks: int,
) -> AppendResult | _Partition:
    records: bytes | memoryview = data.records or b""
    try:
        partition = context.broker.replicas.partition(name, data.index)
        require_one_batch(records, context.api_version)
    except KafkaError as error:
        return _refused(data.index, error.code, None)
    guard = None
    if verified is not _UNVERIFIED:
        place = TopicPartition(name, data.index)
        if place in verified.errors:
            support = Support.of_produce(context.api_version)
            return _refused(data.index, *_unverified(verified.errors[place], support))
        guard = verified.guards.get(place)
    if acks not in _VALID_ACKS:
        return _refused(data.index, ErrorCode.INVALID_REQUIRED_ACKS, None)
    if is_internal(name) and context.client_id != _ADMIN_CLIENT:
        return _refused(data.index, ErrorCode.INVALID_TOPIC_EXCEPTION, None)
    try:
        if acks == _ALL:
            partition.require_in_sync()
        return context.broker.replicas.append_to(
            partition, records, AppendOrigin.CLIENT, verification_guard=guard
        )
    except KafkaError as error:
        return _error(data.index, error, context, name)
    except Exception:
        _log.exception("Error processing append operation on partition %s-%s", name, data.index)
        return _refused(data.index, ErrorCode.UNKNOWN_SERVER_ERROR, None)


# ---- transactions


def _handle_transaction(context: BrokerContext, request: ProduceRequest) -> Response:
    transactional_id = request.transactional_id
    if transactional_id is None or not context.authorize(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    ):
        return _all_refused(request, TransactionalIdAuthorizationError(""))
    try:
        write = _transactional_write(context, request, transactional_id)
    except KafkaError as error:
        return _all_refused(request, error)
    return _verify_and_append(context, _kept(context, request), write)


def _kept(context: BrokerContext, request: ProduceRequest) -> ProduceRequest:
    """A copy of the request for a later turn, when its buffer may serve other connections."""
    if _records_bytes(request) > _INLINE_BYTES_MAX:
        return request  # it has a buffer of its own
    copied: ProduceRequest = build(request_codec(API.key, context.api_version), request)
    return copied


def _transactional_write(
    context: BrokerContext, request: ProduceRequest, transactional_id: str
) -> TransactionalWrite | None:
    """The partitions to verify; None if none of them can be written.

    Raises:
        InvalidProducerIdMappingError: the batches are of several producers.
    """
    producers = set()
    sequences = {}
    for topic in request.topic_data:
        name, error = _name_of(context, topic, context.api_version)
        if error is not None:
            continue
        for data in topic.partition_data:
            try:
                context.broker.replicas.partition(name, data.index)
                require_one_batch(data.records, context.api_version)
                header = transactional_batch(data.records)
            except KafkaError:
                continue
            if header is not None:
                producers.add((header.producer_id, header.producer_epoch))
                sequences[TopicPartition(name, data.index)] = header.base_sequence
    if len(producers) > 1:
        raise InvalidProducerIdMappingError(
            "Transactional records contained more than one producer ID"
        )
    if not producers:
        return None
    ((producer_id, epoch),) = producers
    support = Support.of_produce(context.api_version)
    return TransactionalWrite(transactional_id, producer_id, epoch, sequences, support)


async def _verify_and_append(
    context: BrokerContext, request: ProduceRequest, write: TransactionalWrite | None
) -> Message | Encoded | None:
    verified = Verified({}, {})
    if write is not None:
        verified = await context.broker.verification.begin(write, retries=True)
    if _is_large(context, request):
        response = await context.broker.thread.slices.run(
            lambda: _append_all(context, request, verified)
        )
    else:
        response = _append_all(context, request, verified)
    return await response if isinstance(response, Awaitable) else response


def _unverified(code: int, support: Support) -> tuple[int, str | None]:
    """The error of a partition that was not verified, and its message.

    Older producers do not send records again after an error of the coordinator; after
    NOT_ENOUGH_REPLICAS they do.
    """
    if code == ErrorCode.INVALID_TXN_STATE:
        return code, "Partition was not added to the transaction"
    is_concurrent = code == ErrorCode.CONCURRENT_TRANSACTIONS and support is not Support.ADDED
    if code in _OF_COORDINATOR or is_concurrent:
        return ErrorCode.NOT_ENOUGH_REPLICAS, (
            "Unable to verify the partition has been added to the transaction. Underlying error: "
            f"{ErrorCode.of(code).name}"
        )
    return code, None


def _error(index: int, error: KafkaError, context: BrokerContext, name: str) -> _Partition:
    if isinstance(error, _WITHOUT_START_OFFSET):
        return _refused(index, error.code, None)
    # The id of a codec that there is not: Kafka falls over it.
    is_unknown = isinstance(error, UnsupportedCompressionTypeError)
    answer = _refused(index, ErrorCode.UNKNOWN_SERVER_ERROR if is_unknown else error.code, None)
    with suppress(KafkaError):
        answer.log_start_offset = context.broker.replicas.log(name, index).log_start_offset
    if isinstance(error, RecordValidationError):
        answer.error_message = str(error)
        answer.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=each.index, batch_index_error_message=each.message
            )
            for each in error.record_errors
        ]
    return answer


def _refused(index: int, code: int, message: str | None) -> _Partition:
    return _new_partition(index=index, error_code=code, base_offset=-1, error_message=message)


def _done(index: int, result: AppendResult) -> _Partition:
    return _new_partition(
        index=index,
        base_offset=result.first_offset,
        log_append_time_ms=result.log_append_time_ms,
        log_start_offset=result.log_start_offset,
    )


def _is_long(_context: BrokerContext, request: ProduceRequest) -> bool:
    """Whether a compressed batch may expand to more than can be validated in a turn."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None and may_expand_beyond(records, _INLINE_EXPANDED_BYTES_MAX):
                return True
    return False


def _is_large(context: BrokerContext, request: ProduceRequest) -> bool:
    """Whether a request is too large for one turn of the event loop."""
    return _records_bytes(request) > _INLINE_BYTES_MAX or _is_long(context, request)


def _records_bytes(request: ProduceRequest) -> int:
    return sum(
        len(data.records or b"") for topic in request.topic_data for data in topic.partition_data
    )


API = Api(0, "Produce", 3, 13, handle, inline_bytes_max=_INLINE_BYTES_MAX, is_long=_is_long)
