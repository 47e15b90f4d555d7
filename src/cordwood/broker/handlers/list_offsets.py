"""ListOffsets (2), versions 1 to 11: offsets by timestamp, and the ends of the log.

Versions: 2 isolation, 4 leader epochs, 6 flexible, 7 the record of the largest timestamp (-3,
KIP-734), 8 the local log's start (-4), 9 the end of tiered storage (-5), 10 a timeout, 11 the first
offset not yet tiered (-6).

Source: kafka.server.KafkaApis.handleListOffsetRequest, ReplicaManager.fetchOffset.
"""

from __future__ import annotations

from collections import Counter

from cordwood.broker.broker_context import BrokerContext
from cordwood.model.error_codes import ErrorCode
from cordwood.model.kafka_errors import KafkaError, OffsetNotAvailableError
from cordwood.model.pauses import in_steps
from cordwood.protocol.data import ListOffsetsRequest, ListOffsetsResponse
from cordwood.serving.api import Api, Response
from cordwood.serving.authorizer import AclOperation, ResourceType
from cordwood.storage.log.log_reader import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    Isolation,
)

_CONSUMER = -1
_READ_COMMITTED = 1
_NO_EPOCH = -1
_SINCE = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_OFFSET_NOT_AVAILABLE_SINCE = 5
_STARTS = frozenset({EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP})
_LOWEST = EARLIEST_PENDING_UPLOAD_TIMESTAMP
_Partition = ListOffsetsResponse.ListOffsetsPartitionResponse


def handle(context: BrokerContext, request: ListOffsetsRequest) -> Response:
    """Looks every partition up; one that is asked for twice is refused, and answered once."""
    isolation = Isolation.HIGH_WATERMARK
    if request.isolation_level == _READ_COMMITTED:
        isolation = Isolation.TXN_COMMITTED
    elif request.replica_id != _CONSUMER:
        isolation = Isolation.LOG_END
    asked = Counter(
        (topic.name, each.partition_index)
        for topic in in_steps(request.topics)
        for each in in_steps(topic.partitions, every=64)
    )
    topics: dict[str, dict[int, _Partition]] = {}
    for topic in in_steps(request.topics):
        is_allowed = context.authorize(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name)
        for each in in_steps(topic.partitions, every=8):
            index = each.partition_index
            if not is_allowed:
                answer = _Partition(
                    partition_index=index,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                )
            elif asked[topic.name, index] > 1:
                answer = _Partition(partition_index=index, error_code=ErrorCode.INVALID_REQUEST)
            else:
                answer = _look_up(context, topic.name, each, isolation, context.api_version)
            topics.setdefault(topic.name, {})[index] = answer
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=name, partitions=list(partitions.values())
            )
            for name, partitions in topics.items()
        ]
    )


def _look_up(
    context: BrokerContext,
    topic: str,
    asked: ListOffsetsRequest.ListOffsetsPartition,
    isolation: Isolation,
    version: int,
) -> _Partition:
    index = asked.partition_index
    timestamp = asked.timestamp
    if timestamp < _LOWEST or _SINCE.get(timestamp, 0) > version:
        return _Partition(partition_index=index, error_code=ErrorCode.UNSUPPORTED_VERSION)
    try:
        partition = context.broker.replicas.partition(topic, asked.partition_index)
        partition.check_epoch(asked.current_leader_epoch)
        is_of_client = isolation is not Isolation.LOG_END
        is_uncertain = is_of_client and partition.is_catching_up
        if is_uncertain and timestamp == LATEST_TIMESTAMP:
            raise OffsetNotAvailableError
        found = partition.log.reader.list_offset(timestamp, isolation=isolation)
        if found is None and is_uncertain and timestamp not in _STARTS:
            raise OffsetNotAvailableError
    except OffsetNotAvailableError as error:
        is_known = version >= _OFFSET_NOT_AVAILABLE_SINCE
        code = error.code if is_known else ErrorCode.LEADER_NOT_AVAILABLE
        return _Partition(partition_index=index, error_code=code)
    except KafkaError as error:
        return _Partition(partition_index=index, error_code=error.code)
    if found is None:
        return _Partition(partition_index=index)
    epoch = found.leader_epoch
    if timestamp == LATEST_TIMESTAMP:
        epoch = partition.leader_epoch
    return _Partition(
        partition_index=index, timestamp=found.timestamp, offset=found.offset, leader_epoch=epoch
    )


API = Api(2, "ListOffsets", 1, 11, handle)
