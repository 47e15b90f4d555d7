"""Produce (0), versions 3 to 13: appends batches to partitions.

Versions: 5 log start offset, 7 zstd, 8 errors of single records (KIP-467), 9 flexible, 10 where the
leader is (KIP-951), 12 transactions of version 2 (KIP-890), 13 topic ids (KIP-516).

acks=0 is not answered; where such a request fails the connection is closed, as in Kafka, which is
the one way to make the producer look for the leader again. acks=all is answered when the high
watermark has passed the batches, which with one replica is so when they are in the log.

Not served: transactions (batches with the transactional bit are refused by InitProducerId before).

Source: kafka.server.KafkaApis.handleProduceRequest, ReplicaManager.appendRecords.
"""

from __future__ import annotations

import logging
import struct
from typing import Any

from cordwood.broker.authorizer import Operation, ResourceType
from cordwood.broker.delayed_produce import Uncommitted, is_replicated, when_committed
from cordwood.broker.handlers.cluster_facts import is_internal
from cordwood.broker.handlers.produce_checks import request_fault, require_one_batch
from cordwood.broker.request_context import RequestContext
from cordwood.format.record_batch import may_expand_beyond
from cordwood.model.append_origin import AppendOrigin
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import (
    CorruptMessageError,
    KafkaError,
    NotLeaderOrFollowerError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RecordValidationError,
    StorageError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
    UnsupportedCompressionTypeError,
)
from cordwood.model.pauses import in_steps
from cordwood.network.api import Api, Encoded, Response
from cordwood.network.request_errors import UnansweredRequestError
from cordwood.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from cordwood.storage.log.append_result import AppendResult

_log = logging.getLogger(__name__)

# Looked up once: members of an enum are slow to look up.
_WRITE, _TOPIC = Operation.WRITE, ResourceType.TOPIC
_VALID_ACKS = frozenset({-1, 0, 1})
_ADMIN_CLIENT = "__admin_client"
"""The only client that may write to the coordinators' topics. Source: AdminUtils."""
_INLINE_BYTES_MAX = 1 << 20
_INLINE_EXPANDED_BYTES_MAX = 4 << 20
_RECORD_ERRORS_SINCE = 8
_FLEXIBLE_SINCE = 9
_TOPIC_IDS_SINCE = 13

_ALL = -1

_Partition = dict[str, Any]


# Source: ReplicaManager.appendRecordsToLeader.
_WITHOUT_START_OFFSET = (
    UnknownTopicOrPartitionError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    RecordBatchTooLargeError,
    CorruptMessageError,
    StorageError,
)

# index, error code, base offset, log append time, log start offset
_DONE = struct.Struct(">ihqqq")


def handle(context: RequestContext, request: ProduceRequest) -> Response:
    """Appends all; answers at once, but acks=all when all is committed."""
    fault = request_fault(request)
    if fault is not None:
        return _all_refused(request, fault)
    topics = []
    failed = False
    single = _single(request)
    acks_are_valid = request.acks in _VALID_ACKS
    uncommitted: list[Uncommitted] = []
    for topic in in_steps(request.topic_data):
        name, error = _name_of(context, topic, context.api_version)
        partitions = []
        for data in in_steps(topic.partition_data):
            if error is not None:
                answer = _refused(data.index, error.code, None)
            else:
                result = _append(context, name, data, acks_are_valid=acks_are_valid)
                if isinstance(result, AppendResult):
                    is_waited_for = request.acks == _ALL and is_replicated(
                        context, name, data.index
                    )
                    if single and request.acks != 0 and not is_waited_for:
                        return _quick(topic, data.index, result, context.api_version)
                    answer = _done(data.index, result)
                    if is_waited_for:
                        required = result.last_offset + 1
                        uncommitted.append(Uncommitted(name, data.index, required, answer))
                else:
                    answer = result
            failed = failed or answer["error_code"] != 0
            partitions.append(answer)
        topics.append(
            {
                "name": name,
                "topic_id": topic.topic_id,
                "partition_responses": partitions,
            }
        )
    if request.acks == 0:
        if failed:
            raise UnansweredRequestError("a produce request with acks=0 failed")
        return None
    if uncommitted:
        return when_committed(context, {"responses": topics}, uncommitted, request.timeout_ms)
    return {"responses": topics}


def _single(request: ProduceRequest) -> bool:
    topics = request.topic_data
    return len(topics) == 1 and len(topics[0].partition_data) == 1


def _name_of(
    context: RequestContext, topic: TopicProduceData, version: int
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
    return {
        "responses": [
            {
                "name": topic.name,
                "topic_id": topic.topic_id,
                "partition_responses": [
                    _refused(data.index, fault.code, text) for data in topic.partition_data
                ],
            }
            for topic in request.topic_data
        ]
    }


def _append(
    context: RequestContext, name: str, data: PartitionProduceData, *, acks_are_valid: bool
) -> AppendResult | _Partition:
    records: bytes | memoryview = data.records or b""
    try:
        partition = context.broker.replicas.partition(name, data.index)
        require_one_batch(records, context.api_version)
    except KafkaError as error:
        return _refused(data.index, error.code, None)
    if not acks_are_valid:
        return _refused(data.index, ErrorCode.INVALID_REQUIRED_ACKS, None)
    if is_internal(name) and context.client_id != _ADMIN_CLIENT:
        return _refused(data.index, ErrorCode.INVALID_TOPIC_EXCEPTION, None)
    try:
        return context.broker.replicas.append_to(partition, records, AppendOrigin.CLIENT)
    except KafkaError as error:
        return _error(data.index, error, context, name)
    except Exception:
        _log.exception("Error processing append operation on partition %s-%s", name, data.index)
        return _refused(data.index, ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _error(index: int, error: KafkaError, context: RequestContext, name: str) -> _Partition:
    if isinstance(error, _WITHOUT_START_OFFSET):
        return _refused(index, error.code, None)
    try:
        start = context.broker.replicas.log(name, index).log_start_offset
    except KafkaError:
        start = -1
    if not isinstance(error, RecordValidationError):
        # The id of a codec that there is not: Kafka falls over it.
        unknown = isinstance(error, UnsupportedCompressionTypeError)
        code = ErrorCode.UNKNOWN_SERVER_ERROR if unknown else error.code
        return _refused(index, code, None) | {"log_start_offset": start}
    return _refused(index, error.code, str(error)) | {
        "log_start_offset": start,
        "record_errors": [
            {"batch_index": each.index, "batch_index_error_message": each.message}
            for each in error.record_errors
        ],
    }


def _refused(index: int, code: int, message: str | None) -> _Partition:
    return {
        "index": index,
        "error_code": code,
        "base_offset": -1,
        "log_append_time_ms": -1,
        "log_start_offset": -1,
        "error_message": message,
    }


def _done(index: int, result: AppendResult) -> _Partition:
    return {
        "index": index,
        "error_code": 0,
        "base_offset": result.first_offset,
        "log_append_time_ms": result.log_append_time_ms,
        "log_start_offset": result.log_start_offset,
    }


def _quick(topic: TopicProduceData, index: int, result: AppendResult, version: int) -> Response:
    """The answer that is nearly always given, without the detour over fields and schema."""
    done = _DONE.pack(
        index, 0, result.first_offset, result.log_append_time_ms, result.log_start_offset
    )
    if version >= _FLEXIBLE_SINCE:
        if version >= _TOPIC_IDS_SINCE:
            name = topic.topic_id.bytes
        else:
            text = topic.name.encode()
            size = len(text) + 1
            name = (bytes((size,)) if size < 128 else bytes((size & 127 | 128, size >> 7))) + text
        # no record errors, no message, no tags; throttle time
        return Encoded([b"\x02" + name + b"\x02" + done + b"\x01\0\0\0" + b"\0\0\0\0" + b"\0"])
    text = topic.name.encode()
    if version >= _RECORD_ERRORS_SINCE:
        done += b"\0\0\0\0\xff\xff"
    elif version < 5:
        done = done[:-8]
    head = b"\0\0\0\x01" + len(text).to_bytes(2, "big") + text + b"\0\0\0\x01"
    return Encoded([head + done + b"\0\0\0\0"])


def _is_long(_context: RequestContext, request: ProduceRequest) -> bool:
    """Whether a compressed batch may expand to more than can be validated in a turn."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is not None and may_expand_beyond(records, _INLINE_EXPANDED_BYTES_MAX):
                return True
    return False


API = Api(0, "Produce", 3, 13, handle, inline_bytes_max=_INLINE_BYTES_MAX, is_long=_is_long)
